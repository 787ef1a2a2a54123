#include "daemon/collect/decode_calls.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace gpuperf {
namespace {

template <typename Record>
Result<Record> read_record(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(Record)) {
    return absl::InvalidArgumentError("BPF record of " + std::to_string(bytes.size()) +
                                      " bytes, its kind has " + std::to_string(sizeof(Record)));
  }
  Record record;
  std::memcpy(&record, bytes.data(), sizeof record);
  return record;
}

Result<DecodedRecord> decode_slow_call(std::span<const std::byte> bytes) {
  ASSIGN_OR_RETURN(const auto record, read_record<gpuperf_slow_call>(bytes));
  SlowCallEvent event{
      .function_id = record.function_id,
      .process = {record.pid, record.process_start_boot_ns},
      .tid = record.tid,
      .comm = {record.comm, strnlen(record.comm, sizeof record.comm)},
      .start_mono_ns = record.start_mono_ns,
      .duration_ns = record.duration_ns,
      .threshold_ns = record.threshold_ns,
  };
  if (record.has_return_value != 0) event.return_value = record.return_value;
  if (record.has_values != 0) {
    CallValues& kept = event.values.emplace();
    std::copy(std::begin(record.values), std::end(record.values), kept.values.begin());
    kept.unread = record.values_unread;
    const size_t blobs = std::min<size_t>(record.blob_count, GPUPERF_BLOBS);
    for (size_t i = 0; i < blobs; ++i) {
      const size_t length = std::min<size_t>(record.blob_bytes[i], GPUPERF_BLOB_BYTES);
      kept.blobs.emplace_back(reinterpret_cast<const char*>(record.blobs[i]), length);
    }
  }
  if (record.stack_bytes > 0) {
    const size_t frames = std::min<size_t>(
        static_cast<size_t>(record.stack_bytes) / sizeof(uint64_t), GPUPERF_STACK_FRAMES);
    event.user_stack.assign(record.user_stack, record.user_stack + frames);
  }
  return event;
}

Result<DecodedRecord> decode_process_exit(std::span<const std::byte> bytes) {
  ASSIGN_OR_RETURN(const auto record, read_record<gpuperf_process_exit>(bytes));
  return ProcessExited{{record.pid, record.process_start_boot_ns}};
}

Result<DecodedRecord> decode_handle_name(std::span<const std::byte> bytes) {
  ASSIGN_OR_RETURN(const auto record, read_record<gpuperf_handle_name>(bytes));
  return HandleNamed{{record.pid, record.process_start_boot_ns},
                     record.handle,
                     {record.name, strnlen(record.name, sizeof record.name)},
                     record.source_handle};
}

struct DecoderRow {
  uint32_t kind;
  Result<DecodedRecord> (*decode)(std::span<const std::byte>);
};
constexpr DecoderRow kDecoders[] = {
    {GPUPERF_RECORD_SLOW_CALL, decode_slow_call},
    {GPUPERF_RECORD_PROCESS_EXIT, decode_process_exit},
    {GPUPERF_RECORD_HANDLE_NAME, decode_handle_name},
};

}  // namespace

InFlightCalls decode_in_flight(std::span<const gpuperf_in_flight> records) {
  InFlightCalls decoded;
  for (const gpuperf_in_flight& record : records) {
    if (record.start_mono_ns == 0) continue;
    decoded.calls.push_back({.function_id = static_cast<uint32_t>(
                                 record.cookie & ((1u << GPUPERF_COOKIE_FUNCTION_BITS) - 1)),
                             .process = {record.pid, record.process_start_boot_ns},
                             .tid = record.tid,
                             .comm = {record.comm, strnlen(record.comm, sizeof record.comm)},
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

Result<DecodedRecord> decode_record(std::span<const std::byte> bytes) {
  ASSIGN_OR_RETURN(const auto header, read_record<gpuperf_record>(bytes));
  if (header.length_bytes > bytes.size()) {
    return absl::InvalidArgumentError("BPF record says " + std::to_string(header.length_bytes) +
                                      " bytes, " + std::to_string(bytes.size()) + " came");
  }
  for (const DecoderRow& row : kDecoders) {
    if (row.kind == header.kind) return row.decode(bytes.first(header.length_bytes));
  }
  return absl::UnimplementedError("BPF record of unknown kind " + std::to_string(header.kind));
}

}  // namespace gpuperf
