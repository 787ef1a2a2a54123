#pragma once

#include <absl/container/flat_hash_map.h>

#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "daemon/view/call_path.h"
#include "daemon/view/time_use.h"

namespace gpuperf {

// A piece of a process's wall time, and what it is put down to.
struct TimePiece {
  uint64_t begin_ns = 0;
  uint64_t end_ns = 0;
  TimeReason reason = TimeReason::kEdge;
  uint32_t subject =
      kNoIndex;              // by the reason: a function, kernel, direction or frame of the table
  uint32_t path = kNoIndex;  // of the table
  uint32_t thread = kNoIndex;
  uint32_t time = kNoIndex;  // of the capture's thread times: the wait
  uint32_t call = kNoIndex;  // which call it is of, however often that was interrupted
  bool is_estimated = false;
  bool is_after_sync = false;
};

// Adds up pieces by reason and subject.
//
// Thread: one. Borrows the capture and the table.
class TimeGroups {
 public:
  TimeGroups(const Capture& capture, const PathTable& table) : capture_(capture), table_(table) {}

  // In order of their beginning. Pieces of no length are nothing.
  void add(const TimePiece& piece);
  // A row for each path and cause of idle time; `table` is that of the constructor.
  void add_idle_paths(PathTable& table, std::vector<PathWeight>& weights) const;
  // Fills the parts, the findings and the verdict.
  void finish(ProcessTimeUse& use);

 private:
  struct Group {
    TimeFinding finding;
    uint64_t end_ns = 0;       // of its last piece
    uint32_t call = kNoIndex;  // likewise
    uint64_t stretch_ns = 0;   // of its last stretch
    absl::flat_hash_map<uint32_t, uint64_t> paths;
    absl::flat_hash_map<uint32_t, uint64_t> threads;
    std::map<std::pair<uint32_t, uint32_t>, uint64_t> wakers;
  };

  std::string name_subject(TimeReason reason, uint32_t subject) const;

  const Capture& capture_;
  const PathTable& table_;
  std::map<std::pair<TimeReason, uint32_t>, Group> groups_;
};

}  // namespace gpuperf
