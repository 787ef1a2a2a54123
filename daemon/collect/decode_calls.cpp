#include "daemon/collect/decode_calls.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace gpuperf {
namespace {

constexpr size_t kPageBytes = 4096;

Status make_too_short(size_t size_bytes, size_t kind_bytes) {
  return absl::InvalidArgumentError("BPF record of " + std::to_string(size_bytes) +
                                    " bytes, its kind has " + std::to_string(kind_bytes));
}

template <typename Record>
Result<Record> read_record(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(Record)) return make_too_short(bytes.size(), sizeof(Record));
  Record record;
  std::memcpy(&record, bytes.data(), sizeof record);
  return record;
}

template <size_t size>
std::string read_text(const char (&bytes)[size]) {
  return {bytes, strnlen(bytes, size)};
}

// Up to the first zero.
template <size_t size>
std::vector<uint64_t> read_stack(const __u64 (&frames)[size]) {
  return {std::begin(frames), std::ranges::find(frames, __u64{0})};
}

TimeSplit decode_split(const gpuperf_time_split& split) {
  TimeSplit decoded{.runnable_ns = split.runnable_ns,
                    .throttled_ns = split.throttled_ns,
                    .preemptions = split.preemptions,
                    .migrations = split.migrations,
                    .minor_faults = split.minor_faults,
                    .major_faults = split.major_faults};
  std::ranges::copy(split.waits_ns, decoded.waits_ns.begin());
  std::ranges::copy(split.ticks, decoded.ticks.begin());
  return decoded;
}

Wait decode_wait(const gpuperf_wait& wait) {
  return {.start_mono_ns = wait.start_mono_ns,
          .duration_ns = wait.duration_ns,
          .kind = wait.kind < kWaitKinds ? static_cast<WaitKind>(wait.kind) : WaitKind::kOther,
          .syscall = wait.syscall,
          .file_mode = wait.file_mode,
          .file_name = read_text(wait.file_name),
          .waker = {.tid = wait.waker_tid,
                    .pid = wait.waker_pid,
                    .process_start_boot_ns = wait.waker_start_boot_ns,
                    .is_kernel = wait.waker_is_kernel != 0,
                    .comm = read_text(wait.waker_comm),
                    .stack_id = wait.waker_stack_id},
          .kernel_stack = read_stack(wait.kernel_stack)};
}

void decode_call_state(const gpuperf_slow_call& record, SlowCallEvent& event) {
  event.split = decode_split(record.split);
  for (const gpuperf_child& child : record.children) {
    if (child.calls == 0) continue;
    event.children.push_back(
        {.function_id = child.function_id, .calls = child.calls, .total_ns = child.total_ns});
  }
  for (const gpuperf_wait& wait : record.waits) {
    if (wait.start_mono_ns != 0) event.waits.push_back(decode_wait(wait));
  }
  std::ranges::sort(event.waits, std::ranges::greater(), &Wait::duration_ns);
}

CallValues decode_values(const __u64 (&values)[GPUPERF_VALUES], uint16_t unread) {
  CallValues kept{.unread = unread};
  std::ranges::copy(values, kept.values.begin());
  return kept;
}

SlowCallEvent decode_fields(const gpuperf_slow_call& record) {
  SlowCallEvent event{
      .function_id = record.function_id,
      .process = {record.pid, record.process_start_boot_ns},
      .tid = record.tid,
      .comm = read_text(record.comm),
      .start_mono_ns = record.start_mono_ns,
      .duration_ns = record.duration_ns,
      .threshold_ns = record.threshold_ns,
      .is_adaptive = record.adaptive != 0,
      .is_worst = record.worst != 0,
  };
  if (record.has_return_value != 0) event.return_value = record.return_value;
  if (record.has_values != 0) {
    CallValues& kept = event.values.emplace(decode_values(record.values, record.values_unread));
    const size_t blobs = std::min<size_t>(record.blob_count, GPUPERF_BLOBS);
    for (size_t i = 0; i < blobs; ++i) {
      const size_t length = std::min<size_t>(record.blob_bytes[i], GPUPERF_BLOB_BYTES);
      kept.blobs.emplace_back(reinterpret_cast<const char*>(record.blobs[i]), length);
    }
  }
  event.stack_id = record.stack_id;
  const size_t outer = std::min<size_t>(record.outer_count, GPUPERF_CALL_DEPTH);
  event.outer.assign(record.outer, record.outer + outer);
  if (record.has_split != 0) decode_call_state(record, event);
  return event;
}

