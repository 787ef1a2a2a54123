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
      .has_arguments = record.has_arguments != 0,
      .return_value = record.return_value,
  };
  std::copy(std::begin(record.arguments), std::end(record.arguments), event.arguments.begin());
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

struct DecoderRow {
  uint32_t kind;
  Result<DecodedRecord> (*decode)(std::span<const std::byte>);
};
constexpr DecoderRow kDecoders[] = {
    {GPUPERF_RECORD_SLOW_CALL, decode_slow_call},
    {GPUPERF_RECORD_PROCESS_EXIT, decode_process_exit},
};

}  // namespace

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
