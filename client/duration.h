#pragma once

// Times as people type them: --since, --min-duration, thresholds.

#include <cstdint>
#include <string_view>

#include "client/status.h"

namespace gpuperf::client {

// "10m", "1h30m", "2.5ms", "1d"; units ns us µs ms s m h d w. Nanoseconds. A bare number is an
// error: nobody should have to guess its unit.
Result<uint64_t> parse_duration_ns(std::string_view text);

// A duration before `now_unix_ns`, or an RFC 3339 time. Nanoseconds since the epoch.
Result<uint64_t> parse_since_unix_ns(std::string_view text, uint64_t now_unix_ns);

}  // namespace gpuperf::client
