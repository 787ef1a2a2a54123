#include "daemon/web/web_page.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <utility>

#include "daemon/web/page_assets.h"
#include "daemon/web/query.h"

namespace gpuperf {
namespace {

constexpr std::string_view kFilesPath = "/ui/";
constexpr std::string_view kViewsPath = "/view/";
constexpr char kJson[] = "application/json; charset=utf-8";

// Nothing but its own files; inside of no other site.
constexpr char kPagePolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'";
// speedscope makes its styles while it runs, and reads profiles from addresses of ours.
constexpr char kSpeedscopePolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: "
    "blob:; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'";
// Views hold their scripts, and names that workloads chose. Sandboxed they are a site of their own:
// whatever ran there could reach neither the page nor its token.
constexpr char kViewPolicy[] =
    "sandbox allow-scripts allow-downloads; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'";

constexpr struct {
  absl::StatusCode code;
  int status;
} kStatuses[] = {
    {absl::StatusCode::kInvalidArgument, 400},    {absl::StatusCode::kUnauthenticated, 401},
    {absl::StatusCode::kPermissionDenied, 403},   {absl::StatusCode::kNotFound, 404},
    {absl::StatusCode::kFailedPrecondition, 409}, {absl::StatusCode::kAlreadyExists, 409},
    {absl::StatusCode::kResourceExhausted, 429},  {absl::StatusCode::kUnavailable, 503},
    {absl::StatusCode::kDeadlineExceeded, 504},
};

int find_http_status(const Status& status) {
  const auto row =
      std::ranges::find(kStatuses, status.code(), [](const auto& r) { return r.code; });
  return row == std::end(kStatuses) ? 500 : row->status;
}

// `response` as the page sends it, under a policy.
HttpResponse add_headers(HttpResponse response, const char* policy) {
  for (const auto& [name, value] : {std::pair{"Content-Security-Policy", policy},
                                    {"X-Content-Type-Options", "nosniff"},
                                    {"Referrer-Policy", "no-referrer"},
                                    {"Cross-Origin-Resource-Policy", "same-origin"},
                                    {"Cache-Control", "no-store"}}) {
    response.headers.emplace_back(name, value);
  }
  return response;
}

HttpResponse make_json_response(std::string json) {
  return {.media_type = kJson, .body = make_body(std::move(json))};
}

// {"error": "…"}
HttpResponse make_error(int status, const std::string& message) {
  google::protobuf::Struct object;
  (*object.mutable_fields())["error"].set_string_value(message);
  std::string json;
  // Fails on text that is not UTF-8 only, which no message of ours is.
  (void)google::protobuf::util::MessageToJsonString(object, &json);
  HttpResponse response = make_json_response(json + "\n");
  response.status = status;
  return response;
}

HttpResponse make_error(const Status& status) {
  return make_error(find_http_status(status), std::string(status.message()));
}

// What the `*` of a route stands for.
std::string_view find_rest(const HttpRequest& request, std::string_view begin) {
  return std::string_view(request.path).substr(begin.size());
}

}  // namespace

Result<std::unique_ptr<WebPage>> WebPage::make(const Options& options, const Clock& clock,
                                               DropCounters& drops) {
  ASSIGN_OR_RETURN(SecretFile read,
                   SecretFile::make(options.folder + "/page.token", options.group));
  ASSIGN_OR_RETURN(SecretFile change, SecretFile::make(options.folder + "/page-admin.token", ""));
  return std::unique_ptr<WebPage>(
      new WebPage({.read = std::move(read), .change = std::move(change)}, clock, drops));
}

void WebPage::set_api(std::shared_ptr<const ApiStubs> read,
                      std::shared_ptr<const ApiStubs> change) {
  const MutexLock lock(mutex_);
  read_api_ = std::move(read);
  change_api_ = std::move(change);
}

WebPage::Api WebPage::find_api(Access access) const {
  const MutexLock lock(mutex_);
  return access == Access::kRead ? read_api_ : change_api_;
}

std::optional<HttpResponse> WebPage::find_refusal(const HttpRequest& request, Access access) const {
  std::optional<Refusal> refusal = check_visitor(request);
  if (!refusal) refusal = check_token(request, tokens_, access);
  if (!refusal) return std::nullopt;
  HttpResponse response = add_headers(make_error(refusal->status, refusal->message), kPagePolicy);
  if (refusal->status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

HttpResponse WebPage::answer_access(const HttpRequest& request) const {
  if (auto refusal = find_refusal(request, Access::kRead)) return *std::move(refusal);
  const auto refusal = check_token(request, tokens_, Access::kChange);
  google::protobuf::Struct object;
  auto& fields = *object.mutable_fields();
  fields["may_change"].set_bool_value(!refusal.has_value());
  fields["why_not"].set_string_value(refusal ? refusal->message : "");
  std::string json;
  (void)google::protobuf::util::MessageToJsonString(object, &json);  // as in make_error
  return add_headers(make_json_response(json + "\n"), kPagePolicy);
}

HttpResponse WebPage::answer_file(const HttpRequest& request) const {
  std::string_view path = find_rest(request, kFilesPath);
  if (path.empty()) path = "index.html";
  const char* const policy = path.starts_with("speedscope/") ? kSpeedscopePolicy : kPagePolicy;
  if (const auto refusal = check_visitor(request)) {
    return add_headers(make_text_response(refusal->status, refusal->message + "\n"), policy);
  }
  const std::span<const PageAsset> assets = list_page_assets();
  const auto asset = std::ranges::find(assets, path, &PageAsset::path);
  if (asset == assets.end()) {
    return add_headers(make_text_response(404, "not found: the page is at /ui/\n"), policy);
  }
  if (!accepts_gzip(request)) {
    return add_headers(
        make_text_response(406, "the page is kept compressed: ask with Accept-Encoding: gzip\n"),
        policy);
  }
  return add_headers({.media_type = std::string(asset->media_type),
                      .headers = {{"Content-Encoding", "gzip"}},
                      .body = {.bytes = asset->gzip_bytes}},
                     policy);
}

void WebPage::take_question(const ApiCall& call, HttpRequest request, const HttpReply& reply) {
  if (auto refusal = find_refusal(request, call.access)) return reply(*std::move(refusal));
  threads_.post(reply, [this, &call, request = std::move(request)] {
    return add_headers(answer_question(call, request), kPagePolicy);
  });
}

HttpResponse WebPage::answer_question(const ApiCall& call, const HttpRequest& request) const {
  const Api api = find_api(call.access);
  if (api == nullptr) {
    return make_error(
        503,
        "the page cannot reach the API: gpuperfd is starting or stopping, or grpc.listen is empty");
  }
  const auto question = call.access == Access::kRead ? make_request_json(parse_query(request.query))
                                                     : Result<std::string>(request.body);
  if (!question.ok()) return make_error(question.status());
  Result<std::string> answer = call.ask(*api, *question);
  return answer.ok() ? make_json_response(*std::move(answer)) : make_error(answer.status());
}

void WebPage::take_link(HttpRequest request, const HttpReply& reply) {
  if (auto refusal = find_refusal(request, Access::kRead)) return reply(*std::move(refusal));
  threads_.post(reply, [this, request = std::move(request)] {
    return add_headers(answer_link(request), kPagePolicy);
  });
}

HttpResponse WebPage::answer_link(const HttpRequest& request) {
  v1::FetchCaptureRequest wanted;
  if (const Status parsed = parse_json(request.body, wanted); !parsed.ok()) {
    return make_error(parsed);
  }
  const Result<std::string> secret = links_.add(std::move(wanted));
  if (!secret.ok()) return make_error(secret.status());
  return make_json_response("{\"path\":\"" + std::string(kViewsPath) + *secret + "\"}\n");
}

void WebPage::take_view(const HttpRequest& request, const HttpReply& reply) {
  if (const auto refusal = check_visitor(request)) {
    return reply(add_headers(make_error(refusal->status, refusal->message), kViewPolicy));
  }
  auto wanted = links_.find(std::string(find_rest(request, kViewsPath)));
  if (!wanted) {
    return reply(add_headers(
        make_error(404, "this address has expired; open the capture from the page again"),
        kViewPolicy));
  }
  struct Place {
    explicit Place(std::atomic<int>& count) : count_(count), number(++count) {}
    ~Place() { --count_; }
    std::atomic<int>& count_;
    const int number;
  };
  auto place = std::make_shared<Place>(views_);
  if (place->number > kViews) {
    drops_.add(DropCause::kHttpBusy);
    return reply(add_headers(
        make_error(429, "two captures are being opened; try again in a moment"), kViewPolicy));
  }
  threads_.post(reply, [this, wanted = *std::move(wanted), place = std::move(place)] {
    return add_headers(answer_view(wanted, place), kViewPolicy);
  });
}

HttpResponse WebPage::answer_view(const v1::FetchCaptureRequest& wanted,
                                  std::shared_ptr<const void> place) const {
  const Api api = find_api(Access::kRead);
  if (api == nullptr) return make_error(503, "gpuperfd is starting or stopping");
  Result<FetchedView> view = fetch_view(*api, wanted);
  if (!view.ok()) return make_error(view.status());
  // The place is held, too, until all of it is sent.
  const auto kept = std::make_shared<const std::pair<std::string, std::shared_ptr<const void>>>(
      std::move(view->bytes), std::move(place));
  return {.media_type = view->media_type, .body = {.bytes = kept->first, .owner = kept}};
}

std::vector<HttpRoute> WebPage::list_routes() {
  std::vector<HttpRoute> routes;
  for (const ApiCall& call : list_api_calls()) {
    routes.push_back({call.access == Access::kRead ? "GET" : "POST",
                      "/api/v1/" + std::string(call.path),
                      [this, &call](HttpRequest request, const HttpReply& reply) {
                        take_question(call, std::move(request), reply);
                      }});
  }
  routes.push_back({"GET", "/api/v1/access", answer_at_once([this](const HttpRequest& request) {
                      return answer_access(request);
                    })});
  routes.push_back(
      {"POST", "/api/v1/view_link", [this](HttpRequest request, const HttpReply& reply) {
         take_link(std::move(request), reply);
       }});
  routes.push_back(
      {"GET", std::string(kViewsPath) + "*",
       [this](const HttpRequest& request, const HttpReply& reply) { take_view(request, reply); }});
  routes.push_back({"GET", "/ui", answer_at_once([](const HttpRequest&) {
                      return make_redirect(std::string(kFilesPath));
                    })});
  routes.push_back(
      {"GET", std::string(kFilesPath) + "*",
       answer_at_once([this](const HttpRequest& request) { return answer_file(request); })});
  return routes;
}

}  // namespace gpuperf
