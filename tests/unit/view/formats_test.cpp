#include "daemon/view/formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/view/folded.h"
#include "tests/unit/view/capture_builder.h"

namespace gpuperf {
namespace {

TEST(FormatsTest, ListsEveryFormat) {
  std::vector<std::string> names;
  for (const ViewFormat& format : list_view_formats()) {
    names.push_back(std::string(format.name) + " " + std::string(format.suffix));
    EXPECT_FALSE(format.summary.empty());
    EXPECT_FALSE(format.media_type.empty());
  }

  EXPECT_THAT(names,
              ::testing::ElementsAre("folded folded", "extended-folded txt", "flamegraph svg",
                                     "idle-folded folded", "idle-flamegraph svg", "report html",
                                     "chrome json", "perfetto pftrace", "pprof pb.gz"));
}

TEST(FormatsTest, RendersByName) {
  testing::CaptureBuilder builder;
  builder.made.work = {{.duration_ns = 5, .kind = WorkKind::kSet}};

  EXPECT_EQ(render_view(builder.made, "folded", {}).value(), render_folded(builder.made, {}));
}

TEST(FormatsTest, NamesTheFormatsThereAre) {
  const Result<std::string> answer = render_view({}, "png", {});

  EXPECT_EQ(answer.status(),
            absl::InvalidArgumentError(
                "view: unknown format 'png'; formats: folded, extended-folded, "
                "flamegraph, idle-folded, idle-flamegraph, report, chrome, perfetto, "
                "pprof"));
}

// A damaged file may name anything: nothing is read past the end of a table.
TEST(FormatsTest, RendersCapturesThatAreNotWhole) {
  Capture damaged;
  damaged.start_mono_ns = 1'000;
  damaged.duration_ns = 1'000;
  damaged.work = {
      {.start_mono_ns = 1'100, .duration_ns = 10, .kernel = 5, .stream = 6, .launch = 7},
      {.start_mono_ns = 1'200,
       .duration_ns = 10,
       .kind = WorkKind::kGraph,
       .launch = 0,
       .graph_id = 3}};
  damaged.launches = {{.start_mono_ns = 1'050,
                       .duration_ns = 20,
                       .thread = 8,
                       .function = 9,
                       .stack = 10,
                       .operation = 11}};
  damaged.calls = {
      {.start_mono_ns = 1'000, .duration_ns = 5, .thread = 12, .function = 13, .stack = 14}};
  damaged.waits = {
      {.start_mono_ns = 1'000, .duration_ns = 5, .thread = 15, .stream = 16, .type = 99}};
  damaged.stacks = {{.frames = {17}}};
  damaged.streams = {{.process = 18, .device = 19}};
  damaged.threads = {{.process = 20}};
  damaged.operations = {{.parent = 21, .function = 22}};

  for (const ViewFormat& format : list_view_formats()) {
    for (const ViewWeight weight :
         {ViewWeight::kGpuTime, ViewWeight::kCpuTime, ViewWeight::kOffCpuTime}) {
      const ViewOptions options = {.weight = weight,
                                   .path = {.with_process = true, .with_thread = true},
                                   .by_capture_site = true};
      EXPECT_TRUE(render_view(damaged, format.name, options).ok()) << format.name;
    }
  }
}

}  // namespace
}  // namespace gpuperf
