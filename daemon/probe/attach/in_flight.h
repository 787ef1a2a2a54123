#pragma once

#include <vector>

#include "bpf/records.h"
#include "daemon/base/result.h"
#include "daemon/probe/attach/programs.h"

struct bpf_link;

namespace gpuperf {

// Reads what a BPF iterator over tasks tells of every thread of the host, from the threads
// themselves: records of one struct, one behind the other.
//
// Thread: one. `programs` must outlive it. A look costs about half a microsecond for each thread of
// the host (measured: 1.0 ms for 2,000) and stops no thread: calls that begin or end meanwhile may
// be missing or still there. Bounds: the caller's.
template <typename Record>
class TaskReader {
 public:
  // `program_name`: the iterator.
  TaskReader(const Programs& programs, const char* program_name)
      : programs_(programs), program_name_(program_name) {}
  ~TaskReader();
  TaskReader(const TaskReader&) = delete;
  TaskReader& operator=(const TaskReader&) = delete;

  Result<std::vector<Record>> read();

 private:
  const Programs& programs_;
  const char* const program_name_;
  bpf_link* link_ = nullptr;
};

// Which probed calls every thread is inside of: iterator list_in_flight.
using InFlightReader = TaskReader<gpuperf_in_flight>;
// Those past their threshold: iterator list_slow_in_flight.
using SlowInFlightReader = TaskReader<gpuperf_slow_in_flight>;

// What probes cost each thread: iterator list_thread_costs.
using ThreadCostReader = TaskReader<gpuperf_thread_cost>;

extern template class TaskReader<gpuperf_in_flight>;
extern template class TaskReader<gpuperf_slow_in_flight>;
extern template class TaskReader<gpuperf_thread_cost>;

}  // namespace gpuperf
