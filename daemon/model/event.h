#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "bpf/records.h"
#include "daemon/model/function.h"

namespace gpuperf {

// What one cell gained since it was last read.
struct CellDelta {
  uint32_t function_id = 0;
  ProcessKey process;
  Owner owner;
  uint64_t calls = 0;
  int64_t abandoned = 0;  // negative when a call given up for lost returned after all
  uint64_t total_ns = 0;
  uint64_t self_ns = 0;
  uint64_t min_ns = 0;  // of the cell's whole life; 0 = none completed
  uint64_t max_ns = 0;  // of the cell's whole life
  uint64_t slow_calls = 0;
  uint64_t untimed = 0;
  uint64_t other_errors = 0;
  std::vector<std::pair<int32_t, uint64_t>> errors;  // code -> count
  std::vector<std::pair<uint16_t, uint32_t>>
      buckets;  // bucket -> count; their sum = calls completed
  bool operator==(const CellDelta&) const = default;
};

// The last thread of a process has gone; all its deltas came before.
struct ProcessExited {
  ProcessKey process;
  bool operator==(const ProcessExited&) const = default;
};

// A slow call as the kernel recorded it.
struct SlowCallEvent {
  uint32_t function_id = 0;
  ProcessKey process;
  Owner owner;
  uint32_t tid = 0;
  std::string comm;  // of the calling thread
  uint64_t start_mono_ns = 0;
  uint64_t duration_ns = 0;
  uint64_t threshold_ns = 0;
  bool has_arguments = false;
  std::array<uint64_t, GPUPERF_ARGUMENTS> arguments{};
  uint64_t return_value = 0;
  std::vector<uint64_t> user_stack;  // innermost first
  bool operator==(const SlowCallEvent&) const = default;
};

using Event = std::variant<CellDelta, ProcessExited, SlowCallEvent>;

}  // namespace gpuperf
