// Reading what events name.

#include <cstring>

#include "daemon/model/kernel_name.h"
#include "daemon/model/kernel_stalls.h"
#include "daemon/store/capture_reader.h"

namespace gpuperf {
void CaptureReader::take_texts(const v1::StoredTexts& piece) {
  if (texts_.size() + static_cast<size_t>(piece.text_size()) > kMaxCaptureTableRows) {
    return fail("too many texts");
  }
  for (const std::string& text : piece.text()) {
    if (text.size() > kMaxCaptureTextBytes) return fail("a text that is too long");
    texts_.push_back(text);
  }
}

void CaptureReader::take_processes(const v1::StoredTables& piece) {
  const auto processes = static_cast<size_t>(piece.process_pid_size());
  const auto threads = static_cast<size_t>(piece.thread_process_size());
  if (!check_table(processes,
                   {piece.process_start_boot_ns_size(), piece.process_comm_size(),
                    piece.process_container_size(), piece.process_pod_size(),
                    piece.process_pod_namespace_size(), piece.process_slurm_job_size(),
                    piece.process_slurm_rank_size(), piece.process_is_injected_size()},
                   capture_.processes) ||
      !check_table(threads, {piece.thread_tid_size(), piece.thread_comm_size()},
                   capture_.threads)) {
    return;
  }
  for (int i = 0; i < static_cast<int>(processes); ++i) {
    capture_.processes.push_back(
        {.process = {.pid = piece.process_pid(i), .start_boot_ns = piece.process_start_boot_ns(i)},
         .owner = {.comm = get_text(piece.process_comm(i)),
                   .container = get_text(piece.process_container(i)),
                   .pod = get_text(piece.process_pod(i)),
                   .pod_namespace = get_text(piece.process_pod_namespace(i)),
                   .slurm_job = get_text(piece.process_slurm_job(i)),
                   .slurm_rank = get_text(piece.process_slurm_rank(i))},
         .is_injected = piece.process_is_injected(i)});
  }
  for (int i = 0; i < static_cast<int>(threads); ++i) {
    capture_.threads.push_back({.process = minus_one(piece.thread_process(i)),
                                .tid = piece.thread_tid(i),
                                .comm = get_text(piece.thread_comm(i))});
  }
}

void CaptureReader::take_names(const v1::StoredTables& piece) {
  const auto functions = static_cast<size_t>(piece.function_name_size());
  const auto kernels = static_cast<size_t>(piece.kernel_name_size());
  if (!check_table(functions, {piece.function_category_size()}, capture_.functions) ||
      !check_table(kernels, {piece.kernel_short_name_size()}, capture_.kernels)) {
    return;
  }
  for (int i = 0; i < static_cast<int>(functions); ++i) {
    capture_.functions.push_back({.category = get_text(piece.function_category(i)),
                                  .name = get_text(piece.function_name(i))});
  }
  for (int i = 0; i < static_cast<int>(kernels); ++i) {
    const std::string name = get_text(piece.kernel_name(i));
    // Not the file's: daemons before 1.0 gave several kernels one short name.
    capture_.kernels.push_back({.name = name, .short_name = shorten_kernel_name(name)});
  }
}

void CaptureReader::take_frames(const v1::StoredTables& piece) {
  const auto rows = static_cast<size_t>(piece.frame_symbol_size());
  if (!check_table(rows,
                   {piece.frame_module_size(), piece.frame_offset_bytes_size(),
                    piece.frame_address_size(), piece.frame_file_size(), piece.frame_line_size(),
                    piece.frame_is_inlined_size(), piece.frame_kind_size()},
                   capture_.frames)) {
    return;
  }
  constexpr auto kLastKind = static_cast<uint32_t>(StackFrameKind::kPython);
  for (int i = 0; i < static_cast<int>(rows); ++i) {
    capture_.frames.push_back(
        {.symbol = get_text(piece.frame_symbol(i)),
         .module = get_text(piece.frame_module(i)),
         .offset_bytes = piece.frame_offset_bytes(i),
         .address = piece.frame_address(i),
         .file = get_text(piece.frame_file(i)),
         .line = piece.frame_line(i),
         .is_inlined = piece.frame_is_inlined(i),
         .kind = static_cast<StackFrameKind>(get_enum(piece.frame_kind(i), kLastKind))});
  }
}

void CaptureReader::take_stacks(const v1::StoredTables& piece) {
  const auto rows = static_cast<size_t>(piece.stack_frame_count_size());
  if (!check_table(rows, {piece.stack_end_size()}, capture_.stacks)) return;
  const auto& frames = piece.stack_frame();
  stack_frames_ += static_cast<size_t>(frames.size());
  if (stack_frames_ > kMaxCaptureFrames) return fail("too many frames");
  size_t next = 0;
  constexpr auto kLastEnd = static_cast<uint32_t>(StackEnd::kBroken);
  for (int i = 0; i < static_cast<int>(rows); ++i) {
    const size_t count = piece.stack_frame_count(i);
    if (count > static_cast<size_t>(frames.size()) - next)
      return fail("a stack without its frames");
    const auto* const first = frames.data() + next;
    capture_.stacks.push_back(
        {.frames = {first, first + count},
         .end = static_cast<StackEnd>(get_enum(piece.stack_end(i), kLastEnd))});
    next += count;
  }
  if (next != static_cast<size_t>(frames.size())) fail("frames without a stack");
}

void CaptureReader::take_operations(const v1::StoredTables& piece) {
  const auto operations = static_cast<size_t>(piece.operation_parent_size());
  const auto shapes = static_cast<size_t>(piece.shape_size()) / 8;
  if (!check_table(operations, {piece.operation_function_size()}, capture_.operations) ||
      !check_table(shapes, {}, capture_.shapes)) {
    return;
  }
  if (piece.operation_shape_size() != static_cast<int>(4 * operations) ||
      piece.shape_size() % 8 != 0) {
    return fail("shapes without all dimensions");
  }
  for (int i = 0; i < static_cast<int>(operations); ++i) {
    CaptureOperation row = {.parent = minus_one(piece.operation_parent(i)),
                            .function = minus_one(piece.operation_function(i))};
    for (int k = 0; k < 4; ++k) row.shape[k] = piece.operation_shape(4 * i + k);
    capture_.operations.push_back(row);
  }
  for (int i = 0; i < piece.shape_size(); i += 8) {
    capture_.shapes.push_back(
        {.grid = {piece.shape(i), piece.shape(i + 1), piece.shape(i + 2)},
         .block = {piece.shape(i + 3), piece.shape(i + 4), piece.shape(i + 5)},
         .shared_memory_bytes = piece.shape(i + 6),
         .registers_per_thread = piece.shape(i + 7)});
  }
}

void CaptureReader::take_places(const v1::StoredTables& piece) {
  const auto devices = static_cast<size_t>(piece.device_number_size());
  const auto streams = static_cast<size_t>(piece.stream_process_size());
  if (!check_table(devices, {}, capture_.devices) ||
      !check_table(
          streams,
          {piece.stream_device_size(), piece.stream_context_size(), piece.stream_stream_size()},
          capture_.streams)) {
    return;
  }
  if (piece.device_uuid().size() != devices * sizeof(GpuUuid)) return fail("devices without uuid");
  for (size_t i = 0; i < devices; ++i) {
    CaptureDevice row = {.uuid = {}, .number = piece.device_number(static_cast<int>(i))};
    std::memcpy(row.uuid.data(), piece.device_uuid().data() + i * row.uuid.size(), row.uuid.size());
    capture_.devices.push_back(row);
  }
  for (int i = 0; i < static_cast<int>(streams); ++i) {
    capture_.streams.push_back({.process = minus_one(piece.stream_process(i)),
                                .device = minus_one(piece.stream_device(i)),
                                .context = piece.stream_context(i),
                                .stream = minus_one(piece.stream_stream(i))});
  }
}

void CaptureReader::take_stalls(const v1::StoredTables& piece) {
  const auto rows = static_cast<size_t>(piece.stall_size());
  if (!check_table(rows,
                   {piece.stall_process_size(), piece.stall_kernel_size(),
                    piece.stall_samples_size(), piece.stall_idle_samples_size()},
                   capture_.stalls)) {
    return;
  }
  for (int i = 0; i < static_cast<int>(rows); ++i) {
    const uint32_t stall = piece.stall(i);
    capture_.stalls.push_back(
        {.process = minus_one(piece.stall_process(i)),
         .kernel = minus_one(piece.stall_kernel(i)),
         // A later version may know more states.
         .stall = stall < GPUPERF_STALL_COUNT ? stall : uint32_t{GPUPERF_STALL_other},
         .samples = piece.stall_samples(i),
         .idle_samples = piece.stall_idle_samples(i)});
  }
}

}  // namespace gpuperf
