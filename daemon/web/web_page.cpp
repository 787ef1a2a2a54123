#include "daemon/web/web_page.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <utility>

#include "daemon/web/page_assets.h"
#include "daemon/web/query.h"

namespace gpuperf {
namespace {

using httplib::Request;
using httplib::Response;

constexpr char kJson[] = "application/json; charset=utf-8";
constexpr char kPlainText[] = "text/plain; charset=utf-8";

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

void set_headers(Response& response, const char* policy) {
  response.set_header("Content-Security-Policy", policy);
  response.set_header("X-Content-Type-Options", "nosniff");
  response.set_header("Referrer-Policy", "no-referrer");
  response.set_header("Cross-Origin-Resource-Policy", "same-origin");
  response.set_header("Cache-Control", "no-store");
}

// Answers with `bytes`, which `owner` keeps. httplib would compress content that is set in another
// way, with Brotli at its slowest for browsers; the network is this host's own.
void send(Response& response, std::string_view bytes, const std::string& media_type,
          std::shared_ptr<const void> owner) {
  if (bytes.empty())
    return response.set_content("", media_type);  // it takes no provider of nothing
  response.set_content_provider(
      bytes.size(), media_type,
      [bytes, owner = std::move(owner)](size_t offset, size_t length, httplib::DataSink& sink) {
        return sink.write(bytes.data() + offset, length);
      });
}

// {"error": "…"}
void answer_error(Response& response, int status, const std::string& message) {
  google::protobuf::Struct object;
  (*object.mutable_fields())["error"].set_string_value(message);
  std::string json;
  // Fails on text that is not UTF-8 only, which no message of ours is.
  (void)google::protobuf::util::MessageToJsonString(object, &json);
  response.status = status;
  response.set_content(json + "\n", kJson);
}

void answer_error(Response& response, const Status& status) {
  answer_error(response, find_http_status(status), std::string(status.message()));
}

}  // namespace

Result<std::unique_ptr<WebPage>> WebPage::make(const Options& options, const Clock& clock) {
  ASSIGN_OR_RETURN(SecretFile read,
                   SecretFile::make(options.folder + "/page.token", options.group));
  ASSIGN_OR_RETURN(SecretFile change, SecretFile::make(options.folder + "/page-admin.token", ""));
  return std::unique_ptr<WebPage>(
      new WebPage({.read = std::move(read), .change = std::move(change)}, clock));
}

void WebPage::set_api(std::shared_ptr<const ApiStubs> read,
                      std::shared_ptr<const ApiStubs> change) {
  const MutexLock lock(mutex_);
  read_api_ = std::move(read);
  change_api_ = std::move(change);
}

std::shared_ptr<const ApiStubs> WebPage::find_api(Access access) const {
  const MutexLock lock(mutex_);
  return access == Access::kRead ? read_api_ : change_api_;
}

bool WebPage::admit(const Request& request, Response& response, Access access) const {
  set_headers(response, kPagePolicy);
  std::optional<Refusal> refusal = check_visitor(request);
  if (!refusal) refusal = check_token(request, tokens_, access);
  if (!refusal) return true;
  if (refusal->status == 401) response.set_header("WWW-Authenticate", "Bearer");
  answer_error(response, refusal->status, refusal->message);
  return false;
}

void WebPage::answer_file(const Request& request, Response& response) const {
  const std::string path =
      request.matches[1].str().empty() ? "index.html" : request.matches[1].str();
  set_headers(response, path.starts_with("speedscope/") ? kSpeedscopePolicy : kPagePolicy);
  if (const auto refusal = check_visitor(request)) {
    response.status = refusal->status;
    return response.set_content(refusal->message + "\n", kPlainText);
  }
  const std::span<const PageAsset> assets = list_page_assets();
  const auto asset = std::ranges::find(assets, path, &PageAsset::path);
  if (asset == assets.end()) {
    response.status = 404;
    return response.set_content("not found: the page is at /ui/\n", kPlainText);
  }
  if (request.get_header_value("Accept-Encoding").find("gzip") == std::string::npos) {
    response.status = 406;
    return response.set_content("the page is kept compressed: ask with Accept-Encoding: gzip\n",
                                kPlainText);
  }
  response.set_header("Content-Encoding", "gzip");
  send(response, asset->gzip_bytes, std::string(asset->media_type), nullptr);
}

void WebPage::answer_question(const Request& request, Response& response,
                              const ApiCall& call) const {
  if (!admit(request, response, call.access)) return;
  const auto api = find_api(call.access);
  if (api == nullptr) {
    return answer_error(response, 503,
                        "the API, which the page reads, is not there: gpuperfd starts or stops, or "
                        "grpc.listen is empty");
  }
  const bool is_read = call.access == Access::kRead;
  const auto question = is_read ? make_request_json(request.params) : Answer(request.body);
  if (!question.ok()) return answer_error(response, question.status());
  Answer answer = call.ask(*api, *question);
  if (!answer.ok()) return answer_error(response, answer.status());
  const auto json = std::make_shared<const std::string>(*std::move(answer));
  send(response, *json, kJson, json);
}

void WebPage::answer_link(const Request& request, Response& response) {
  if (!admit(request, response, Access::kRead)) return;
  v1::FetchCaptureRequest wanted;
  if (const Status parsed = parse_json(request.body, wanted); !parsed.ok()) {
    return answer_error(response, parsed);
  }
  const Answer secret = links_.add(std::move(wanted));
  if (!secret.ok()) return answer_error(response, secret.status());
  response.set_content("{\"path\":\"/view/" + *secret + "\"}\n", kJson);
}

void WebPage::answer_view(const Request& request, Response& response) {
  set_headers(response, kViewPolicy);
  if (const auto refusal = check_visitor(request)) {
    return answer_error(response, refusal->status, refusal->message);
  }
  const auto wanted = links_.find(request.matches[1].str());
  if (!wanted) {
    return answer_error(response, 404,
                        "this address has expired; open the capture from the page again");
  }
  struct Place {
    explicit Place(std::atomic<int>& count) : count_(count), number(++count) {}
    ~Place() { --count_; }
    std::atomic<int>& count_;
    const int number;
  };
  const auto place = std::make_shared<Place>(views_);
  if (place->number > kViews) {
    return answer_error(response, 429, "two captures are being opened; try again in a moment");
  }
  const auto api = find_api(Access::kRead);
  if (api == nullptr) return answer_error(response, 503, "gpuperfd starts or stops");
  Result<FetchedView> view = fetch_view(*api, *wanted);
  if (!view.ok()) return answer_error(response, view.status());
  // The place is held, too, until all of it is sent.
  const auto kept = std::make_shared<const std::pair<std::string, std::shared_ptr<Place>>>(
      std::move(view->bytes), place);
  send(response, kept->first, view->media_type, kept);
}

void WebPage::add_routes(httplib::Server& server) {
  server.Get(R"(/ui/([A-Za-z0-9_./-]{0,100}))", [this](const Request& request, Response& response) {
    answer_file(request, response);
  });
  server.Get("/ui", [](const Request&, Response& response) { response.set_redirect("/ui/"); });
  for (const ApiCall& call : list_api_calls()) {
    const auto answer = [this, &call](const Request& request, Response& response) {
      answer_question(request, response, call);
    };
    const std::string path = "/api/v1/" + std::string(call.path);
    if (call.access == Access::kRead) {
      server.Get(path, answer);
    } else {
      server.Post(path, answer);
    }
  }
  server.Post("/api/v1/view_link", [this](const Request& request, Response& response) {
    answer_link(request, response);
  });
  server.Get("/view/([0-9a-f]{64})", [this](const Request& request, Response& response) {
    answer_view(request, response);
  });
}

}  // namespace gpuperf
