#include "daemon/web/query.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <string_view>

#include "daemon/model/display_text.h"

namespace gpuperf {
namespace {

using google::protobuf::Struct;
using google::protobuf::Value;

// Deeper than any request: a long chain of dots must not become a deep recursion in a parser.
constexpr size_t kMaxDepth = 4;

Status add(Struct& object, std::string_view name, const std::string& value) {
  Struct* inner = &object;
  std::string_view rest = name;
  for (size_t depth = 1;; ++depth) {
    const size_t dot = rest.find('.');
    const std::string part(rest.substr(0, dot));
    const bool is_last = dot == std::string_view::npos;
    Value& place = (*inner->mutable_fields())[part];
    const bool is_taken = place.kind_case() != Value::KIND_NOT_SET;
    if (part.empty() || depth > kMaxDepth || (is_taken && (is_last || !place.has_struct_value()))) {
      return absl::InvalidArgumentError(
          "query: no such parameter, or given twice: " + std::string(name) +
          "; write FIELD=VALUE or FIELD.FIELD=VALUE with the names of the .proto");
    }
    if (is_last) {
      place.set_string_value(value);
      return absl::OkStatus();
    }
    inner = place.mutable_struct_value();
    rest.remove_prefix(dot + 1);
  }
}

}  // namespace

Result<std::string> make_request_json(const HttpParameters& parameters) {
  Struct object;
  for (const auto& [name, value] : parameters) {
    if (to_valid_utf8(name) != name || to_valid_utf8(value) != value) {
      return absl::InvalidArgumentError("query: not UTF-8");
    }
    RETURN_IF_ERROR(add(object, name, value));
  }
  std::string json;
  const auto printed = google::protobuf::util::MessageToJsonString(object, &json);
  if (printed.ok()) return json;
  return absl::InvalidArgumentError("query: " + printed.ToString());
}

Status parse_json(const std::string& json, google::protobuf::Message& message) {
  if (to_valid_utf8(json) != json) return absl::InvalidArgumentError("the request is not UTF-8");
  const auto parsed = google::protobuf::util::JsonStringToMessage(json, &message);
  if (parsed.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(message.GetDescriptor()->name() + ": " +
                                    std::string(parsed.message()));
}

}  // namespace gpuperf
