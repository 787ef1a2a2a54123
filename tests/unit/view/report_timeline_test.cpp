#include "daemon/view/report_timeline.h"

#include <absl/strings/escaping.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/unit/matchers.h"
#include "tests/unit/view/capture_builder.h"
#include "tests/workloads/synthetic_capture.h"

namespace gpuperf {
namespace {

using Json = nlohmann::json;

// The `index`th array of four bytes a value.
std::vector<uint32_t> get_words(const Json& row, size_t index) {
  std::string bytes;
  EXPECT_TRUE(absl::Base64Unescape(row["items"].get<std::string>(), &bytes));
  const size_t count = row["count"];
  EXPECT_EQ(bytes.size(), 20 * count);
  std::vector<uint32_t> words(count);
  std::memcpy(words.data(), bytes.data() + 4 * count * index, 4 * count);
  return words;
}

// The two arrays of two bytes a value: place, pieces.
std::vector<uint16_t> get_halves(const Json& row, size_t index) {
  std::string bytes;
  EXPECT_TRUE(absl::Base64Unescape(row["items"].get<std::string>(), &bytes));
  const size_t count = row["count"];
  std::vector<uint16_t> halves(count);
  std::memcpy(halves.data(), bytes.data() + 16 * count + 2 * count * index, 2 * count);
  return halves;
}

TEST(ReportTimelineTest, HasStreamsAndThreadsWithTheirPieces) {
  testing::CaptureBuilder builder;
  Capture& capture = builder.made;
  const uint32_t api = builder.add_function("cudaLaunchKernel");
  const uint32_t linear = builder.add_function("linear", "libtorch");
  const uint32_t kernel = builder.add_kernel("gemm");
  capture.start_mono_ns = 1'000;
  capture.duration_ns = 9'000;
  capture.calls = {{.start_mono_ns = 800, .duration_ns = 700, .thread = 0, .function = linear}};
  const uint32_t launch =
      builder.add_launch({.start_mono_ns = 900, .duration_ns = 300, .thread = 0, .function = api});
  capture.work = {
      {.start_mono_ns = 2'000, .duration_ns = 500, .kernel = kernel, .stream = 0, .launch = launch},
      {.start_mono_ns = 4'000, .duration_ns = 100, .kind = WorkKind::kSet, .stream = 0}};
  capture.waits = {
      {.start_mono_ns = 5'000, .duration_ns = 50, .thread = 0, .type = GPUPERF_SYNC_STREAM}};

  const Json timeline = Json::parse(make_timeline_json(capture));

  EXPECT_EQ(timeline["span_ns"], 9'200);
  EXPECT_EQ(timeline["tick_ns"], 1);
  EXPECT_EQ(timeline["begin_ns"], 200);
  EXPECT_EQ(timeline["merge_ns"], 0);
  EXPECT_EQ(timeline["names"], Json({"linear", "cudaLaunchKernel", "wait for stream",
                                     "[GPU_Kernel]gemm", "[GPU_Memset]set"}));
  EXPECT_EQ(timeline["kinds"], "23645");
  ASSERT_EQ(timeline["rows"].size(), 2u);
  const Json& stream = timeline["rows"][0];
  EXPECT_EQ(stream["label"], "GPU 0, stream 7");
  EXPECT_THAT(get_words(stream, 0), ElementsAre(1'200, 3'200));
  EXPECT_THAT(get_words(stream, 1), ElementsAre(500, 100));
  EXPECT_THAT(get_words(stream, 2), ElementsAre(3, 4));
  EXPECT_THAT(get_words(stream, 3), ElementsAre(100, UINT32_MAX));
  EXPECT_THAT(get_halves(stream, 0), ElementsAre(1, UINT16_MAX));
  EXPECT_THAT(get_halves(stream, 1), ElementsAre(1, 1));
  const Json& thread = timeline["rows"][1];
  EXPECT_EQ(thread["label"], "main loop 43");
  EXPECT_EQ(thread["lanes"], 3);
  EXPECT_THAT(get_words(thread, 0), ElementsAre(0, 100, 4'200));
  EXPECT_THAT(get_words(thread, 2), ElementsAre(0, 1, 2));
  EXPECT_THAT(get_halves(thread, 0), ElementsAre(0, 1, 2));
}

TEST(ReportTimelineTest, MergesNeighboursBeyondItsBoundAndLosesNone) {
  const Capture capture = testing::make_synthetic_capture({.stacks = 40, .work = 20'000});

  const Json timeline = Json::parse(make_timeline_json(capture, 5'000));

  EXPECT_GT(timeline["merge_ns"], 0);
  size_t items = 0;
  size_t pieces = 0;
  for (const Json& row : timeline["rows"]) {
    items += row["count"].get<size_t>();
    if (row["is_host"]) continue;
    for (const uint16_t count : get_halves(row, 1)) pieces += count;
  }
  EXPECT_LE(items, 5'000u);
  EXPECT_GT(items, 1'000u);
  EXPECT_EQ(pieces, capture.work.size());
}

TEST(ReportTimelineTest, KeepsTheBusiestRows) {
  testing::CaptureBuilder builder;
  Capture& capture = builder.made;
  for (uint32_t stream = 1; stream < 100; ++stream) {
    capture.streams.push_back({.process = 0, .device = 0, .context = 1, .stream = 100 + stream});
    capture.work.push_back({.start_mono_ns = 2'000'000,
                            .duration_ns = stream,
                            .kind = WorkKind::kSet,
                            .stream = stream});
  }

  const Json timeline = Json::parse(make_timeline_json(capture));

  EXPECT_EQ(timeline["rows"].size(), kMostTimelineRows);
  EXPECT_EQ(timeline["left_out"], 99 - kMostTimelineRows);
  EXPECT_EQ(timeline["rows"][0]["label"], "GPU 0, stream 136");
}

TEST(ReportTimelineTest, MeasuresLongWindowsInCoarserTicks) {
  testing::CaptureBuilder builder;
  builder.made.duration_ns = 60'000'000'000;
  builder.made.work = {{.start_mono_ns = builder.made.start_mono_ns + 59'000'000'000,
                        .duration_ns = 1'500,
                        .kind = WorkKind::kSet,
                        .stream = 0}};

  const Json timeline = Json::parse(make_timeline_json(builder.made));

  EXPECT_EQ(timeline["tick_ns"], 14);
  EXPECT_THAT(get_words(timeline["rows"][0], 0), ElementsAre(59'000'000'000 / 14));
}

}  // namespace
}  // namespace gpuperf
