#pragma once

#include <vector>

#include "bpf/records.h"
#include "daemon/base/result.h"
#include "daemon/probe/programs.h"

struct bpf_link;

namespace gpuperf {

// Reads which probed calls every thread of the host is inside of, from the threads themselves.
//
// Thread: one. `programs` must outlive it. A look costs about half a microsecond for each thread of
// the host (measured: 1.0 ms for 2,000) and stops no thread: calls that begin or end meanwhile may
// be missing or still there. Bounds: the caller's.
class InFlightReader {
 public:
  explicit InFlightReader(const Programs& programs) : programs_(programs) {}
  ~InFlightReader();
  InFlightReader(const InFlightReader&) = delete;
  InFlightReader& operator=(const InFlightReader&) = delete;

  Result<std::vector<gpuperf_in_flight>> read();

 private:
  const Programs& programs_;
  bpf_link* link_ = nullptr;
};

}  // namespace gpuperf