Result<DecodedRecord> decode_slow_call(std::span<const std::byte> bytes) {
  ASSIGN_OR_RETURN(const auto record, read_record<gpuperf_slow_call>(bytes));
  return decode_fields(record);
}

// Of a gpuperf_stack there is as much as holds its frames of Python.
Result<RawStack> decode_stack_fields(std::span<const std::byte> bytes) {
  constexpr size_t kFixedBytes = offsetof(gpuperf_stack, python);
  gpuperf_stack record{};
  if (bytes.size() < kFixedBytes) return make_too_short(bytes.size(), kFixedBytes);
  std::memcpy(&record, bytes.data(), std::min(bytes.size(), sizeof record));
  const size_t python_room =
      (std::min(bytes.size(), sizeof record) - kFixedBytes) / sizeof(gpuperf_python_frame);
  if (record.frame_count > GPUPERF_STACK_FRAMES || record.python_count > python_room ||
      record.end > GPUPERF_STACK_BROKEN) {
    return absl::InvalidArgumentError("BPF record of a stack contradicts itself");
  }
  RawStack stack{.id = record.stack_id,
                 .process = {record.pid, record.process_start_boot_ns},
                 .space = record.space,
                 .code_changes = record.code_changes,
                 .end = static_cast<StackEnd>(record.end),
                 .bp = record.bp,
                 .python_is_cut = record.python_is_cut != 0};
  for (uint32_t i = 0; i < record.frame_count; ++i) {
    stack.frames.push_back({.pc = record.frames[i].pc,
                            .sp = record.frames[i].sp,
                            .is_exact = (record.exact_frames[i / 64] >> (i % 64) & 1) != 0});
  }
  for (uint32_t i = 0; i < record.python_count; ++i) {
    const gpuperf_python_frame& frame = record.python[i];
    stack.python.push_back({.code = frame.code,
                            .entry_sp = frame.entry_sp,
                            .instruction_bytes = frame.instruction_bytes,
                            .first_line = frame.first_line});
  }
  return stack;
}

Result<DecodedRecord> decode_stack(std::span<const std::byte> bytes) {
  return decode_stack_fields(bytes);
}

std::vector<ReplacedReturn> decode_returns(std::span<const gpuperf_replaced_return> returns,
                                           uint32_t count) {
  std::vector<ReplacedReturn> decoded;
  for (const auto& replaced : returns.first(std::min<size_t>(count, returns.size()))) {
    decoded.push_back({.sp = replaced.sp, .address = replaced.address});
  }
  return decoded;
}

Result<DecodedRecord> decode_stack_copy(std::span<const std::byte> bytes) {
  ASSIGN_OR_RETURN(const auto record, read_record<gpuperf_stack_copy>(bytes));
  ASSIGN_OR_RETURN(RawStack stack, decode_stack_fields(std::as_bytes(std::span(&record.stack, 1))));
  const auto copy = std::as_bytes(std::span(record.copy))
                        .first(std::min<size_t>(record.copy_bytes, GPUPERF_STACK_COPY_BYTES));
  StackMemory memory{.address = record.address, .bytes = {copy.begin(), copy.end()}};
  // The first page may be a part of one.
  const size_t pages = (copy.size() + kPageBytes - 1) / kPageBytes;
  for (size_t page = 0; page < pages; ++page) {
    memory.is_present.push_back((record.present_pages >> page & 1) != 0);
  }
  stack.copy = StackCopy{.part = record.part,
                         .memory = {std::move(memory)},
                         .returns = decode_returns(record.returns, record.return_count)};
  return stack;
}

Result<DecodedRecord> decode_process_exit(std::span<const std::byte> bytes) {
  ASSIGN_OR_RETURN(const auto record, read_record<gpuperf_process_exit>(bytes));
  return ProcessExited{{record.pid, record.process_start_boot_ns}};
}

Result<DecodedRecord> decode_handle_name(std::span<const std::byte> bytes) {
  ASSIGN_OR_RETURN(const auto record, read_record<gpuperf_handle_name>(bytes));
  return HandleNamed{{record.pid, record.process_start_boot_ns},
                     record.handle,
                     read_text(record.name),
                     record.source_handle};
}

