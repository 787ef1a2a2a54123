#pragma once

// A JSON text as a tree that keeps the order of keys, and names the place of every fault.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "daemon/config/config.h"

namespace gpuperf {

struct JsonMember;
struct JsonNode;
using JsonArray = std::vector<JsonNode>;
using JsonObject = std::vector<JsonMember>;  // in file order; a duplicate key is here twice

// Null unless set. Integers that fit neither 64-bit type, and everything with a fraction or
// exponent, are doubles.
struct JsonNode {
  std::variant<std::nullptr_t, bool, uint64_t, int64_t, double, std::string, JsonArray, JsonObject>
      value;  // no initialiser here: it would need JsonMember complete
  bool operator==(const JsonNode& other) const;
};

struct JsonMember {
  std::string key;
  JsonNode value;
  bool operator==(const JsonMember&) const = default;
};

// Deepest nesting accepted; the deepest the configuration needs is 6:
// an offset of a typed argument.
inline constexpr size_t kJsonMaxDepth = 16;

// The tree, or nullopt when `text` is not JSON. Adds to `errors` one error for that (with line and
// column) and one for every duplicate key (with its path).
std::optional<JsonNode> parse_json_document(std::string_view text,
                                            std::vector<ConfigError>& errors);

}  // namespace gpuperf
