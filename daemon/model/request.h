#pragma once

// Requests that processes with steps answer, as what they write to connections shows them
// (docs/steps.md).

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "daemon/model/function.h"
#include "daemon/model/histogram.h"
#include "daemon/model/step.h"

namespace gpuperf {

// A client waits for the next part of a response. Which step the part is of is inferred: the last
// that was complete before it was written.
struct RequestWait {
  uint64_t start_mono_ns = 0;
  uint64_t end_mono_ns = 0;     // the part is written; 0 = there is no such wait
  uint64_t last_step = 0;       // id of the last step complete before the end; 0 = none is kept
  uint64_t steps = 0;           // complete within the wait
  uint64_t longest_step = 0;    // id of the longest of these; 0 = there is none
  uint64_t longest_ns = 0;      // its duration
  uint64_t longest_tokens = 0;  // its tokens; 0 = not known
  StepPhase longest_phase = StepPhase::kUnknown;
  bool operator==(const RequestWait&) const = default;
};
inline uint64_t get_duration_ns(const RequestWait& wait) {
  return wait.end_mono_ns - wait.start_mono_ns;
}

struct Request {
  uint64_t id = 0;  // 1 and up, in the order in which responses begin
  ProcessKey process;
  uint32_t tid = 0;            // wrote the first part
  uint64_t start_mono_ns = 0;  // its first byte was read
  uint64_t read_mono_ns = 0;   // its last byte was, as far as before the response
  uint64_t last_mono_ns = 0;   // the newest part was
  bool is_open = true;         // its end was not seen yet
  uint64_t parts = 0;          // of the body
  uint64_t bytes = 0;          // headers included
  RequestWait first;           // for the first part of the body, from `read_mono_ns` on
  RequestWait longest_gap;     // of those between parts of the body
  uint64_t threshold_ns = 0;   // waits at least so long are slow; 0 = not known yet
  bool operator==(const Request&) const = default;
};
// The longest wait of its client.
inline const RequestWait& get_longest_wait(const Request& request) {
  return get_duration_ns(request.longest_gap) > get_duration_ns(request.first) ? request.longest_gap
                                                                               : request.first;
}

struct RequestTotals {
  Histogram first;  // waits for the first part
  uint64_t first_ns = 0;
  Histogram gaps;
  uint64_t gaps_ns = 0;
  uint64_t slow = 0;
  bool operator==(const RequestTotals&) const = default;
};

// The requests of one process.
struct RequestProcess {
  ProcessKey process;
  Owner owner;
  bool exited = false;
  uint64_t requests = 0;  // responses that have begun
  RequestTotals totals;
  std::vector<Request> open;   // by id
  std::deque<Request> recent;  // the newest that have ended, oldest first
  std::deque<Request> slow;    // the newest slow ones, oldest first
};

struct RequestReport {
  std::vector<std::shared_ptr<const RequestProcess>> processes;  // ordered by key
  RequestTotals totals;  // of all processes, living and gone; only grows
};

}  // namespace gpuperf
