#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gpuperf {

// A request that has arrived in whole.
struct HttpRequest {
  std::string method;
  std::string path;          // decoded, without the query
  std::string query;         // as sent, behind the '?'
  std::string header_lines;  // each "NAME: VALUE\r\n", as sent; see find_header
  std::string body;
  std::string peer_address;  // as the kernel writes it, without the port
};

// The first header of that name, in any case; empty = none. Looked for anew each time: a table of
// headers would take many times the bytes that a client sends.
std::string_view find_header(const HttpRequest& request, std::string_view name);

bool accepts_gzip(const HttpRequest& request);

// "a=1&b=2", decoded, in that order.
using HttpParameters = std::vector<std::pair<std::string, std::string>>;
HttpParameters parse_query(std::string_view query);

struct HttpBody {
  std::string_view bytes;
  std::shared_ptr<const void> owner;  // keeps the bytes; null = they are the program's own
  // Counts against what all answers may hold (HttpLimits). False: its maker bounds how many such
  // bodies there are.
  bool is_counted = false;
};
HttpBody make_body(std::string text);

struct HttpResponse {
  int status = 200;
  std::string media_type = "text/plain; charset=utf-8";
  // Beside Content-Type, Content-Length and Connection.
  std::vector<std::pair<std::string, std::string>> headers;
  HttpBody body;
};
HttpResponse make_text_response(int status, std::string text);
HttpResponse make_redirect(std::string location);

// Answers a request: on any thread, once. Does nothing where the client has gone meanwhile.
using HttpReply = std::function<void(HttpResponse response)>;

// Called on the server's only thread, so it must not wait: what does goes to another thread, with
// the reply.
using HttpHandler = std::function<void(HttpRequest request, const HttpReply& reply)>;

struct HttpRoute {
  std::string method;  // GET answers HEAD, too; empty = any
  std::string path;    // "/metrics"; "/ui/*": whatever begins with "/ui/"
  HttpHandler handle;
};

// What `make` returns, or 500 where it throws.
void reply_with(const HttpReply& reply, const std::function<HttpResponse()>& make);

// A handler that has its answer at once.
HttpHandler answer_at_once(std::function<HttpResponse(const HttpRequest& request)> answer);

}  // namespace gpuperf
