#include "daemon/store/suspended_functions.h"

#include <nlohmann/json.hpp>

#include "daemon/store/whole_file.h"

namespace gpuperf {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxBytes = 1 << 20;  // a function has some 150

template <typename Value>
bool read_key(const Json& object, const char* key, Value& value) {
  const auto found = object.find(key);
  if (found == object.end()) return false;
  if constexpr (std::is_same_v<Value, std::string>) {
    if (!found->is_string()) return false;
  } else if constexpr (std::is_same_v<Value, double>) {
    if (!found->is_number()) return false;
  } else {
    if (!found->is_number_unsigned()) return false;
  }
  value = found->template get<Value>();
  return true;
}

bool read_function(const Json& object, SuspendedFunction& function) {
  return object.is_object() && read_key(object, "category", function.category) &&
         read_key(object, "function", function.function) &&
         read_key(object, "comm", function.comm) &&
         read_key(object, "share_ratio", function.share_ratio) &&
         read_key(object, "times", function.times) && function.share_ratio >= 0 &&
         function.times > 0;
}

}  // namespace

Status write_suspended_functions(const std::string& path,
                                 const std::vector<SuspendedFunction>& functions) {
  Json list = Json::array();
  for (const SuspendedFunction& function : functions) {
    if (list.size() == kSuspendedFunctionsMax) break;
    list.push_back({{"category", function.category},
                    {"function", function.function},
                    {"comm", function.comm},
                    {"share_ratio", function.share_ratio},
                    {"times", function.times}});
  }
  return write_whole_file(path, list.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

Result<std::vector<SuspendedFunction>> read_suspended_functions(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file_beginning(path, kMaxBytes));
  const Json list = Json::parse(text, nullptr, false);
  const Status damaged =
      absl::InvalidArgumentError(path + ": not a list of suspended functions; it is written anew");
  if (!list.is_array() || list.size() > kSuspendedFunctionsMax) return damaged;
  std::vector<SuspendedFunction> functions;
  for (const Json& object : list) {
    if (!read_function(object, functions.emplace_back())) return damaged;
  }
  return functions;
}

}  // namespace gpuperf
