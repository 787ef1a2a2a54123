#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "bpf/records.h"
#include "daemon/base/result.h"
#include "daemon/model/drops.h"
#include "daemon/model/event.h"

namespace gpuperf {

// The totals in the kernel, as the map source sees them. Behind an interface of plain functions so
// that tests run without a kernel: a fake is a vector and a map.
struct CellStore {
  std::span<gpuperf_cell> cells;  // shared with the kernel
  uint32_t overflow_cells = 0;    // the first cells: one per function, of no process
  std::span<const uint64_t> losses;
  std::function<Result<std::vector<std::pair<gpuperf_cell_key, gpuperf_cell_owner>>>()> read_index;
  // Takes the key out of the index and gives the zeroed cell back.
  std::function<void(const gpuperf_cell_key&, uint32_t cell)> release;
  std::function<void(const ProcessKey&)> forget_process;
};

// Reads the kernel's totals and turns what changed into CellDelta events; gives the cells of
// processes that have gone back to the kernel after a last read.
//
// Thread: drain. Nothing is lost by reading late: the kernel keeps the totals, except that a bucket
// wraps after 2^32 calls, an hour at a million calls a second.
class MapSource {
 public:
  using FindOwner = std::function<Owner(const ProcessKey&)>;  // while it lives, once
  using IsAlive = std::function<bool(const ProcessKey&)>;

  MapSource(CellStore store, FindOwner find_owner, IsAlive is_alive, DropCounters& drops);

  // Appends what changed since the last read. Exits noted before the previous read end here: first
  // the last deltas, then ProcessExited.
  Status read(std::vector<Event>& events);
  void note_exit(const ProcessKey& process) { exiting_.insert(process); }
  // Notes the exit of every process that owns cells and is gone: for exit records the ring lost.
  void sweep();
  // Who a process is; looked up once, while it lives.
  const Owner& get_owner(const ProcessKey& process, const std::string& comm_hint);

 private:
  struct Seen {
    std::array<uint64_t, 8> header{};  // the counters before `errors`
    std::array<gpuperf_error_count, GPUPERF_ERROR_SLOTS> errors{};
    uint64_t other_errors = 0;
    std::array<uint32_t, GPUPERF_BUCKETS> buckets{};
  };
  void read_cell(uint32_t cell, uint32_t function_id, const ProcessKey& process,
                 const std::string& comm, std::vector<Event>& events);
  void count_losses();

  CellStore store_;
  const FindOwner find_owner_;
  const IsAlive is_alive_;
  DropCounters& drops_;
  std::map<uint32_t, std::unique_ptr<Seen>> seen_;  // by cell, only cells ever used
  std::map<ProcessKey, Owner> owners_;              // of processes that own cells
  std::set<ProcessKey> exiting_;  // noted since the last read: their threads may still be counting
  std::set<ProcessKey> exited_;   // noted before the last read
  std::array<uint64_t, GPUPERF_LOSS_COUNT> seen_losses_{};
};

}  // namespace gpuperf
