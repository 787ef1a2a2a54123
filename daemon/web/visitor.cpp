#include "daemon/web/visitor.h"

#include <string_view>

#include "daemon/base/listen_address.h"

namespace gpuperf {
namespace {

// "127.0.0.1:9465", "[::1]", "localhost:8080": any port, for it may be one end of a tunnel.
bool is_name_of_this_host(std::string_view host) {
  const size_t colon = host.rfind(':');
  const bool has_port = colon != std::string_view::npos && host.find(']', colon) == host.npos;
  std::string_view name = has_port ? host.substr(0, colon) : host;
  if (name.starts_with('[') && name.ends_with(']')) name = name.substr(1, name.size() - 2);
  return is_loopback({.host = std::string(name)});
}

// As the kernel writes it; of a socket that takes both kinds of addresses, "::ffff:127.0.0.1".
bool is_this_host(std::string_view peer) {
  constexpr std::string_view kMapped = "::ffff:";
  if (peer.starts_with(kMapped)) peer.remove_prefix(kMapped.size());
  return is_loopback({.host = std::string(peer)});
}

std::string_view find_bearer(std::string_view header) {
  constexpr std::string_view kScheme = "Bearer ";
  return header.starts_with(kScheme) ? header.substr(kScheme.size()) : std::string_view();
}

}  // namespace

std::optional<Refusal> check_visitor(const HttpRequest& request) {
  if (!is_this_host(request.peer_address)) {
    return Refusal{
        403,
        "the page is for this host only, because the metrics port has no TLS; use a tunnel: ssh -L "
        "9465:127.0.0.1:9465 HOST, or kubectl port-forward, then open http://127.0.0.1:9465/"};
  }
  if (!is_name_of_this_host(find_header(request, "Host"))) {
    return Refusal{421,
                   "not a name of this host; open http://127.0.0.1:PORT/ or "
                   "http://localhost:PORT/"};
  }
  return std::nullopt;
}

std::optional<Refusal> check_token(const HttpRequest& request, const PageTokens& tokens,
                                   Access wanted) {
  const std::string_view given = find_bearer(find_header(request, "Authorization"));
  const bool may_change = tokens.change.matches(given);
  if (may_change || (wanted == Access::kRead && tokens.read.matches(given))) return std::nullopt;
  if (tokens.read.matches(given)) {
    return Refusal{403, "this token may only read; to change anything, as root: sudo cat " +
                            tokens.change.path()};
  }
  return Refusal{401,
                 "the token is missing or belongs to an earlier run of gpuperfd: each start "
                 "creates a new one; root and group gpuperf can read it: sudo cat " +
                     tokens.read.path()};
}

}  // namespace gpuperf
