#include "daemon/view/diff.h"

#include "tests/unit/matchers.h"
#include "tests/unit/view/capture_builder.h"
#include "tests/workloads/synthetic_capture.h"

namespace gpuperf {
namespace {

using Builder = testing::CaptureBuilder;

// A program of three layers, all through the same functions of a library. `mlp_ns`: of each of the
// two kernels of the second layer.
Capture make_program(uint64_t mlp_ns, uint64_t attention_ns = 30'000) {
  Builder builder;
  const uint32_t api = builder.add_function("cudaLaunchKernel");
  const uint32_t gemm = builder.add_kernel("gemm");
  const uint32_t gelu = builder.add_kernel("gelu");
  const auto add_layer = [&](const std::string& file, uint32_t kernel, uint64_t duration_ns) {
    const uint32_t stack = builder.add_stack(
        {Builder::native("main"), Builder::python("train", "/app/train.py"),
         Builder::python("forward", "/app/" + file),
         Builder::python("linear", "/lib/functional.py"), Builder::native("at::native::addmm"),
         Builder::native("cublasGemmEx", "libcublas.so.12")});
    builder.add_kernel_work(stack, api, kernel, duration_ns);
  };
  add_layer("attention.py", gemm, attention_ns);
  add_layer("mlp.py", gemm, mlp_ns);
  add_layer("mlp.py", gelu, mlp_ns);
  add_layer("head.py", gemm, 50'000);
  return builder.made;
}

TEST(DiffTest, NamesTheLayerThatBecameSlowerFirst) {
  const std::vector<DiffRow> rows =
      diff_captures(make_program(10'000), make_program(30'000), {.by = DiffBy::kFrame});

  ASSERT_GE(rows.size(), 7u);
  EXPECT_EQ(rows[0],
            (DiffRow{.name = "forward (mlp.py)",
                     .path = "main;train (train.py);forward (mlp.py);linear (functional.py);"
                             "at::native::addmm;cublasGemmEx;cudaLaunchKernel;[GPU_Kernel]gelu",
                     .before_ns = 20'000,
                     .after_ns = 60'000,
                     .delta_ns = 40'000,
                     .explained_ns = 40'000,
                     .before_count = 2,
                     .after_count = 2}));
  for (size_t row = 1; row < rows.size(); ++row)
    EXPECT_EQ(rows[row].explained_ns, 0) << rows[row].name;
}

TEST(DiffTest, ExplainsEachOfSeveralChanges) {
  const std::vector<DiffRow> rows =
      diff_captures(make_program(10'000, 30'000), make_program(30'000, 5'000),
                    {.by = DiffBy::kFrame, .limit = 2});

  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].name, "forward (mlp.py)");
  EXPECT_EQ(rows[1].name, "forward (attention.py)");
  EXPECT_EQ(rows[1].explained_ns, -25'000);
}

TEST(DiffTest, PrefersAPythonFunctionToTheMachineCodeInIt) {
  const auto make = [](bool is_slow) {
    Builder builder;
    const uint32_t api = builder.add_function("cudaLaunchKernel");
    const uint32_t kernel = builder.add_kernel("k");
    const uint32_t usual = builder.add_stack(
        {Builder::native("main"), Builder::python("layer"), Builder::native("at::add")});
    const uint32_t added = builder.add_stack(
        {Builder::native("main"), Builder::python("layer"), Builder::native("at::sort")});
    builder.add_kernel_work(usual, api, kernel, 10'000);
    if (is_slow) builder.add_kernel_work(added, api, kernel, 30'000);
    return builder.made;
  };

  const std::vector<DiffRow> rows = diff_captures(make(false), make(true), {.by = DiffBy::kFrame});

  EXPECT_EQ(rows[0].name, "layer (model.py)");
}

TEST(DiffTest, NamesTheLayerInALargeProgram) {
  testing::SyntheticCapture options = {.stacks = 64, .work = 6'400, .deepest = 30};
  const Capture before = make_synthetic_capture(options);
  options.is_slower = true;
  const Capture after = make_synthetic_capture(options);

  const std::vector<DiffRow> rows = diff_captures(before, after, {.by = DiffBy::kFrame});

  EXPECT_EQ(rows[0].name, "forward (layer_11.py)");
  EXPECT_GT(rows[0].explained_ns, 0);
}

TEST(DiffTest, FallsBackToWhatIsKnownWithoutStacks) {
  const auto make = [](uint64_t duration_ns) {
    Builder builder;
    const uint32_t kernel = builder.add_kernel("k");
    builder.made.work = {{.duration_ns = duration_ns, .kernel = kernel}};
    return builder.made;
  };

  const std::vector<DiffRow> rows = diff_captures(make(1'000), make(3'000), {.by = DiffBy::kFrame});

  EXPECT_EQ(rows[0].name, "[GPU_Kernel]k");
}

TEST(DiffTest, ListsPathsAndKernelsByChange) {
  const Capture before = make_program(10'000);
  const Capture after = make_program(30'000, 29'000);

  const std::vector<DiffRow> paths = diff_captures(before, after, {.by = DiffBy::kPath});
  ASSERT_EQ(paths.size(), 4u);
  EXPECT_EQ(paths[0].delta_ns, 20'000);
  EXPECT_EQ(paths[1].delta_ns, 20'000);
  EXPECT_EQ(paths[2],
            (DiffRow{.name = "main;train (train.py);forward (attention.py);linear (functional.py);"
                             "at::native::addmm;cublasGemmEx;cudaLaunchKernel;[GPU_Kernel]gemm",
                     .before_ns = 30'000,
                     .after_ns = 29'000,
                     .delta_ns = -1'000,
                     .explained_ns = -1'000,
                     .before_count = 1,
                     .after_count = 1}));
  EXPECT_EQ(paths[3].delta_ns, 0);

  const std::vector<DiffRow> kernels = diff_captures(before, after, {.by = DiffBy::kKernel});
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_EQ(kernels[0].name, "[GPU_Kernel]gelu");
  EXPECT_EQ(kernels[0].delta_ns, 20'000);
  EXPECT_EQ(kernels[1].name, "[GPU_Kernel]gemm");
  EXPECT_EQ(kernels[1].delta_ns, 19'000);
  EXPECT_THAT(kernels[1].path, HasSubstr("mlp.py"));
  EXPECT_EQ(kernels[1].after_count, 3u);
}

TEST(DiffTest, ComparesWindowsOfDifferentLengths) {
  const Capture before = make_program(10'000);
  Capture after = make_program(20'000, 60'000);
  after.duration_ns = 2 * before.duration_ns;

  const auto first_of = [&](DiffScale scale) {
    return diff_captures(before, after, {.by = DiffBy::kKernel, .scale = scale});
  };
  EXPECT_EQ(first_of(DiffScale::kPerSecond)[0].delta_ns, -25'000);  // the head's
  EXPECT_EQ(first_of(DiffScale::kAbsolute)[0].delta_ns, 40'000);
  EXPECT_EQ(first_of(DiffScale::kShare)[0].before_ns, 900'000'000u);
}

TEST(DiffTest, SaysNothingOfNothing) {
  EXPECT_EQ(diff_captures({}, {}, {.by = DiffBy::kFrame}), std::vector<DiffRow>());
  const Capture same = make_program(10'000);
  for (const DiffRow& row : diff_captures(same, same, {.by = DiffBy::kFrame})) {
    EXPECT_EQ(row.explained_ns, 0);
  }
}

TEST(DiffTest, FlameGraphTellsWhatIsGone) {
  Capture after = make_program(10'000);
  std::erase_if(after.work, [](const CaptureWork& work) { return work.kernel == 1; });

  const std::string svg = render_diff_flamegraph(make_program(10'000), after, {});

  EXPECT_THAT(svg, HasSubstr("1 path is gone, 10.000 µs per second; “Widths: before” shows it. "
                             "Largest: [GPU_Kernel]gelu (10.000 µs)"));
  EXPECT_THAT(render_diff_flamegraph(after, after, {}), Not(HasSubstr("is gone")));
}

}  // namespace
}  // namespace gpuperf
