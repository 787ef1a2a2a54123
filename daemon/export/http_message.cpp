#include "daemon/export/http_message.h"

#include <exception>

#include "daemon/export/http_text.h"

namespace gpuperf {

std::string_view find_header(const HttpRequest& request, std::string_view name) {
  std::string_view rest = request.header_lines;
  while (!rest.empty()) {
    const size_t end = rest.find("\r\n");
    const std::string_view line = rest.substr(0, end);
    const size_t colon = line.find(':');
    if (colon != line.npos && is_same_token(line.substr(0, colon), name)) {
      return trim_blanks(line.substr(colon + 1));
    }
    rest.remove_prefix(end == rest.npos ? rest.size() : end + 2);
  }
  return {};
}

bool accepts_gzip(const HttpRequest& request) {
  // Nobody says "gzip;q=0".
  return find_header(request, "Accept-Encoding").find("gzip") != std::string_view::npos;
}

HttpParameters parse_query(std::string_view query) {
  HttpParameters parameters;
  while (!query.empty()) {
    const size_t end = query.find('&');
    const std::string_view part = query.substr(0, end);
    const size_t equals = part.find('=');
    const std::string_view value = equals == part.npos ? "" : part.substr(equals + 1);
    if (!part.empty()) {
      parameters.emplace_back(decode_percent(part.substr(0, equals), /*plus_is_blank=*/true),
                              decode_percent(value, /*plus_is_blank=*/true));
    }
    query.remove_prefix(end == query.npos ? query.size() : end + 1);
  }
  return parameters;
}

HttpBody make_body(std::string text) {
  const auto kept = std::make_shared<const std::string>(std::move(text));
  return {.bytes = *kept, .owner = kept, .is_counted = true};
}

HttpResponse make_text_response(int status, std::string text) {
  return {.status = status, .body = make_body(std::move(text))};
}

HttpResponse make_redirect(std::string location) {
  return {.status = 302, .headers = {{"Location", std::move(location)}}};
}

void reply_with(const HttpReply& reply, const std::function<HttpResponse()>& make) {
  HttpResponse response;
  try {
    response = make();
  } catch (const std::exception&) {
    response = make_text_response(500, "internal error: out of memory?\n");
  }
  reply(std::move(response));
}

HttpHandler answer_at_once(std::function<HttpResponse(const HttpRequest& request)> answer) {
  return [answer = std::move(answer)](const HttpRequest& request, const HttpReply& reply) {
    reply_with(reply, [&] { return answer(request); });
  };
}

}  // namespace gpuperf
