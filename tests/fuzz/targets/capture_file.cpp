// Any bytes as the file of a capture, with a checksum that fits, and the promises of
// daemon/store/capture_file.h; what was read is drawn (daemon/view), in a form that its length
// chooses.

#include <google/protobuf/stubs/logging.h>

#include "daemon/store/capture_file.h"
#include "daemon/view/diff.h"
#include "daemon/view/formats.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/unit/store/random_capture.h"

namespace gpuperf::fuzz {
namespace {

// A small file needs no more: a report has 200 KiB before anything is in it.
constexpr size_t kDrawnBytesMax = size_t{16} << 20;

std::string draw(const Capture& capture, size_t choice) {
  const auto formats = list_view_formats();
  const size_t form = choice % (formats.size() + 1);
  const ViewOptions options{.weight = static_cast<ViewWeight>(choice / 8 % 3),
                            .by_capture_site = choice % 5 == 0};
  return form < formats.size() ? formats[form].render(capture, options)
                               : render_diff_flamegraph(capture, capture, options);
}

}  // namespace

std::string find_fault(std::string_view body) {
  // libprotobuf prints a line for each string that is not UTF-8.
  static const auto logged = google::protobuf::SetLogHandler(nullptr);
  (void)logged;
  std::string bytes(body);
  bytes += make_capture_trailer(bytes);
  const auto read = decode_capture(bytes);
  if (!read.ok()) return absl::IsDataLoss(read.status()) ? "" : read.status().ToString();
  if (draw(*read, body.size()).size() > kDrawnBytesMax) return "drawn beyond what it can need";
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
