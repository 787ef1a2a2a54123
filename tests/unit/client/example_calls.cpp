#include "example_calls.h"
#include "tests/unit/client/example_calls.h"

namespace gpuperf::client {
namespace {

constexpr uint64_t kStartMonoNs = 5'250'000'000;

v1::SlowCall make_call(uint64_t id, const char* category, const char* function,
                       uint64_t duration_ns) {
  v1::SlowCall call;
  call.set_id(id);
  call.set_category(category);
  call.set_function(function);
  call.set_pid(70);
  call.set_tid(73);
  call.set_comm("python3");
  call.set_start_unix_ns(kStartNs);
  call.set_start_mono_ns(kStartMonoNs);
  call.set_duration_ns(duration_ns);
  call.set_threshold_ns(100'000'000);
  call.set_reason("absolute");
  auto* argument = call.add_arguments();
  argument->set_name("stream");
  argument->set_value("0x7f10");
  add_frame(call.mutable_user_stack(), "train_step", "/opt/train/train", 0x34);
  return call;
}

void add_blocked(v1::TimeSplit& split, const char* kind, uint64_t total_ns) {
  auto* row = split.add_blocked();
  row->set_kind(kind);
  row->set_total_ns(total_ns);
  split.set_blocked_ns(split.blocked_ns() + total_ns);
}

}  // namespace

void add_frame(google::protobuf::RepeatedPtrField<v1::StackFrame>* stack, const char* symbol,
               const char* module, uint64_t offset_bytes) {
  v1::StackFrame& frame = *stack->Add();
  frame.set_symbol(symbol);
  frame.set_module(module);
  frame.set_offset_bytes(offset_bytes);
}

v1::SlowCall make_futex_call() {
  v1::SlowCall call = make_call(12, "cuda", "cudaStreamSynchronize", 412'000'000);
  call.set_return_value("cudaSuccess");
  call.set_explanation(
      "Waited 398 ms for a lock or condition that thread 71 (loader) of process 70 released. Look "
      "at what that thread did meanwhile.");
  v1::TimeSplit& split = *call.mutable_time_split();
  split.set_on_cpu_user_ns(9'100'000);
  split.set_runnable_ns(4'700'000);
  add_blocked(split, "futex", 398'200'000);
  split.set_blocked_on("futex");
  split.set_cpu_samples(3);
  split.set_preemptions(2);
  split.set_migrations(1);
  v1::Wait& wait = *split.add_waits();
  wait.set_start_mono_ns(kStartMonoNs + 8'000'000);
  wait.set_duration_ns(398'200'000);
  wait.set_kind("futex");
  wait.set_syscall("futex");
  add_frame(wait.mutable_kernel_stack(), "futex_wait_queue", "[kernel]", 0x60);
  add_frame(wait.mutable_kernel_stack(), "futex_wait", "[kernel]", 0x171);
  v1::Waker& waker = *wait.mutable_waker();
  waker.set_pid(70);
  waker.set_tid(71);
  waker.set_comm("loader");
  add_frame(waker.mutable_stack(), "pthread_cond_signal", "/usr/lib/libc.so.6", 0x17);
  add_frame(waker.mutable_stack(), "load_batch", "/opt/train/train", 0x9c);
  *split.mutable_waker() = waker;
  auto* child = call.add_children();
  child->set_category("cublas");
  child->set_function("cublasGemmEx");
  child->set_calls(3);
  child->set_total_ns(1'200'000);
  call.add_outer("forward");
  call.add_outer("cudnnConvolutionForward");
  return call;
}

v1::SlowCall make_in_flight_call() {
  v1::SlowCall call = make_call(13, "nccl", "ncclAllReduce", 31'200'000'000);
  call.set_in_flight(true);
  call.set_state("blocked");
  call.set_explanation("Has waited 31.2 s for the GPU driver and still does.");
  call.clear_user_stack();
  v1::TimeSplit& split = *call.mutable_time_split();
  split.set_on_cpu_user_ns(1'000'000);
  add_blocked(split, "gpu", 31'199'000'000);
  split.set_blocked_on("gpu");
  v1::Wait& wait = *split.add_waits();
  wait.set_start_mono_ns(kStartMonoNs + 1'000'000);
  wait.set_duration_ns(31'199'000'000);
  wait.set_kind("gpu");
  wait.set_syscall("ioctl");
  wait.set_file_kind("device");
  wait.set_file("nvidia0");
  add_frame(wait.mutable_kernel_stack(), "nvidia_ioctl", "nvidia", 0x5a3);
  add_frame(wait.mutable_kernel_stack(), "__x64_sys_ioctl", "[kernel]", 0x94);
  return call;
}

}  // namespace gpuperf::client
