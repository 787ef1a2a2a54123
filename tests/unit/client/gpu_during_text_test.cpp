#include "client/gpu_during_text.h"

#include <gtest/gtest.h>

namespace gpuperf::client {
namespace {

constexpr uint64_t kMs = 1'000'000;

void set_launcher(v1::GpuLauncher& launcher) {
  launcher.set_function("cudaLaunchKernel");
  launcher.set_operation("cublasGemmEx");
  launcher.set_frame("forward (attention.py:88)");
  launcher.set_tid(71);
  launcher.set_comm("python");
}

// A wait of 812 ms.
v1::SlowCall make_explained_call() {
  v1::SlowCall call;
  call.set_duration_ns(812 * kMs);
  v1::GpuDuringCall& gpu = *call.mutable_gpu();
  gpu.set_complete(true);
  gpu.set_busy_ns(640 * kMs);
  gpu.set_idle_ns(172 * kMs);
  gpu.set_kernel_ns(640 * kMs);
  v1::GpuKernelTime& kernel = *gpu.add_kernels();
  kernel.set_kernel("flash_fwd<64>(float*)");
  kernel.set_short_name("flash_fwd");
  kernel.set_total_ns(620 * kMs);
  kernel.set_count(3);
  kernel.set_longest_ns(300 * kMs);
  set_launcher(*kernel.mutable_launcher());
  kernel.set_launcher_ns(600 * kMs);
  return call;
}

TEST(GpuDuringTextTest, SaysNothingOfCallsWithoutASession) {
  EXPECT_EQ(render_gpu(v1::SlowCall(), {}), "");
}

TEST(GpuDuringTextTest, ShowsTheKernelsAndWhoLaunchedThem) {
  EXPECT_EQ(
      render_gpu(make_explained_call(), {}),
      "What the GPU did meanwhile\n"
      "  busy 640 ms (78.8 %), idle 172 ms (21.2 %), kernels 640 ms (78.8 %)\n"
      "  620 ms flash_fwd, 3 times, longest 300 ms\n"
      "    launched by thread 71 (python) at forward (attention.py:88), in cublasGemmEx, with "
      "cudaLaunchKernel (600 ms of it)\n");
}

TEST(GpuDuringTextTest, SaysThatHardwareCountersAreOfTheWholeGpuAndOfWhichTime) {
  v1::SlowCall call = make_explained_call();
  v1::GpuCounters& counters = *call.mutable_gpu()->add_devices()->mutable_counters();
  counters.set_tensor_active_ratio(0.031);
  counters.set_dram_active_ratio(0.71);
  counters.set_pcie_receive_bytes_per_second(uint64_t{3} << 30);
  counters.set_window_ns(1'000 * kMs);

  const std::string text = render_gpu(call, {});

  EXPECT_NE(text.find("\n  GPU 0 as a whole, all processes, average of 1.00 s around the call: "
                      "tensor pipe 3 %, DRAM 71 %, PCIe received 3.00 GiB/s\n"),
            std::string::npos)
      << text;
}

TEST(GpuDuringTextTest, ShowsAllThatMayBeKnown) {
  v1::SlowCall call = make_explained_call();
  v1::GpuDuringCall& gpu = *call.mutable_gpu();
  gpu.clear_kernels();
  gpu.set_other_kernels(2);
  gpu.set_other_kernels_ns(20 * kMs);
  v1::GpuCopyTime& copy = *gpu.add_copies();
  copy.set_direction("host_to_device");
  copy.set_total_ns(12 * kMs);
  copy.set_count(1);
  copy.set_copied_bytes(4096);
  v1::GpuAwaitedWork& awaited = *gpu.mutable_awaited();
  awaited.set_name("gemm(int)");
  awaited.set_duration_ns(60 * kMs);
  awaited.set_queued_ns(1'140 * kMs);
  awaited.set_stream_wait_ns(1'100 * kMs);
  awaited.set_before_return_ns(20'000);
  set_launcher(*awaited.mutable_launcher());
  awaited.mutable_launcher()->set_calling_thread(true);
  gpu.mutable_own()->set_launches(2);
  gpu.mutable_own()->set_without_work(1);
  gpu.mutable_own()->set_run_ns(2 * kMs);
  gpu.mutable_own()->set_stream_wait_ns(70 * kMs);
  gpu.mutable_own()->set_device_wait_ns(10'000);
  for (uint32_t number = 0; number < 2; ++number) {
    v1::GpuDeviceTime& device = *gpu.add_devices();
    device.set_number(number);
    device.set_busy_ns(406 * kMs);
  }
  v1::GpuOtherProcess& other = *gpu.add_others();
  other.set_pid(90);
  other.set_comm("train");
  other.set_busy_ns(50 * kMs);
  gpu.set_others_ns(50 * kMs);
  gpu.add_missing("12 records lost about then (queue_full)");
  gpu.add_missing("one launch of 8 is recorded");

  EXPECT_EQ(
      render_gpu(call, {}),
      "What the GPU did meanwhile\n"
      "  busy 640 ms (78.8 %), idle 172 ms (21.2 %), kernels 640 ms (78.8 %)\n"
      "  20.0 ms in 2 further kernels\n"
      "  12.0 ms copy host_to_device, 1 time, 4.00 KiB\n"
      "  Last to end before the return (20.0 µs before): gemm(int), which ran 60.0 ms after 1.14 s "
      "in the queue, 1.10 s of it behind earlier work on its stream; launched by this thread at "
      "forward (attention.py:88), in cublasGemmEx, with cudaLaunchKernel\n"
      "  Launched in this call: 2 times, which ran 2.00 ms after waiting 70.0 ms for earlier work "
      "on the stream and 10.0 µs for the device; 1 had not run a second later\n"
      "  GPU 0: busy 406 ms (50.0 %)\n"
      "  GPU 1: busy 406 ms (50.0 %)\n"
      "  Busy for other processes: 50.0 ms: process 90 (train) 50.0 ms\n"
      "  May be more than that: 12 records lost about then (queue_full); one launch of 8 is "
      "recorded\n");
}

TEST(GpuDuringTextTest, SaysWhyNothingIsKnown) {
  v1::SlowCall call;
  call.mutable_gpu()->add_missing("the flight recorder is off (trace.recorder)");

  EXPECT_EQ(render_gpu(call, {}),
            "What the GPU did meanwhile\n"
            "  Not known: the flight recorder is off (trace.recorder)\n");
}

TEST(GpuDuringTextTest, EscapesWhatWorkloadsChose) {
  v1::SlowCall call = make_explained_call();
  v1::GpuKernelTime& kernel = *call.mutable_gpu()->mutable_kernels(0);
  kernel.set_short_name("a\x1b[2J");
  kernel.mutable_launcher()->set_frame("b\x1b[2J");

  EXPECT_EQ(render_gpu(call, {}).find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace gpuperf::client
