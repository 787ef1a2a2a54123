// libFuzzer target: any bytes as the file of a capture, with a checksum that fits. Aborts where a
// promise of daemon/store/capture_file.h is broken.
//
// Built where the compiler is clang (-DGPUPERF_FUZZ=ON). Usage: capture_file_fuzz [corpus folder];
// `capture_file_fuzz_corpus FOLDER` writes good files to begin with.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>

#include "daemon/store/capture_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  std::string bytes(reinterpret_cast<const char*>(data), size_bytes);
  bytes += gpuperf::make_capture_trailer(bytes);
  const auto read = gpuperf::decode_capture(bytes);
  if (!read.ok()) {
    if (read.status().code() == absl::StatusCode::kDataLoss) return 0;
    std::cerr << read.status() << "\n";
    std::abort();
  }
  // What was read can be written, and is the same when it is read again.
  const auto written = gpuperf::encode_capture(*read, {});
  if (!written.ok()) return 0;  // larger than a file may be
  const auto again = gpuperf::decode_capture(*written);
  if (again.ok() && *again == *read) return 0;
  std::cerr << "not the same when read again: " << again.status() << "\n";
  std::abort();
}