Result<DecodedRecord> decode_launch(std::span<const std::byte> bytes) {
  ASSIGN_OR_RETURN(const auto record, read_record<gpuperf_launch>(bytes));
  return TraceLaunch{.mono_ns = record.mono_ns,
                     .site_id = record.site_id,
                     .process = {record.pid, record.process_start_boot_ns},
                     .tid = record.tid,
                     .function_id = record.function_id,
                     .is_captured = record.is_captured != 0,
                     .exec = record.exec};
}

Result<DecodedRecord> decode_launches(std::span<const std::byte> bytes) {
  ASSIGN_OR_RETURN(const auto record, read_record<gpuperf_launches>(bytes));
  const std::span sites(record.sites, std::min<size_t>(record.site_count, GPUPERF_LAUNCH_SITES));
  std::vector<TraceLaunch> launches;
  launches.reserve(GPUPERF_LAUNCHES);
  for (size_t i = record.first; i < std::min<size_t>(record.count, GPUPERF_LAUNCHES); ++i) {
    if (record.function_id[i] == GPUPERF_NO_FUNCTION) continue;
    const gpuperf_kept_launch& launch = record.launches[i];
    const size_t site = launch.site;  // from 1 on
    launches.push_back({.mono_ns = record.base_mono_ns + launch.offset_ns,
                        .site_id = site != 0 && site <= sites.size() ? sites[site - 1].id : 0,
                        .process = {record.pid, record.process_start_boot_ns},
                        .tid = record.tid,
                        .function_id = record.function_id[i]});
  }
  return launches;
}

Result<DecodedRecord> decode_site(std::span<const std::byte> bytes) {
  ASSIGN_OR_RETURN(const auto record, read_record<gpuperf_site>(bytes));
  const size_t count = std::min<size_t>(record.function_count, GPUPERF_CALL_DEPTH);
  TraceSite site{.site_id = record.site_id,
                 .stack_id = record.stack_id,
                 .functions = {record.functions, record.functions + count},
                 .shape_at = record.shape_at};
  std::ranges::copy(record.shape, site.shape.begin());
  return site;
}

Result<DecodedRecord> decode_traced_call(std::span<const std::byte> bytes) {
  ASSIGN_OR_RETURN(const auto record, read_record<gpuperf_traced_call>(bytes));
  return TraceCall{.start_mono_ns = record.start_mono_ns,
                   .duration_ns = record.duration_ns,
                   .off_cpu_ns = record.off_cpu_ns,
                   .stack_id = record.stack_id,
                   .process = {record.pid, record.process_start_boot_ns},
                   .tid = record.tid,
                   .function_id = record.function_id,
                   .depth = record.depth};
}

Result<DecodedRecord> decode_thread_time(std::span<const std::byte> bytes) {
  ASSIGN_OR_RETURN(const auto record, read_record<gpuperf_thread_time>(bytes));
  const uint32_t kinds =
      record.is_tick != 0 ? uint32_t{GPUPERF_TICK_KINDS} : uint32_t{GPUPERF_WAIT_KINDS};
  if (record.kind >= kinds) {
    return absl::InvalidArgumentError("BPF record of an unknown state of a thread");
  }
  return TraceThreadTime{.start_mono_ns = record.start_mono_ns,
                         .blocked_ns = record.blocked_ns,
                         .throttled_ns = record.throttled_ns,
                         .runnable_ns = record.runnable_ns,
                         .stack_id = record.stack_id,
                         .process = {record.pid, record.process_start_boot_ns},
                         .tid = record.tid,
                         .is_tick = record.is_tick != 0,
                         .kind = record.kind,
                         .waker_pid = record.waker_pid,
                         .waker_tid = record.waker_tid};
}

GpuTurn decode_turn(const gpuperf_turn& turn) {
  const gpuperf_product_rows& products = turn.products;
  const bool is_majority = products.lead > products.products / 2;
  return {.start_mono_ns = turn.start_mono_ns,
          .graphs = turn.graphs,
          .product_rows = is_majority ? products.rows : 0};
}

Result<DecodedRecord> decode_reported_call(std::span<const std::byte> bytes) {
  ASSIGN_OR_RETURN(const auto record, read_record<gpuperf_reported_call>(bytes));
  ReportedCall call{.start_mono_ns = record.start_mono_ns,
                    .duration_ns = record.duration_ns,
                    .process = {record.pid, record.process_start_boot_ns},
                    .tid = record.tid,
                    .function_id = record.function_id,
                    .result = record.result,
                    .stack_id = record.stack_id,
                    .depth = record.depth,
                    .outermost_id = record.outermost,
                    .turn = decode_turn(record.turn)};
  if (record.has_return_value != 0) call.return_value = record.return_value;
  if (record.has_values != 0) call.values = decode_values(record.values, record.values_unread);
  return call;
}

