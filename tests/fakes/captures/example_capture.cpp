#include "tests/fakes/captures/example_capture.h"

#include "injector/session_abi.h"

namespace gpuperf::testing {
namespace {

constexpr uint64_t kWindowNs = 5'000'000'000'123;  // on the monotonic clock
constexpr uint64_t kUs = 1'000;

uint64_t at(uint64_t us) { return kWindowNs + us * kUs; }

// Indexes of the rows below.
enum Process : uint32_t { kTrain, kHostile };
enum Thread : uint32_t { kMain, kWorker, kHostileMain };
enum Function : uint32_t {
  kLinear,
  kGemm,
  kLaunchKernel,
  kMemcpyAsync,
  kGraphLaunch,
  kSynchronize,
  kMemsetAsync
};
enum Kernel : uint32_t { kGemmKernel, kReluKernel, kHostileKernel };
enum Stream : uint32_t { kStream7, kStream13, kStreamOnGpu1, kHostileStream };
enum Operation : uint32_t { kLinearOperation, kGemmOperation };
enum Stack : uint32_t { kForward, kCutStack };

void add_who(Capture& capture) {
  capture.processes = {{{4711, 1}, {"python3", "0123456789ab", "train-0", "ml", "", ""}, true},
                       {{4712, 2},
                        {"tr\xff"
                         "ain\";\n<b>",
                         "", "", "", "", ""},
                        true}};
  capture.threads = {{kTrain, 4711, "python3"}, {kTrain, 4720, "worker"}, {kHostile, 4712, ""}};
  capture.functions = {{"libtorch", "linear"},       {"cublas", "cublasGemmEx"},
                       {"cuda", "cudaLaunchKernel"}, {"cuda", "cudaMemcpyAsync"},
                       {"cuda", "cudaGraphLaunch"},  {"cuda", "cudaStreamSynchronize"},
                       {"cuda", "cudaMemsetAsync"}};
  capture.kernels = {{"void gemm<float, 128>(float const*, float*)", "gemm<float, 128>"},
                     {"void relu<4>(float*)", "relu<4>"},
                     {"evil\"\\\t\xc3(\x01</script>;name", "evil\"\\\t\xc3(\x01</script>;name"}};
  capture.devices = {{{1, 2, 3}, 0}, {{4, 5, 6}, 1}};
  capture.streams = {{kTrain, 0, 1, 7}, {kTrain, 0, 1, 13}, {kTrain, 1, 2, 7}, {kHostile, 0, 1, 7}};
  capture.shapes = {{{64, 2, 1}, {256, 1, 1}, 1024, 32}};
}

void add_stacks(Capture& capture) {
  capture.frames = {
      {"main", "/usr/bin/python3", 0x1c, 0x401000, "", 0, false, StackFrameKind::kNative},
      {"train", "", 0, 0, "/app/train.py", 42, false, StackFrameKind::kPython},
      {"forward", "", 0, 0, "/app/model.py", 7, false, StackFrameKind::kPython},
      {"", "/usr/lib/libunknown.so", 0x1c0, 0x7f0000001c0, "", 0, false, StackFrameKind::kNative}};
  capture.stacks = {{{0, 1, 2}, StackEnd::kComplete}, {{3}, StackEnd::kCut}};
  capture.operations = {{kNoIndex, kLinear, {}}, {kLinearOperation, kGemm, {512, 1024, 64, 1}}};
}

void add_host(Capture& capture) {
  capture.calls = {{at(10), 100 * kUs, 0, kMain, kLinear, kForward, 0},
                   {at(20), 80 * kUs, 5 * kUs, kMain, kGemm, kNoIndex, 1},
                   {at(300), 200 * kUs, 190 * kUs, kMain, kSynchronize, kNoIndex, 0}};
  capture.launches = {
      // Before the window, its work within.
      {kWindowNs - 50 * kUs, 10 * kUs, kWorker, kMemcpyAsync, kNoIndex, kNoIndex, 1,
       LaunchMatch::kExact},
      // Inside the GEMM.
      {at(30), 10 * kUs, kMain, kLaunchKernel, kForward, kGemmOperation, 2, LaunchMatch::kExact},
      // It seems to end after linear, by 10 us.
      {at(105), 15 * kUs, kMain, kLaunchKernel, kForward, kLinearOperation, 3, LaunchMatch::kExact},
      {at(130), 5 * kUs, kMain, kGraphLaunch, kCutStack, kNoIndex, 4, LaunchMatch::kAmbiguous},
      {at(140), 5 * kUs, kWorker, kMemsetAsync, kNoIndex, kNoIndex, 5, LaunchMatch::kNoHit},
      {at(150), 0, kHostileMain, kLaunchKernel, kCutStack, kNoIndex, 0, LaunchMatch::kNoCall},
      {at(160), 5 * kUs, kHostileMain, kLaunchKernel, kNoIndex, kNoIndex, 6, LaunchMatch::kExact},
      {at(170), 5 * kUs, kMain, kGraphLaunch, kForward, kNoIndex, 7, LaunchMatch::kExact}};
  // Long before.
  capture.capture_sites = {{1 * kUs, 0, kMain, kLaunchKernel, kForward, kGemmOperation}};
  capture.waits = {{at(310), 180 * kUs, kMain, kStream7, GPUPERF_SYNC_STREAM},
                   {at(320), 10 * kUs, kNoIndex, kHostileStream, GPUPERF_SYNC_CONTEXT}};
  capture.gaps = {{at(600), 100 * kUs, kTrain, "records_lost", 17},
                  {at(650), 10 * kUs, kNoIndex, "other_client", 0}};
}

void add_work(Capture& capture) {
  const auto kernel = [&](uint64_t start_ns, uint64_t us, uint32_t name, uint32_t stream,
                          uint32_t launch) {
    return CaptureWork{.start_mono_ns = start_ns,
                       .duration_ns = us * kUs,
                       .kernel = name,
                       .stream = stream,
                       .launch = launch,
                       .shape = 0};
  };
  CaptureWork copy{.start_mono_ns = at(5),
                   .duration_ns = 20 * kUs,
                   .bytes = 1'000'000,
                   .kind = WorkKind::kCopy,
                   .direction = GPUPERF_MEMCPY_HOST_TO_DEVICE,
                   .stream = kStream13,
                   .launch = 0};
  CaptureWork set{.start_mono_ns = at(150),
                  .duration_ns = 2 * kUs,
                  .bytes = 4'096,
                  .kind = WorkKind::kSet,
                  .stream = kStreamOnGpu1,
                  .launch = 4};
  CaptureWork first_node = kernel(at(180), 30, kGemmKernel, kStream7, 3);
  first_node.graph_id = 9;
  first_node.node_id = 1;
  first_node.capture_site = 0;
  CaptureWork second_node = kernel(at(200), 30, kReluKernel, kStream7, 3);  // overlaps the first
  second_node.graph_id = 9;
  second_node.node_id = 2;
  CaptureWork graph{.start_mono_ns = at(250),
                    .duration_ns = 40 * kUs,
                    .kind = WorkKind::kGraph,
                    .stream = kStream13,
                    .launch = 7,
                    .graph_id = 10};
  capture.work = {copy,
                  kernel(at(40), 60, kGemmKernel, kStream7, 1),
                  kernel(at(120), 20, kReluKernel, kStream7, 2),
                  set,
                  kernel(at(159), 10, kHostileKernel, kHostileStream, 6),  // before its call
                  first_node,
                  second_node,
                  graph,
                  kernel(at(700), 50, kReluKernel, kStream7, kNoIndex)};
  capture.matches.launches = {5, 1, 1, 1};
  capture.matches.work = 9;
  capture.matches.work_matched = 5;
  capture.matches.work_no_call = 1;
}

}  // namespace

Capture make_example_capture() {
  Capture capture;
  capture.id = 3;
  capture.name = "exam\"ple";
  capture.trigger = "request";
  capture.host = "node-1";
  capture.version = "0.1.0";
  capture.start_unix_ns = 1'700'000'000'000'000'000;
  capture.start_mono_ns = kWindowNs;
  capture.duration_ns = 1'000 * kUs;
  add_who(capture);
  add_stacks(capture);
  add_host(capture);
  add_work(capture);
  return capture;
}

}  // namespace gpuperf::testing
