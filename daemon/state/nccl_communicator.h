#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/model/drops.h"
#include "daemon/model/nccl_rows.h"
#include "daemon/state/nccl_groups.h"
#include "daemon/state/nccl_steps.h"
#include "daemon/state/nccl_waits.h"

namespace gpuperf {

// One look at a rank's thread.
struct NcclLook {
  uint64_t mono_ns = 0;
  NcclActivity activity = NcclActivity::kUnknown;
  uint32_t syscall = UINT32_MAX;
  bool operator==(const NcclLook&) const = default;
};

// One communicator with its ranks on this host: how much of what they communicate, how long they
// wait for one another, and which of them the others wait for.
//
// Thread: loop only; times are passed in. Bounds: those of NcclSteps; kMaxLooks of each rank; sizes
// are powers of two. Not here: joining kernels with calls (NcclKernelJoin).
class NcclCommunicator {
 public:
  // A verdict is of one window.
  static constexpr uint64_t kWindowNs = 10'000'000'000;
  // Of a window that others wait for a rank alone: less is not worth a name.
  static constexpr double kMinShare = 0.05;
  // Ranks that begin within this of each other are not late: what two calls of the clock and one
  // switch of threads may differ by.
  static constexpr uint64_t kNoticeableNs = 100'000;
  // Then others wait for a rank so long that it looks stuck.
  static constexpr uint64_t kStallNs = 10'000'000'000;
  static constexpr size_t kMaxLooks = 128;  // 25 s

  struct Identity {
    uint64_t id = 0;
    bool is_identified = false;
    uint32_t ranks = 0;  // 0 = not known
    bool operator==(const Identity&) const = default;
  };
  enum class Stream : uint8_t { kCollectives, kAllToAlls, kSingle };
  // Where a work went.
  struct Place {
    size_t slot = 0;
    Stream stream{};
    uint64_t number = 0;
    NcclOperation operation{};
    uint32_t calls = 0;
  };

  NcclCommunicator(const Identity& identity, DropCounters& drops);

  const Identity& identity() const { return identity_; }
  size_t add_rank(const ProcessKey& process, uint64_t comm, std::optional<uint32_t> rank);
  void remove_rank(size_t slot);
  size_t count_ranks() const;
  // From the environment, where the creation does not say it. 0 ranks = not known.
  void infer(size_t slot, uint32_t rank, uint32_t ranks);
  // Of one that was split off: known when all ranks of the parent have called.
  void set_rank(size_t slot, uint32_t rank, uint32_t ranks);
  void set_expects_kernels(size_t slot, bool expects) { slots_[slot].expects_kernels = expects; }

  Place add(size_t slot, const NcclWork& work);
  // A kernel of it; `is_first`: none was there before.
  void add_kernel(const Place& place, bool is_first, uint64_t start_mono_ns, uint64_t end_mono_ns);
  void add_look(size_t slot, const NcclLook& look);
  void advance(uint64_t now_mono_ns);

  const NcclRankRow& row(size_t slot) const { return ranks_[slot].row; }
  uint64_t count_splits(size_t slot) { return ranks_[slot].splits++; }
  std::shared_ptr<const NcclCommunicatorRow> share() const;

 private:
  struct Rank {
    NcclRankRow row;
    std::deque<NcclLook> looks{};
    uint64_t splits = 0;
  };
  struct Tally {
    uint64_t caused_ns = 0;
    uint64_t late_steps = 0;
  };
  struct Window {
    std::array<uint64_t, kNcclBases> steps{};
    std::array<std::vector<Tally>, kNcclBases> tallies;             // by slot
    std::vector<std::array<uint32_t, kNcclActivities>> activities;  // by slot
  };

  NcclSteps& get_steps(Stream stream, size_t slot);
  Stream find_stream(const NcclWork& work) const;
  void settle(NcclSteps& steps, const std::vector<NcclSteps::Slot>& slots, bool is_of_all,
              uint64_t now_mono_ns);
  void count(const NcclSteps::Step& step);
  void judge_waits(const NcclSteps::Step& step);
  void note_wait(NcclBasis basis, const std::vector<NcclWaits::Start>& starts,
                 const NcclWaits::Wait& wait);
  void note_activities(const NcclWaits::Wait& wait);
  void end_window(uint64_t now_mono_ns);
  std::optional<NcclLateness> find_late(NcclBasis basis, uint64_t window_ns, double covered) const;
  void find_stall(uint64_t now_mono_ns);
  NcclSizeRow& get_size(NcclOperation operation, uint64_t bytes);

  // Set once in the constructor.
  DropCounters& drops_;
  // Loop thread only.
  Identity identity_;
  bool is_in_step_ = true;
  bool is_size_inferred_ = false;
  std::vector<Rank> ranks_;             // by slot
  std::vector<NcclSteps::Slot> slots_;  // likewise
  NcclSteps collectives_;
  NcclSteps all_to_alls_;
  std::vector<NcclSteps> singles_;  // by slot: each of one rank, in its slot 0
  std::map<std::pair<NcclOperation, uint64_t>, NcclSizeRow> sizes_;
  std::array<NcclWaits, kNcclBases> waits_;
  Window window_;
  uint64_t window_begin_mono_ns_ = 0;
  std::optional<NcclLateness> lateness_;                       // its index is a slot here
  std::optional<NcclStall> stall_;                             // likewise
  mutable std::shared_ptr<const NcclCommunicatorRow> shared_;  // null = changed since
};

}  // namespace gpuperf
