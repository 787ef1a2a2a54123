// Writes good files of captures into a folder, without their checksum: what capture_file_fuzz
// begins with.

#include <fstream>
#include <iostream>
#include <string>

#include "daemon/store/capture_file.h"
#include "tests/unit/store/random_capture.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: capture_file_fuzz_corpus FOLDER\n";
    return 2;
  }
  for (uint32_t seed = 0; seed < 8; ++seed) {
    const auto capture = gpuperf::testing::RandomCapture(seed).make({.calls = seed,
                                                                     .launches = seed,
                                                                     .work = seed,
                                                                     .waits = seed,
                                                                     .gaps = seed,
                                                                     .names = seed});
    const auto bytes = gpuperf::encode_capture(capture, {});
    if (!bytes.ok()) {
      std::cerr << bytes.status() << "\n";
      return 1;
    }
    std::ofstream(std::string(argv[1]) + "/" + std::to_string(seed), std::ios::binary)
        << bytes->substr(0, bytes->size() - gpuperf::kCaptureTrailerBytes);
  }
  return 0;
}
