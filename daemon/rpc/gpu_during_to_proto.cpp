// What the GPU did during a slow call, as a message of gpuperf.v1; see to_proto.h.

#include "daemon/model/display_text.h"
#include "daemon/rpc/gpu_counters_to_proto.h"
#include "daemon/rpc/gpu_to_proto.h"

namespace gpuperf {
namespace {

v1::GpuLauncher to_proto(const GpuLauncher& launcher) {
  v1::GpuLauncher message;
  message.set_function(to_valid_utf8(launcher.function));
  message.set_operation(to_valid_utf8(launcher.operation));
  message.set_frame(to_valid_utf8(launcher.frame));
  message.set_tid(launcher.tid);
  message.set_comm(to_valid_utf8(launcher.comm));
  message.set_calling_thread(launcher.is_calling_thread);
  message.set_start_mono_ns(launcher.start_mono_ns);
  return message;
}

v1::GpuKernelTime to_proto(const GpuKernelTime& row) {
  v1::GpuKernelTime message;
  message.set_kernel(to_valid_utf8(row.kernel));
  message.set_short_name(to_valid_utf8(row.short_name));
  message.set_total_ns(row.total_ns);
  message.set_count(row.count);
  message.set_longest_ns(row.longest_ns);
  *message.mutable_launcher() = to_proto(row.launcher);
  message.set_launcher_ns(row.launcher_ns);
  return message;
}

v1::GpuCopyTime to_proto(const GpuCopyTime& row) {
  v1::GpuCopyTime message;
  message.set_direction(row.direction);
  message.set_total_ns(row.total_ns);
  message.set_count(row.count);
  message.set_copied_bytes(row.bytes);
  return message;
}

v1::GpuDeviceTime to_proto(const GpuDeviceTime& row) {
  v1::GpuDeviceTime message;
  message.set_uuid(row.uuid);
  message.set_number(row.number);
  message.set_busy_ns(row.busy_ns);
  message.set_idle_ns(row.idle_ns);
  message.set_others_ns(row.others_ns);
  if (row.counters.end_mono_ns != 0) *message.mutable_counters() = to_proto(row.counters);
  return message;
}

v1::GpuOtherProcess to_proto(const GpuOtherProcess& row) {
  v1::GpuOtherProcess message;
  message.set_pid(row.pid);
  message.set_comm(to_valid_utf8(row.comm));
  message.set_busy_ns(row.busy_ns);
  return message;
}

v1::GpuOwnWork to_proto(const GpuOwnWork& own) {
  v1::GpuOwnWork message;
  message.set_launches(own.launches);
  message.set_without_work(own.without_work);
  message.set_run_ns(own.run_ns);
  message.set_stream_wait_ns(own.stream_wait_ns);
  message.set_device_wait_ns(own.device_wait_ns);
  return message;
}

v1::GpuAwaitedWork to_proto(const GpuAwaitedWork& work) {
  v1::GpuAwaitedWork message;
  message.set_name(to_valid_utf8(work.name));
  message.set_total_ns(work.total_ns);
  message.set_duration_ns(work.duration_ns);
  message.set_queued_ns(work.queued_ns);
  message.set_stream_wait_ns(work.stream_wait_ns);
  message.set_before_return_ns(work.before_return_ns);
  *message.mutable_launcher() = to_proto(work.launcher);
  return message;
}

}  // namespace

v1::GpuDuringCall to_proto(const GpuDuringCall& gpu) {
  v1::GpuDuringCall message;
  message.set_complete(gpu.missing.empty());
  for (const std::string& why : gpu.missing) message.add_missing(to_valid_utf8(why));
  message.set_busy_ns(gpu.busy_ns);
  message.set_idle_ns(gpu.idle_ns);
  message.set_kernel_ns(gpu.kernel_ns);
  message.set_copy_ns(gpu.copy_ns);
  message.set_set_ns(gpu.set_ns);
  message.set_graph_ns(gpu.graph_ns);
  for (const GpuKernelTime& row : gpu.kernels) *message.add_kernels() = to_proto(row);
  message.set_other_kernels(gpu.other_kernels);
  message.set_other_kernels_ns(gpu.other_kernels_ns);
  for (const GpuCopyTime& row : gpu.copies) *message.add_copies() = to_proto(row);
  for (const GpuDeviceTime& row : gpu.devices) *message.add_devices() = to_proto(row);
  for (const GpuOtherProcess& row : gpu.others) *message.add_others() = to_proto(row);
  message.set_others_ns(gpu.others_ns);
  if (gpu.own.launches > 0) *message.mutable_own() = to_proto(gpu.own);
  if (gpu.awaited) *message.mutable_awaited() = to_proto(*gpu.awaited);
  return message;
}

}  // namespace gpuperf
