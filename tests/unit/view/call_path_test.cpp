#include "daemon/view/call_path.h"

#include "tests/unit/matchers.h"
#include "tests/unit/view/capture_builder.h"

namespace gpuperf {
namespace {

using Builder = testing::CaptureBuilder;

class CallPathTest : public ::testing::Test {
 protected:
  std::vector<std::string> path_of(CaptureLaunch launch, const PathOptions& options = {}) {
    return make_path(builder_.made, launch, options);
  }

  Builder builder_;
  const uint32_t launch_ = builder_.add_function("cudaLaunchKernel");
};

TEST_F(CallPathTest, LeavesOutWhatTheRuntimeCallsInnermost) {
  const uint32_t stack = builder_.add_stack(
      {Builder::native("main"), Builder::native("cudaGetDevice", "/cuda/libcudart.so.12"),
       Builder::native("callback"),
       Builder::native("cudaLaunchKernel", "/cuda/libcudart-1a2b.so.12"),
       Builder::native("", "/usr/lib/libcuda.so.1")});

  EXPECT_THAT(path_of({.function = launch_, .stack = stack}),
              ElementsAre("main", "cudaGetDevice", "callback", "cudaLaunchKernel"));
}

TEST_F(CallPathTest, NamesFramesWithAndWithoutLines) {
  StackFrame unnamed = {.module = "/usr/lib/libfoo.so", .offset_bytes = 0x1c0};
  StackFrame nowhere = {.address = 0x7f0012340000};
  const uint32_t stack =
      builder_.add_stack({Builder::native("main"), Builder::python("forward"), unnamed, nowhere});

  EXPECT_THAT(path_of({.function = launch_, .stack = stack}),
              ElementsAre("main", "forward (model.py)", "[libfoo.so+0x1c0]", "[0x7f0012340000]",
                          "cudaLaunchKernel"));
  EXPECT_THAT(path_of({.function = launch_, .stack = stack}, {.with_lines = true}),
              ElementsAre("main (train.cpp:7)", "forward (model.py:42)", "[libfoo.so+0x1c0]",
                          "[0x7f0012340000]", "cudaLaunchKernel"));
}

TEST_F(CallPathTest, FoldsTheInterpreterBetweenFramesOfPython) {
  const StackFrame unnamed = {.module = "/usr/bin/python3.12", .offset_bytes = 0x1c0};
  const auto call = [] {
    return Builder::native("PyObject_Call", "/usr/lib/libpython3.12.so.1.0");
  };
  const uint32_t stack =
      builder_.add_stack({Builder::native("main"), unnamed, Builder::python("forward"), call(),
                          Builder::native("at::linear", "libtorch_cpu.so")});
  const uint32_t without_python = builder_.add_stack({Builder::native("main"), call()});

  EXPECT_THAT(path_of({.function = launch_, .stack = stack}),
              ElementsAre("main", "forward (model.py)", "at::linear", "cudaLaunchKernel"));
  EXPECT_THAT(path_of({.function = launch_, .stack = stack}, {.with_interpreter = true}),
              ElementsAre("main", "[python3.12+0x1c0]", "forward (model.py)", "PyObject_Call",
                          "at::linear", "cudaLaunchKernel"));
  EXPECT_THAT(path_of({.function = launch_, .stack = without_python}),
              ElementsAre("main", "PyObject_Call", "cudaLaunchKernel"));
}

TEST_F(CallPathTest, SaysWhereAStackIsNotWhole) {
  const uint32_t stack = builder_.add_stack({Builder::native("step")}, StackEnd::kCut);

  EXPECT_THAT(path_of({.function = launch_, .stack = stack}),
              ElementsAre("[cut]", "step", "cudaLaunchKernel"));
  EXPECT_THAT(path_of({.function = launch_}), ElementsAre("[no stack]", "cudaLaunchKernel"));
  EXPECT_THAT(path_of({}), ElementsAre("[no stack]", "[unknown call]"));
}

TEST_F(CallPathTest, BeginsWithProcessAndThreadIfAsked) {
  EXPECT_THAT(
      path_of({.thread = 0, .function = launch_}, {.with_process = true, .with_thread = true}),
      ElementsAre("train (42)", "main loop (43)", "[no stack]", "cudaLaunchKernel"));
}

TEST_F(CallPathTest, PutsShapesAtTheFrameOfTheirCall) {
  const uint32_t linear = builder_.add_function("linear", "libtorch");
  const uint32_t gemm = builder_.add_function("cublasSgemm", "cublas");
  const uint32_t outer = builder_.add_operation(kNoIndex, linear);
  const uint32_t inner = builder_.add_operation(outer, gemm, {1, 1024, 3072, 8});
  const uint32_t stack = builder_.add_stack(
      {Builder::native("main"), Builder::native("at::_ops::linear::call(at::Tensor const&)"),
       Builder::native("cublasSgemm_v2"), Builder::native("helper")});

  EXPECT_THAT(
      path_of({.function = launch_, .stack = stack, .operation = inner}),
      ElementsAre("main", "at::_ops::linear::call(at::Tensor const&)",
                  "cublasSgemm_v2 m=1 n=1024 k=3072 batch=8", "helper", "cudaLaunchKernel"));
}

TEST_F(CallPathTest, ShowsCallsThatTheStackDoesNot) {
  const uint32_t step = builder_.add_function("train_step", "custom");
  const uint32_t gemm = builder_.add_function("cublasGemmEx", "cublas");
  const uint32_t outer = builder_.add_operation(kNoIndex, step);
  const uint32_t middle = builder_.add_operation(outer, gemm, {1, 2, 3, 1});
  const uint32_t inner = builder_.add_operation(middle, launch_);  // the launch call itself
  const uint32_t stack =
      builder_.add_stack({Builder::native("main"), Builder::native("my_cublasGemmEx_wrapper")});

  EXPECT_THAT(path_of({.function = launch_, .stack = stack, .operation = inner}),
              ElementsAre("main", "my_cublasGemmEx_wrapper", "train_step",
                          "cublasGemmEx m=1 n=2 k=3", "cudaLaunchKernel"));
  EXPECT_THAT(
      path_of({.function = launch_, .operation = inner}),
      ElementsAre("[no stack]", "train_step", "cublasGemmEx m=1 n=2 k=3", "cudaLaunchKernel"));
  EXPECT_THAT(path_of({.function = launch_, .stack = stack, .operation = inner},
                      {.with_operations = false}),
              ElementsAre("main", "my_cublasGemmEx_wrapper", "cudaLaunchKernel"));
}

TEST_F(CallPathTest, DoesNotShowALinkedInLaunchCallTwice) {
  const uint32_t stack =
      builder_.add_stack({Builder::native("main"), Builder::native("cudaLaunchKernel")});

  EXPECT_THAT(path_of({.function = launch_, .stack = stack}),
              ElementsAre("main", "cudaLaunchKernel"));
}

TEST_F(CallPathTest, NamesHoldNeitherSeparatorsNorControls) {
  const uint32_t stack = builder_.add_stack(
      {Builder::native("a;b\nc\rd\te\x7f"), Builder::native(std::string("z\0z", 3)),
       Builder::native("bad \xff utf-8"), Builder::python("x;y", "/a/b;c.py")});

  EXPECT_THAT(path_of({.function = launch_, .stack = stack}),
              ElementsAre("a:b c d e ", "z\xef\xbf\xbdz", "bad \xef\xbf\xbd utf-8", "x:y (b:c.py)",
                          "cudaLaunchKernel"));
}

TEST_F(CallPathTest, EndsDamagedChainsOfOperations) {
  const uint32_t gemm = builder_.add_function("cublasGemmEx", "cublas");
  builder_.made.operations = {{.parent = 1, .function = gemm}, {.parent = 1, .function = 99}};

  EXPECT_THAT(path_of({.function = launch_, .operation = 1}),
              ElementsAre("[no stack]", "cudaLaunchKernel"));
  EXPECT_THAT(path_of({.function = 77, .stack = 55, .operation = 44}),
              ElementsAre("[no stack]", "[unknown call]"));
}

TEST_F(CallPathTest, NamesGpuWork) {
  Capture& capture = builder_.made;
  const uint32_t kernel = builder_.add_kernel("void gemm<float>(float*)");

  EXPECT_EQ(make_gpu_frame(capture, {.kernel = kernel, .stream = 0}),
            "[GPU_Kernel]void gemm<float>(float*)");
  EXPECT_EQ(make_gpu_frame(capture, {}), "[GPU_Kernel]unknown");
  EXPECT_EQ(make_gpu_frame(
                capture,
                {.kind = WorkKind::kCopy, .direction = GPUPERF_MEMCPY_HOST_TO_DEVICE, .stream = 0}),
            "[GPU_Memcpy]host_to_device");
  EXPECT_EQ(make_gpu_frame(capture, {.kind = WorkKind::kSet}), "[GPU_Memset]set");
  EXPECT_EQ(make_gpu_frame(capture, {.kind = WorkKind::kGraph, .graph_id = 7}), "[GPU_Graph]7");
}

TEST_F(CallPathTest, NumbersDevicesWhereThereAreSeveral) {
  Capture& capture = builder_.made;
  capture.devices = {{.number = 3}, {.number = 1}};
  capture.streams = {{.device = 0}, {.device = 1}, {}};

  EXPECT_EQ(make_gpu_frame(capture, {.kind = WorkKind::kSet, .stream = 0}), "[GPU3_Memset]set");
  EXPECT_EQ(make_gpu_frame(capture, {.kind = WorkKind::kSet, .stream = 1}), "[GPU1_Memset]set");
  EXPECT_EQ(make_gpu_frame(capture, {.kind = WorkKind::kSet, .stream = 2}), "[GPU?_Memset]set");
  capture.devices[1].number = 3;  // as two processes count that see one device each
  EXPECT_EQ(make_gpu_frame(capture, {.kind = WorkKind::kSet, .stream = 1}), "[GPU1_Memset]set");
}

}  // namespace
}  // namespace gpuperf
