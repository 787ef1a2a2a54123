#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "tests/unit/files.h"

namespace gpuperf {

inline std::filesystem::path source_path(std::string_view relative) {
  return std::filesystem::path(GPUPERF_SOURCE_DIR) / relative;
}

// Compares `actual` with the file to the byte. With GPUPERF_UPDATE_GOLDEN=1 in the environment it
// writes the file instead.
inline void expect_golden(const std::filesystem::path& path, const std::string& actual) {
  const char* update = std::getenv("GPUPERF_UPDATE_GOLDEN");
  if (update && std::string_view(update) == "1") {
    std::ofstream(path, std::ios::binary) << actual;
    return;
  }
  EXPECT_EQ(read_file(path), actual)
      << path << " differs; if the new text is right, run the test with GPUPERF_UPDATE_GOLDEN=1";
}

}  // namespace gpuperf
