#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace gpuperf::testing {

// Compares `text` with the file `path` below the source tree. With GPUPERF_UPDATE_GOLDEN=1 in the
// environment it writes the file instead.
inline void expect_golden(const std::string& path, const std::string& text) {
  const std::string full_path = std::string(GPUPERF_SOURCE_DIR) + "/" + path;
  if (std::getenv("GPUPERF_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(full_path, std::ios::binary) << text;
  }
  std::ifstream file(full_path, std::ios::binary);
  const std::string expected(std::istreambuf_iterator<char>(file), {});
  EXPECT_EQ(text, expected) << path << " differs; run this test with GPUPERF_UPDATE_GOLDEN=1 if "
                            << "the change is meant, and look at its diff";
}

}  // namespace gpuperf::testing
