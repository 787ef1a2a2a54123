#pragma once

// Where in the configuration a fault is, and where it is reported.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/config/config.h"
#include "daemon/config/error_text.h"

namespace gpuperf {

struct FaultPlace {
  std::string path;
  std::vector<ConfigError>& errors;

  void report(std::string message, std::string_view hint) const {
    errors.push_back({path, std::move(message), std::string(hint)});
  }
  FaultPlace child(std::string_view key) const { return {json_child_path(path, key), errors}; }
  FaultPlace item(size_t index) const { return {path + "[" + std::to_string(index) + "]", errors}; }
};

}  // namespace gpuperf
