#include "daemon/view/flamegraph_svg.h"

#include <nlohmann/json.hpp>

#include "tests/unit/matchers.h"
#include "tests/unit/text.h"
#include "tests/unit/view/capture_builder.h"
#include "tests/workloads/synthetic_capture.h"

namespace gpuperf {
namespace {

using Builder = testing::CaptureBuilder;

Capture make_small() {
  Builder builder;
  const uint32_t api = builder.add_function("cudaLaunchKernel");
  const uint32_t stack = builder.add_stack({Builder::native("main"), Builder::python("step")});
  builder.add_kernel_work(stack, api, builder.add_kernel("gemm"), 3'000);
  builder.add_kernel_work(builder.add_stack({Builder::native("main")}), api, 0, 1'000);
  return builder.made;
}

nlohmann::json get_data(const std::string& svg) {
  const std::string begin = "drawFlameGraph(document.documentElement, ";
  const size_t at = svg.find(begin) + begin.size();
  return nlohmann::json::parse(svg.substr(at, svg.find(");\n]]>", at) - at));
}

TEST(FlamegraphSvgTest, HoldsTheTreeForItsScript) {
  const nlohmann::json data = get_data(render_flamegraph(make_small(), {}));

  EXPECT_EQ(data["names"],
            nlohmann::json({"main", "step (model.py)", "cudaLaunchKernel", "[GPU_Kernel]gemm"}));
  EXPECT_EQ(data["kinds"], "2134");
  // Depth, name, own time: the widest first.
  EXPECT_EQ(data["nodes"], nlohmann::json({0, 0, 0, 1, 0, 0,   2, 1, 0, 3, 2, 0, 4, 3, 3000,  //
                                           2, 2, 0, 3, 3, 1000}));
  EXPECT_EQ(data["is_diff"], false);
}

TEST(FlamegraphSvgTest, IsDrawnWithoutAScriptToo) {
  const std::string svg = render_flamegraph(make_small(), {.title = "A <title>"});

  EXPECT_THAT(svg, HasSubstr("<title>A &lt;title&gt;</title>"));
  EXPECT_THAT(svg, HasSubstr("<g class=\"k1\"><title>step (model.py): 3.000 µs</title>"
                             "<rect x=\"10.00\" y=\"140\" width=\"884.50\" height=\"18\"/>"
                             "<text x=\"14.00\" y=\"154\">step (model.py)</text></g>"));
}

TEST(FlamegraphSvgTest, NeedsNothingBesideIt) {
  std::string svg = render_flamegraph(make_small(), {});

  EXPECT_EQ(count(svg, "http"), 3u);  // names of namespaces: twice SVG's, once HTML's
  EXPECT_THAT(svg, Not(HasSubstr("href")));
  EXPECT_THAT(svg, Not(HasSubstr("url(")));
}

TEST(FlamegraphSvgTest, HostileNamesStayNames) {
  const Capture capture =
      testing::make_synthetic_capture({.stacks = 12, .work = 400, .is_hostile = true});

  const std::string svg = render_flamegraph(capture, {});

  EXPECT_EQ(count(svg, "<script"), 1u);
  EXPECT_EQ(count(svg, "</script"), 1u);
  EXPECT_EQ(count(svg, "]]>"), 1u);
  EXPECT_EQ(count(svg, "<img"), 0u);
  EXPECT_EQ(svg.find('\0'), std::string::npos);
  bool is_there = false;
  const nlohmann::json data = get_data(svg);
  for (const auto& name : data["names"]) {
    is_there |= name.get<std::string>().starts_with("</script><img src=x onerror=\"document.");
  }
  EXPECT_TRUE(is_there);
}

TEST(FlamegraphSvgTest, KeepsNarrowBoxesInItsDataAlone) {
  const Capture capture =
      testing::make_synthetic_capture({.stacks = 4'000, .work = 8'000, .deepest = 150});

  const std::string svg = render_flamegraph(capture, {});

  EXPECT_GT(get_data(svg)["nodes"].size() / 3, 20'000u);
  EXPECT_LT(count(svg, "<rect"), 4'010u);
}

TEST(FlamegraphSvgTest, IsADocumentWithoutAnythingToShow) {
  EXPECT_EQ(get_data(render_flamegraph({}, {}))["nodes"], nlohmann::json({0, 0, 0}));
}

}  // namespace
}  // namespace gpuperf
