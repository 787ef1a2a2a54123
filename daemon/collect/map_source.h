#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "bpf/records.h"
#include "daemon/base/result.h"
#include "daemon/model/bounds.h"
#include "daemon/model/drops.h"
#include "daemon/model/event.h"

namespace gpuperf {

using CellIndex = std::vector<std::pair<gpuperf_cell_key, gpuperf_cell_owner>>;
using CellsByUser = std::map<uint32_t, uint32_t>;
using ShapeTotals = std::vector<std::pair<gpuperf_shape_key, gpuperf_shape_totals>>;

// The totals in the kernel, as the map source sees them. Behind an interface of plain functions so
// that tests run without a kernel: a fake is a vector and a map.
struct CellStore {
  std::span<gpuperf_cell> cells;  // shared with the kernel, once map_cell() said so
  std::function<Status(uint32_t cell)> map_cell;
  uint32_t overflow_cells = 0;  // the first cells: one per function, of no process
  std::span<const uint64_t> losses;
  std::function<Result<CellIndex>()> read_index;
  // How many users beside root, and how many shapes, there is room for.
  uint32_t max_users = 0;
  uint32_t max_shapes = 0;
  // By uid, root left out: what each user has of the cells, which the kernel adds to from there.
  std::function<void(const CellsByUser&)> count_users;
  // Takes the key out of the index and gives the zeroed cell back.
  std::function<void(const gpuperf_cell_key&, uint32_t cell)> release;
  std::function<Result<ShapeTotals>()> read_shapes;  // of all cells
  std::function<void(const gpuperf_shape_key&)> release_shape;
  // What the kernel noted at the first call; empty when it could not.
  std::function<std::optional<gpuperf_process_info>(const ProcessKey&)> read_process_info;
  std::function<void(const ProcessKey&)> forget_process;
};

// Reads the kernel's totals and turns what changed into CellDelta and ShapeDelta events; gives the
// cells of processes that have gone back to the kernel after a last read.
//
// Thread: drain. Nothing is lost by reading late: the kernel keeps the totals, except that a bucket
// wraps after 2^32 calls, an hour at a million calls a second.
// Memory: per cell ever used 0.5 KB with 20 buckets of its histogram in use, 0.8 KB with 60.
class MapSource {
 public:
  // Who a process is; asked once, while it lives. The info is null where the kernel has none.
  using FindOwner = std::function<Owner(const ProcessKey&, const gpuperf_process_info* info)>;
  using IsAlive = std::function<bool(const ProcessKey&)>;
  // Fills in what somebody else is asked for: the pod's name. False = the answer is still to come.
  using NamePod = std::function<bool(Owner&)>;
  struct Who {
    FindOwner find_owner;
    IsAlive is_alive;
    NamePod name_pod;
  };
  // A new process's totals wait in the kernel for its pod's name for that many reads at most, so
  // that they are all told under one name.
  static constexpr uint64_t kReadsHeld = 3;

  MapSource(CellStore store, Who who, DropCounters& drops);

  // Appends what changed since the last read. Exits noted before the previous read end here: first
  // the last deltas, then ProcessExited. On an error nothing is lost: the next read has the rest.
  Status read(std::vector<Event>& events);
  void note_exit(const ProcessKey& process) { exiting_.insert(process); }
  // Notes the exit of every process whose owner is known and that is gone: for exit records the
  // ring lost.
  void sweep();
  // Who a process is as far as is known now; looked up once, while it lives.
  const Owner& get_owner(const ProcessKey& process, std::string_view comm_hint);
  // Of the kernel's maps, as the last reads found them.
  std::vector<BoundLevel> list_levels() const;

 private:
  struct SeenBucket {
    uint32_t bucket = 0;
    uint32_t count = 0;
  };
  struct Seen {
    std::array<uint64_t, 8> header{};  // the counters before `errors`
    std::array<gpuperf_error_count, GPUPERF_ERROR_SLOTS> errors{};
    uint64_t other_errors = 0;
    uint64_t flops = 0;
    uint64_t hooked = 0;
    std::array<uint64_t, GPUPERF_BYTE_SLOTS> bytes{};
    std::vector<SeenBucket> buckets;  // that ever counted, ascending
  };
  struct KnownOwner {
    Owner owner;
    bool is_final = false;
    uint64_t final_at_read = 0;  // at the latest
  };
  struct CellUser {
    uint32_t cell = 0;
    uint32_t function_id = 0;
    ProcessKey process;
    std::string_view comm;
  };
  // Dimensions and types.
  using Shape = std::pair<std::array<uint64_t, 4>, std::array<uint16_t, 4>>;

  bool read_cell(const CellUser& user, std::vector<Event>& events);
  static void read_buckets(gpuperf_cell& cell, Seen& seen, CellDelta& delta);
  static void read_errors(gpuperf_cell& cell, Seen& seen, CellDelta& delta);
  Status read_shapes(std::span<const CellUser> users, std::vector<Event>& events);
  bool is_overflow_used() const;
  void release_exited(const CellIndex& index);
  void release(const gpuperf_cell_key& key, uint32_t cell);
  Owner make_owner(const CellUser& user);
  KnownOwner& find_known_owner(const ProcessKey& process, std::string_view comm_hint);
  bool is_held(const CellUser& user);
  void count_losses();

  CellStore store_;
  const Who who_;
  DropCounters& drops_;
  std::vector<std::unique_ptr<Seen>> seen_;  // by cell; null = not used yet
  std::map<uint32_t, std::map<Shape, gpuperf_shape_totals>> seen_shapes_;  // by cell
  // As last read.
  size_t used_cells_ = 0;
  size_t used_users_ = 0;
  size_t used_shapes_ = 0;
  bool shapes_changed_ = false;  // since they were read
  uint64_t reads_ = 0;
  std::map<ProcessKey, KnownOwner> owners_;  // of processes that own cells, or that were asked for
  std::set<ProcessKey> exiting_;  // noted since the last read: their threads may still be counting
  std::set<ProcessKey> exited_;   // noted before the last read
  std::array<uint64_t, GPUPERF_LOSS_COUNT> seen_losses_{};
};

}  // namespace gpuperf
