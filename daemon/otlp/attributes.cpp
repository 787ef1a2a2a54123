#include "daemon/otlp/attributes.h"

#include <utility>

namespace gpuperf::otlp {

Origin make_origin(const std::map<std::string, std::string>& attributes, std::string_view version) {
  Origin origin;
  for (const auto& [key, value] : attributes) add_text(origin.resource, key, to_valid_utf8(value));
  origin.scope.set_name("gpuperf");
  origin.scope.set_version(std::string(version));
  return origin;
}

}  // namespace gpuperf::otlp
