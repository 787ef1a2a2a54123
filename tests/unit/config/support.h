#pragma once

// What the tests of the configuration share. Files to compare with are rewritten, not compared,
// with GPUPERF_UPDATE_GOLDEN=1.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>
#include <string>
#include <string_view>

#include "daemon/config.h"

namespace gpuperf {

inline void PrintTo(const ConfigError& error, std::ostream* out) {
  *out << '{' << error.path << "; " << error.message << "; " << error.hint << '}';
}

inline std::filesystem::path source_path(std::string_view relative) {
  return std::filesystem::path(GPUPERF_SOURCE_DIR) / relative;
}

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << path << " cannot be read";
  return {std::istreambuf_iterator<char>(file), {}};
}

// Compares `actual` with the file to the byte.
inline void expect_golden(const std::filesystem::path& path, const std::string& actual) {
  const char* update = std::getenv("GPUPERF_UPDATE_GOLDEN");
  if (update && std::string_view(update) == "1") {
    std::ofstream(path, std::ios::binary) << actual;
    return;
  }
  EXPECT_EQ(read_text(path), actual)
      << path << " differs; if the new text is right, run the test with GPUPERF_UPDATE_GOLDEN=1";
}

}  // namespace gpuperf
