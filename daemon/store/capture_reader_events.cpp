// Reading blocks of events.

#include <algorithm>
#include <cstring>

#include "daemon/store/capture_reader.h"

namespace gpuperf {
namespace {

uint64_t add(uint64_t& before, int64_t difference) {
  return before += static_cast<uint64_t>(difference);
}

}  // namespace

void CaptureReader::take_calls(const v1::StoredCalls& piece) {
  const auto rows = static_cast<size_t>(piece.start_mono_ns_size());
  if (!check_block(rows, {piece.duration_ns_size(), piece.off_cpu_ns_size(), piece.thread_size(),
                          piece.function_size(), piece.stack_size(), piece.depth_size()})) {
    return;
  }
  Differences before;
  for (int i = 0; i < static_cast<int>(rows); ++i) {
    capture_.calls.push_back({.start_mono_ns = add(before.start_ns, piece.start_mono_ns(i)),
                              .duration_ns = piece.duration_ns(i),
                              .off_cpu_ns = piece.off_cpu_ns(i),
                              .thread = minus_one(piece.thread(i)),
                              .function = minus_one(piece.function(i)),
                              .stack = minus_one(piece.stack(i)),
                              .depth = piece.depth(i)});
  }
}

void CaptureReader::take_launches(const v1::StoredLaunches& piece,
                                  std::vector<CaptureLaunch>& launches) {
  const auto rows = static_cast<size_t>(piece.start_mono_ns_size());
  if (!check_block(rows, {piece.duration_ns_size(), piece.thread_size(), piece.function_size(),
                          piece.stack_size(), piece.operation_size(), piece.correlation_id_size(),
                          piece.match_size()})) {
    return;
  }
  Differences before;
  for (int i = 0; i < static_cast<int>(rows); ++i) {
    launches.push_back(
        {.start_mono_ns = add(before.start_ns, piece.start_mono_ns(i)),
         .duration_ns = piece.duration_ns(i),
         .thread = minus_one(piece.thread(i)),
         .function = minus_one(piece.function(i)),
         .stack = minus_one(piece.stack(i)),
         .operation = minus_one(piece.operation(i)),
         .correlation_id = static_cast<uint32_t>(add(before.index, piece.correlation_id(i))),
         .match = static_cast<LaunchMatch>(get_enum(piece.match(i), kLaunchMatches - 1))});
  }
}

void CaptureReader::take_work(const v1::StoredWork& piece) {
  const auto rows = static_cast<size_t>(piece.start_mono_ns_size());
  if (!check_block(rows, {piece.duration_ns_size(), piece.size_bytes_size(), piece.kind_size(),
                          piece.direction_size(), piece.kernel_size(), piece.stream_size(),
                          piece.launch_size(), piece.capture_site_size(), piece.shape_size(),
                          piece.graph_id_size(), piece.node_id_size()})) {
    return;
  }
  Differences before;
  constexpr auto kLastKind = static_cast<uint32_t>(WorkKind::kGraph);
  for (int i = 0; i < static_cast<int>(rows); ++i) {
    capture_.work.push_back(
        {.start_mono_ns = add(before.start_ns, piece.start_mono_ns(i)),
         .duration_ns = piece.duration_ns(i),
         .bytes = piece.size_bytes(i),
         .kind = static_cast<WorkKind>(get_enum(piece.kind(i), kLastKind)),
         .direction = static_cast<uint8_t>(get_enum(piece.direction(i), UINT8_MAX)),
         .kernel = minus_one(piece.kernel(i)),
         .stream = minus_one(piece.stream(i)),
         .launch = minus_one(static_cast<uint32_t>(add(before.index, piece.launch(i)))),
         .capture_site = minus_one(piece.capture_site(i)),
         .shape = minus_one(piece.shape(i)),
         .graph_id = piece.graph_id(i),
         .node_id = piece.node_id(i)});
  }
}

void CaptureReader::take_waits(const v1::StoredWaits& piece) {
  const auto rows = static_cast<size_t>(piece.start_mono_ns_size());
  if (!check_block(rows, {piece.duration_ns_size(), piece.thread_size(), piece.stream_size(),
                          piece.type_size()})) {
    return;
  }
  Differences before;
  for (int i = 0; i < static_cast<int>(rows); ++i) {
    capture_.waits.push_back({.start_mono_ns = add(before.start_ns, piece.start_mono_ns(i)),
                              .duration_ns = piece.duration_ns(i),
                              .thread = minus_one(piece.thread(i)),
                              .stream = minus_one(piece.stream(i)),
                              .type = piece.type(i)});
  }
}

void CaptureReader::take_thread_times(const v1::StoredThreadTimes& piece) {
  const auto rows = static_cast<size_t>(piece.start_mono_ns_size());
  if (!check_block(rows, {piece.duration_ns_size(), piece.thread_size(), piece.state_size(),
                          piece.stack_size(), piece.waker_pid_size(), piece.waker_tid_size()})) {
    return;
  }
  Differences before;
  for (int i = 0; i < static_cast<int>(rows); ++i) {
    capture_.thread_times.push_back(
        {.start_mono_ns = add(before.start_ns, piece.start_mono_ns(i)),
         .duration_ns = piece.duration_ns(i),
         .thread = minus_one(piece.thread(i)),
         .state = static_cast<HostState>(get_enum(piece.state(i), kHostStates - 1)),
         .stack = minus_one(piece.stack(i)),
         .waker_pid = piece.waker_pid(i),
         .waker_tid = piece.waker_tid(i)});
  }
}

void CaptureReader::take_steps(const v1::StoredSteps& piece) {
  const auto rows = static_cast<size_t>(piece.start_mono_ns_size());
  if (!check_block(
          rows,
          {piece.duration_ns_size(), piece.thread_size(), piece.function_size(), piece.phase_size(),
           piece.phase_quality_size(), piece.duration_quality_size(), piece.tokens_size(),
           piece.tokens_quality_size(), piece.sequences_size(), piece.sequences_quality_size()})) {
    return;
  }
  Differences before;
  const auto get_quality = [this](uint32_t value) {
    return static_cast<StepQuality>(get_enum(value, kStepQualities - 1));
  };
  for (int i = 0; i < static_cast<int>(rows); ++i) {
    capture_.steps.push_back(
        {.start_mono_ns = add(before.start_ns, piece.start_mono_ns(i)),
         .duration_ns = piece.duration_ns(i),
         .thread = minus_one(piece.thread(i)),
         .function = minus_one(piece.function(i)),
         .phase = static_cast<StepPhase>(get_enum(piece.phase(i), kStepPhases - 1)),
         .phase_quality = get_quality(piece.phase_quality(i)),
         .duration_quality = get_quality(piece.duration_quality(i)),
         .tokens = {piece.tokens(i), get_quality(piece.tokens_quality(i))},
         .sequences = {piece.sequences(i), get_quality(piece.sequences_quality(i))}});
  }
}

void CaptureReader::take_gaps(const v1::StoredGaps& piece) {
  const auto rows = static_cast<size_t>(piece.start_mono_ns_size());
  if (!check_block(rows, {piece.duration_ns_size(), piece.process_size(), piece.cause_size(),
                          piece.count_size()})) {
    return;
  }
  Differences before;
  for (int i = 0; i < static_cast<int>(rows); ++i) {
    capture_.gaps.push_back({.start_mono_ns = add(before.start_ns, piece.start_mono_ns(i)),
                             .duration_ns = piece.duration_ns(i),
                             .process = minus_one(piece.process(i)),
                             .cause = get_text(piece.cause(i)),
                             .count = piece.count(i)});
  }
}

void CaptureReader::take_gpu_counters(const v1::StoredGpuCounters& piece) {
  const auto rows = static_cast<size_t>(piece.start_mono_ns_size());
  if (!check_block(rows, {piece.duration_ns_size(), piece.gpu_size(), piece.gpu_instance_size()})) {
    return;
  }
  constexpr size_t kUuidBytes = sizeof(GpuUuid);
  const size_t counters = piece.counters();
  if (piece.gpu_uuid().size() != rows * kUuidBytes ||
      static_cast<uint64_t>(piece.value_size()) != uint64_t{rows} * counters) {
    return fail("columns of different lengths");
  }
  uint64_t before_ns = 0;
  for (size_t i = 0; i < rows; ++i) {
    const auto at = static_cast<int>(i);
    const uint64_t start_ns = add(before_ns, piece.start_mono_ns(at));
    GpuCounterRecord row{.gpu = piece.gpu(at)};
    std::memcpy(row.uuid.data(), piece.gpu_uuid().data() + i * kUuidBytes, kUuidBytes);
    const uint32_t instance = piece.gpu_instance(at);
    if (instance != 0) row.gpu_instance = instance - 1;
    row.window.start_mono_ns = static_cast<int64_t>(start_ns);
    row.window.end_mono_ns = static_cast<int64_t>(start_ns + piece.duration_ns(at));
    // A later version's have more, an earlier one's fewer.
    for (size_t k = 0; k < std::min(counters, kGpuCounters); ++k) {
      const uint64_t value = piece.value(static_cast<int>(i * counters + k));
      if (value != 0) row.window.values[k] = value - 1;
    }
    capture_.gpu_counters.push_back(row);
  }
}

}  // namespace gpuperf
