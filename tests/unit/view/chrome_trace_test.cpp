#include "daemon/view/chrome_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "daemon/view/json_text.h"
#include "tests/fakes/captures/example_capture.h"

namespace gpuperf {
namespace {

using nlohmann::json;
using testing::make_example_capture;

json render_json(const Capture& capture) {
  return json::parse(render_chrome_trace(capture, ViewOptions{}));
}

std::vector<json> find_events(const json& trace, std::string_view phase, std::string_view name) {
  std::vector<json> found;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == phase && event["name"] == name) found.push_back(event);
  }
  return found;
}

TEST(JsonTextTest, HoldsNoControlCharacterAndNoInvalidByte) {
  EXPECT_EQ(to_json_text("a\"\\\n\x01\x7f\xff"
                         "é"),
            "\"a\\\"\\\\\\u000a\\u0001\\u007f\xef\xbf\xbdé\"");
}

TEST(JsonTextTest, WritesMicrosecondsToTheNanosecond) {
  std::string text;
  for (const uint64_t ns : {uint64_t{0}, uint64_t{7}, uint64_t{1'234'056}, UINT64_MAX}) {
    append_us(ns, text);
    text += ' ';
  }
  EXPECT_EQ(text, "0.000 0.007 1234.056 18446744073709551.615 ");
}

TEST(ChromeTraceTest, ALaunchIsWhole) {
  const json trace = render_json(make_example_capture());

  const std::vector<json> launches = find_events(trace, "X", "cudaLaunchKernel");

  ASSERT_EQ(launches.size(), 4u);
  EXPECT_EQ(launches[0], json::parse(R"j({"ph": "X", "cat": "launch", "name": "cudaLaunchKernel",
      "pid": 4711, "tid": 4711, "ts": 80.0, "dur": 10.0, "sf": 3,
      "args": {"correlation": 2, "operation": "linear > cublasGemmEx m=512 n=1024 k=64"}})j"));
  EXPECT_EQ(launches[1]["args"]["cut_to_fit"], true);
}

TEST(ChromeTraceTest, WorkSaysWhatItWas) {
  const json trace = render_json(make_example_capture());

  EXPECT_EQ(find_events(trace, "X", "copy host_to_device"),
            std::vector<json>{json::parse(R"j({"ph": "X", "cat": "copy",
      "name": "copy host_to_device", "pid": 5000000, "tid": 6000002, "ts": 55.0, "dur": 20.0,
      "args": {"bytes": 1000000, "gb_per_second": 50.0}})j")});
  EXPECT_EQ(find_events(trace, "X", "gemm<float, 128>")[1]["args"],
            json::parse(R"j({"kernel": "void gemm<float, 128>(float const*, float*)",
      "shape": "grid 64x2x1 block 256x1x1 shared 1024 registers 32", "graph": 9, "node": 1,
      "captured_by": "linear > cublasGemmEx m=512 n=1024 k=64", "match": "ambiguous"
})j"));
}

TEST(ChromeTraceTest, AnArrowLeadsFromEachLaunchToItsWork) {
  const json trace = render_json(make_example_capture());

  const std::vector<json> begins = find_events(trace, "s", "launch");
  const std::vector<json> ends = find_events(trace, "f", "launch");

  // Nine pieces of work, one without a launch, one before its call.
  ASSERT_EQ(begins.size(), 7u);
  ASSERT_EQ(ends.size(), 7u);
  EXPECT_EQ(begins[0], json::parse(R"j({"ph": "s", "id": 2, "cat": "launch", "name": "launch",
      "pid": 4711, "tid": 4711, "ts": 80.0})j"));
  EXPECT_EQ(ends[0], json::parse(R"j({"ph": "f", "bp": "e", "id": 2, "cat": "launch",
      "name": "launch", "pid": 5000000, "tid": 6000000, "ts": 90.0})j"));
}

TEST(ChromeTraceTest, StacksAreATreeOfFrames) {
  const json trace = render_json(make_example_capture());

  EXPECT_EQ(trace["stackFrames"], json::parse(R"j({
      "1": {"name": "main", "category": "/usr/bin/python3"},
      "2": {"name": "train (train.py:42)", "parent": "1"
}
, "3" : {"name" : "forward (model.py:7)", "parent" : "2"}, "4" : {"name" : "[cut]"}, "5" : {
  "name" : "[libunknown.so+0x1c0]", "category" : "/usr/lib/libunknown.so", "parent" : "4"
}
})j"));
}

TEST(ChromeTraceTest, SaysWhichClockItsTimesAreOf) {
  const json trace = render_json(make_example_capture());

  EXPECT_EQ(trace["otherData"], json::parse(R"j({"tool": "gpuperf", "version": "0.1.0",
      "host": "node-1", "capture": 3, "name": "exam\"ple", "trigger": "request",
      "clock": "CLOCK_MONOTONIC", "ts0_mono_ns": "4999999950123",
      "ts0_unix_ns": "1699999999999950000", "window_start_us": 50.0,
      "window_duration_us": 1000.0})j"));
}

TEST(ChromeTraceTest, GapsAndUnknownWaitsHaveTracksOfTheirOwn) {
  const json trace = render_json(make_example_capture());

  EXPECT_EQ(find_events(trace, "X", "missing: records_lost")[0]["args"],
            json::parse(R"j({"cause": "records_lost", "records": 17})j"));
  EXPECT_EQ(find_events(trace, "X", "wait for context")[0]["pid"], 4712);
}

TEST(ChromeTraceTest, BeyondItsLimitsTextsAreRowsAndArrowsAreBound) {
  const Capture capture = make_example_capture();

  const json trace = json::parse(render_chrome_trace(capture, ChromeLimits{0, 6}));

  const json launch = find_events(trace, "X", "cudaLaunchKernel")[0];
  EXPECT_EQ(launch["args"], json::parse(R"j({"operation": 1})j"));
  EXPECT_EQ(launch["bind_id"], 2);
  EXPECT_EQ(launch["flow_out"], true);
  const json work = find_events(trace, "X", "gemm<float, 128>")[0];
  EXPECT_EQ(work["args"], json::parse(R"j({"kernel": 0, "shape": 0})j"));
  EXPECT_EQ(work["bind_id"], 2);
  EXPECT_EQ(work["flow_in"], true);
  EXPECT_EQ(find_events(trace, "s", "launch").size(), 0u);
  EXPECT_EQ(trace["otherData"]["operations"][1], "linear > cublasGemmEx m=512 n=1024 k=64");
  EXPECT_EQ(trace["otherData"]["kernels"][1], "void relu<4>(float*)");
  EXPECT_EQ(trace["otherData"]["shapes"].size(), 1u);
}

TEST(ChromeTraceTest, ALongNameIsWholeInTheArgumentsOnly) {
  Capture capture = make_example_capture();
  capture.kernels[0].name = capture.kernels[0].short_name = std::string(5'000, 'x');

  const json trace = render_json(capture);

  const std::vector<json> found = find_events(trace, "X", std::string(200, 'x'));
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0]["args"]["kernel"], std::string(5'000, 'x'));
}

TEST(ChromeTraceTest, AnEmptyCaptureIsATrace) {
  EXPECT_EQ(render_json(Capture{})["traceEvents"], json::array());
}

}  // namespace
}  // namespace gpuperf
