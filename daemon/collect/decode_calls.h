#pragma once

#include <cstddef>
#include <span>
#include <variant>

#include "daemon/base/result.h"
#include "daemon/model/event.h"

namespace gpuperf {

// A record of the BPF rings, decoded. `SlowCallEvent::owner` is left empty: the record does not
// know it.
using DecodedRecord = std::variant<SlowCallEvent, ProcessExited>;

// kUnimplemented: a kind this version does not know. kInvalidArgument: shorter than its kind, or
// its length field disagrees. Never reads outside `bytes`.
Result<DecodedRecord> decode_record(std::span<const std::byte> bytes);

}  // namespace gpuperf
