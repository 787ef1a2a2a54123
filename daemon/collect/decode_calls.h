#pragma once

#include <cstddef>
#include <span>
#include <variant>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/model/event.h"

namespace gpuperf {

// A record of the BPF rings, decoded. `SlowCallEvent::owner` is left empty: the record does not
// know it.
using DecodedRecord =
    std::variant<SlowCallEvent, ProcessExited, HandleNamed, RawStack, TraceLaunch,
                 std::vector<TraceLaunch>, TraceSite, TraceCall, TraceGraphCall, TraceThreadTime,
                 ChildStarted, CallsAlarm, ReportedCall, ResponsePart>;

// The longest kMaxInFlightCalls of the calls the iterator reported; the rest is counted. Calls that
// have not begun yet are left out.
inline constexpr size_t kMaxInFlightCalls = 1000;
InFlightCalls decode_in_flight(std::span<const gpuperf_in_flight> records);

ThreadCosts decode_thread_costs(std::span<const gpuperf_thread_cost> records);

// A slow call in flight. Its stack is only where it begins: the kernel walks no other thread's.
SlowCallEvent decode_slow_in_flight(const gpuperf_slow_in_flight& record);

// kUnimplemented: a kind this version does not know. kInvalidArgument: shorter than its kind, or
// its length field disagrees. Never reads outside `bytes`.
Result<DecodedRecord> decode_record(std::span<const std::byte> bytes);

}  // namespace gpuperf
