#include "daemon/base/endpoint.h"

#include <string>

namespace gpuperf {
namespace {

constexpr std::string_view kDefaultPort = ":4317";

Status bad_endpoint(std::string_view text, std::string_view why) {
  return absl::InvalidArgumentError("endpoint \"" + std::string(text) + "\": " + std::string(why));
}

}  // namespace

Result<Endpoint> parse_endpoint(std::string_view text) {
  Endpoint endpoint;
  std::string_view rest = text;
  if (rest.starts_with("https://")) {
    endpoint.is_encrypted = true;
    rest.remove_prefix(8);
  } else if (rest.starts_with("http://")) {
    rest.remove_prefix(7);
  } else {
    return bad_endpoint(text, "write http://host:4317, or https://host:4317 for TLS");
  }
  if (rest.ends_with('/')) rest.remove_suffix(1);
  if (rest.empty()) return bad_endpoint(text, "the host is missing: http://host:4317");
  if (rest.find('/') != rest.npos) {
    return bad_endpoint(text, "leave out the path: data is sent over gRPC, to port 4317 as a rule");
  }
  if (rest.find('@') != rest.npos) {
    return bad_endpoint(text, "leave out user and password: send a header \"authorization\"");
  }
  std::string address(rest);
  const size_t after_host = rest.starts_with('[') ? rest.find(']') : 0;
  if (after_host != rest.npos && rest.find(':', after_host) == rest.npos) address += kDefaultPort;
  ASSIGN_OR_RETURN(endpoint.address, parse_host_port(address));
  if (endpoint.address.port == 0) return bad_endpoint(text, "port 0 cannot be reached");
  return endpoint;
}

}  // namespace gpuperf