Result<DecodedRecord> decode_operator_call(std::span<const std::byte> bytes) {
  ASSIGN_OR_RETURN(const auto record, read_record<gpuperf_operator_call>(bytes));
  return ReportedCall{.start_mono_ns = record.start_mono_ns,
                      .process = {record.pid, record.process_start_boot_ns},
                      .tid = record.tid,
                      .function_id = record.function_id,
                      .operator_call = std::make_shared<const OperatorCall>(OperatorCall{
                          record.layout, record.operation, read_text(record.name), record.lost})};
}

Result<DecodedRecord> decode_routing(std::span<const std::byte> bytes) {
  ASSIGN_OR_RETURN(const auto record, read_record<gpuperf_routing>(bytes));
  if (record.experts_per_token > GPUPERF_ROUTED_EXPERTS ||
      record.read_tokens > GPUPERF_ROUTED_TOKENS) {
    return absl::InvalidArgumentError("BPF record of more experts than fit into it");
  }
  Routing routing{.name = read_text(record.name),
                  .tokens = record.tokens,
                  .read_tokens = record.read_tokens,
                  .expert_count = record.expert_count};
  for (const auto& experts : std::span(record.experts).first(record.read_tokens)) {
    routing.experts.insert(routing.experts.end(), experts, experts + record.experts_per_token);
  }
  return ReportedCall{.process = {record.pid, record.process_start_boot_ns},
                      .tid = record.tid,
                      .function_id = record.function_id,
                      .routing = std::make_shared<const Routing>(std::move(routing))};
}

Result<DecodedRecord> decode_response_part(std::span<const std::byte> bytes) {
  constexpr uint64_t kLastChunkBytes = 5;  // "0\r\n\r\n"
  ASSIGN_OR_RETURN(const auto record, read_record<gpuperf_response_part>(bytes));
  const auto has = [&record](uint32_t flag) { return (record.flags & flag) != 0; };
  const bool ends = has(GPUPERF_RESPONSE_ENDS), is_closed = has(GPUPERF_RESPONSE_CLOSED);
  return ResponsePart{.mono_ns = record.mono_ns,
                      .process = {record.pid, record.process_start_boot_ns},
                      .tid = record.tid,
                      .session = record.session,
                      .connection = record.connection,
                      .request_start_mono_ns = record.request_start_mono_ns,
                      .request_end_mono_ns = record.request_end_mono_ns,
                      .bytes = record.bytes,
                      .begins = has(GPUPERF_RESPONSE_BEGINS),
                      .has_body = !is_closed && !has(GPUPERF_RESPONSE_HEAD) &&
                                  !(ends && record.bytes <= kLastChunkBytes),
                      .ends = ends,
                      .is_closed = is_closed};
}

Result<DecodedRecord> decode_graph(std::span<const std::byte> bytes) {
  ASSIGN_OR_RETURN(const auto record, read_record<gpuperf_graph>(bytes));
  if (record.call > GPUPERF_GRAPH_DESTROYED) {
    return absl::InvalidArgumentError("BPF record of an unknown call of a graph");
  }
  return TraceGraphCall{.mono_ns = record.mono_ns,
                        .process = {record.pid, record.process_start_boot_ns},
                        .tid = record.tid,
                        .call = static_cast<gpuperf_graph_call>(record.call),
                        .is_followed = record.is_followed != 0,
                        .handle = record.handle,
                        .source = record.source};
}

Result<DecodedRecord> decode_child(std::span<const std::byte> bytes) {
  ASSIGN_OR_RETURN(const auto record, read_record<gpuperf_child_process>(bytes));
  return ChildStarted{.parent = {record.parent_pid, record.parent_start_boot_ns},
                      .child = {record.child_pid, record.child_start_boot_ns}};
}

Result<DecodedRecord> decode_alarm(std::span<const std::byte> bytes) {
  RETURN_IF_ERROR(read_record<gpuperf_record>(bytes).status());
  return CallsAlarm{};
}

using Decoder = Result<DecodedRecord>(std::span<const std::byte>);

