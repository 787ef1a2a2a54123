#pragma once

// Several configuration files as one tree.

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/config/config.h"
#include "daemon/config/json_document.h"

namespace gpuperf {

// Called for each value that is added (`before` null) or takes the place of another one.
using OnMerged =
    std::function<void(const std::string& path, const JsonNode* before, const JsonNode& after)>;

// Puts `over` into `base`: objects key by key, other values whole. A probe that `base` has as a
// symbol alone counts as an object with that symbol.
void merge_config(JsonObject& base, const JsonObject& over, const OnMerged& on_merged);

// The files of a configuration, merged in the order in which they are added.
class ConfigMerge {
 public:
  void add(const JsonObject& document, const std::string& file);

  const JsonObject& root() const { return root_; }
  // The last file that set the value at this path, or else what it is in; empty = none did.
  std::string find_file(std::string_view path) const;
  // Values that two files give differently.
  const std::vector<ConfigError>& conflicts() const { return conflicts_; }

 private:
  JsonObject root_;
  std::map<std::string, std::string, std::less<>> file_of_;  // by path
  std::vector<ConfigError> conflicts_;
};

}  // namespace gpuperf
