// Any bytes as the file of a capture, with a checksum that fits, and the promises of
// daemon/store/capture_file.h.

#include <google/protobuf/stubs/logging.h>

#include "daemon/store/capture_file.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/unit/store/random_capture.h"

namespace gpuperf::fuzz {

std::string find_fault(std::string_view body) {
  // libprotobuf prints a line for each string that is not UTF-8.
  static const auto logged = google::protobuf::SetLogHandler(nullptr);
  (void)logged;
  std::string bytes(body);
  bytes += make_capture_trailer(bytes);
  const auto read = decode_capture(bytes);
  if (!read.ok()) return absl::IsDataLoss(read.status()) ? "" : read.status().ToString();
  // What was read can be written, and is the same when it is read again.
  const auto written = encode_capture(*read, {});
  if (!written.ok()) return "";  // larger than a file may be
  const auto again = decode_capture(*written);
  return again.ok() && *again == *read ? "" : "not the same when read again";
}

std::vector<std::string> make_seeds() {
  std::vector<std::string> seeds;
  for (uint32_t seed = 0; seed < 8; ++seed) {
    const auto capture = testing::RandomCapture(seed).make({.calls = seed,
                                                            .launches = seed,
                                                            .work = seed,
                                                            .waits = seed,
                                                            .gaps = seed,
                                                            .names = seed});
    const auto bytes = encode_capture(capture, {});
    if (bytes.ok()) seeds.push_back(bytes->substr(0, bytes->size() - kCaptureTrailerBytes));
  }
  return seeds;
}

}  // namespace gpuperf::fuzz
