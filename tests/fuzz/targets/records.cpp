// Any bytes as what the kernel side hands up: a record of its rings, or what its iterators say of
// calls in flight. The first byte chooses.

#include <cstring>

#include "daemon/collect/decode_calls.h"
#include "tests/fuzz/fuzz_target.h"

namespace gpuperf::fuzz {
namespace {

std::string check(const SlowCallEvent& call) {
  if (call.outer.size() > GPUPERF_CALL_DEPTH) return "more outer calls than there can be";
  return call.waits.size() > GPUPERF_WAITS ? "more waits than there can be" : "";
}

std::string check(const RawStack& stack) {
  if (stack.frames.size() > GPUPERF_STACK_FRAMES) return "more frames than there can be";
  if (stack.python.size() > GPUPERF_PYTHON_FRAMES) return "more Python frames than there can be";
  if (!stack.copy) return "";
  return stack.copy->returns.size() > GPUPERF_REPLACED_RETURNS ? "too many replaced returns" : "";
}

std::string check(const ReportedCall& call) {
  if (call.routing == nullptr) return "";
  const size_t most = GPUPERF_ROUTED_TOKENS * GPUPERF_ROUTED_EXPERTS;
  return call.routing->experts.size() > most ? "more experts than there can be" : "";
}

std::string check(const HandleNamed& named) {
  return named.name.size() > GPUPERF_HANDLE_NAME_BYTES ? "a name beyond its bound" : "";
}

std::string check(const auto&) { return ""; }

template <typename Record>
std::vector<Record> take_records(std::string_view bytes) {
  std::vector<Record> records(bytes.size() / sizeof(Record));
  if (!records.empty()) std::memcpy(records.data(), bytes.data(), records.size() * sizeof(Record));
  return records;
}

template <typename Record>
std::string make_record(char choice, uint32_t kind) {
  Record record{};
  const gpuperf_record header{.kind = kind, .length_bytes = sizeof record};
  std::memcpy(&record, &header, sizeof header);
  return choice + std::string(reinterpret_cast<const char*>(&record), sizeof record);
}

}  // namespace

std::string find_fault(std::string_view bytes) {
  if (bytes.empty()) return "";
  const char choice = bytes.front();
  bytes.remove_prefix(1);
  switch (choice) {
    case 'f': {
      const auto calls = decode_in_flight(take_records<gpuperf_in_flight>(bytes));
      return calls.calls.size() > kMaxInFlightCalls ? "more calls in flight than are kept" : "";
    }
    case 'c':
      (void)decode_thread_costs(take_records<gpuperf_thread_cost>(bytes));
      return "";
    case 's':
      for (const auto& record : take_records<gpuperf_slow_in_flight>(bytes)) {
        if (const std::string fault = check(decode_slow_in_flight(record)); !fault.empty()) {
          return fault;
        }
      }
      return "";
    default: {
      // As the ring gives them: 8-byte aligned.
      const std::string copy(bytes);
      const auto decoded = decode_record(std::as_bytes(std::span(copy)));
      if (decoded.ok())
        return std::visit([](const auto& record) { return check(record); }, *decoded);
      return absl::IsInvalidArgument(decoded.status()) || absl::IsUnimplemented(decoded.status())
                 ? ""
                 : decoded.status().ToString();
    }
  }
}

std::vector<std::string> make_seeds() {
  std::vector<std::string> seeds = {
      make_record<gpuperf_slow_call>('r', GPUPERF_RECORD_SLOW_CALL),
      make_record<gpuperf_stack>('r', GPUPERF_RECORD_STACK),
      make_record<gpuperf_stack_copy>('r', GPUPERF_RECORD_STACK_COPY),
      make_record<gpuperf_slow_in_flight>('s', GPUPERF_RECORD_SLOW_IN_FLIGHT),
      make_record<gpuperf_in_flight>('f', 0),
      make_record<gpuperf_thread_cost>('c', 0)};
  // Of the others any length that is enough.
  for (uint32_t kind = 1; kind < GPUPERF_RECORD_KINDS; ++kind) {
    gpuperf_record header{.kind = kind, .length_bytes = 512};
    std::string record(reinterpret_cast<const char*>(&header), sizeof header);
    record.resize(512);
    seeds.push_back('r' + record);
  }
  return seeds;
}

}  // namespace gpuperf::fuzz