// Null for what comes through no ring. The compiler refuses a kind without a case.
Decoder* find_decoder(uint32_t kind) {
  // Beyond the last, the enumeration has no such value.
  switch (static_cast<gpuperf_record_kind>(std::min<uint32_t>(kind, GPUPERF_RECORD_KINDS))) {
    case GPUPERF_RECORD_SLOW_CALL:
      return decode_slow_call;
    case GPUPERF_RECORD_PROCESS_EXIT:
      return decode_process_exit;
    case GPUPERF_RECORD_HANDLE_NAME:
      return decode_handle_name;
    case GPUPERF_RECORD_STACK:
      return decode_stack;
    case GPUPERF_RECORD_STACK_COPY:
      return decode_stack_copy;
    case GPUPERF_RECORD_LAUNCH:
      return decode_launch;
    case GPUPERF_RECORD_LAUNCHES:
      return decode_launches;
    case GPUPERF_RECORD_CALL:
      return decode_traced_call;
    case GPUPERF_RECORD_THREAD_TIME:
      return decode_thread_time;
    case GPUPERF_RECORD_REPORTED_CALL:
      return decode_reported_call;
    case GPUPERF_RECORD_OPERATOR_CALL:
      return decode_operator_call;
    case GPUPERF_RECORD_ROUTING:
      return decode_routing;
    case GPUPERF_RECORD_RESPONSE_PART:
      return decode_response_part;
    case GPUPERF_RECORD_SITE:
      return decode_site;
    case GPUPERF_RECORD_CHILD:
      return decode_child;
    case GPUPERF_RECORD_GRAPH:
      return decode_graph;
    case GPUPERF_RECORD_ALARM:
      return decode_alarm;
    case GPUPERF_RECORD_SLOW_IN_FLIGHT:
    case GPUPERF_RECORD_KINDS:
      break;
  }
  return nullptr;
}

}  // namespace

SlowCallEvent decode_slow_in_flight(const gpuperf_slow_in_flight& record) {
  SlowCallEvent event = decode_fields(record.call);
  event.in_flight = record.state <= GPUPERF_THREAD_BLOCKED ? static_cast<ThreadState>(record.state)
                                                           : ThreadState::kRunning;
  event.live_stack = LiveStack{.sp = record.entry_sp,
                               .bp = record.entry_bp,
                               .thread_pointer = record.thread_pointer,
                               .returns = decode_returns(record.returns, record.return_count)};
  return event;
}

InFlightCalls decode_in_flight(std::span<const gpuperf_in_flight> records) {
  InFlightCalls decoded;
  for (const gpuperf_in_flight& record : records) {
    if (record.start_mono_ns == 0) continue;
    decoded.calls.push_back({.function_id = static_cast<uint32_t>(
                                 record.cookie & ((1u << GPUPERF_COOKIE_FUNCTION_BITS) - 1)),
                             .process = {record.pid, record.process_start_boot_ns},
                             .tid = record.tid,
                             .comm = read_text(record.comm),
                             .depth = record.depth,
                             .start_mono_ns = record.start_mono_ns});
  }
  const size_t kept = std::min(decoded.calls.size(), kMaxInFlightCalls);
  std::ranges::partial_sort(decoded.calls, decoded.calls.begin() + static_cast<ptrdiff_t>(kept),
                            std::ranges::less(), &InFlightCall::start_mono_ns);
  decoded.truncated_count = decoded.calls.size() - kept;
  decoded.calls.resize(kept);
  return decoded;
}

ThreadCosts decode_thread_costs(std::span<const gpuperf_thread_cost> records) {
  ThreadCosts costs;
  for (const gpuperf_thread_cost& record : records) {
    costs.threads.push_back({.process = {record.pid, record.process_start_boot_ns},
                             .tid = record.tid,
                             .cost_ns = record.cost_ns});
  }
  return costs;
}

Result<DecodedRecord> decode_record(std::span<const std::byte> bytes) {
  ASSIGN_OR_RETURN(const auto header, read_record<gpuperf_record>(bytes));
  if (header.length_bytes > bytes.size()) {
    return absl::InvalidArgumentError("BPF record says " + std::to_string(header.length_bytes) +
                                      " bytes, " + std::to_string(bytes.size()) + " came");
  }
  Decoder* const decode = find_decoder(header.kind);
  if (decode != nullptr) return decode(bytes.first(header.length_bytes));
  return absl::UnimplementedError("BPF record of unknown kind " + std::to_string(header.kind));
}

}  // namespace gpuperf
