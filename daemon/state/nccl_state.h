#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/base/thread_checker.h"
#include "daemon/model/drops.h"
#include "daemon/model/nccl_rows.h"
#include "daemon/model/self_report.h"
#include "daemon/state/nccl_call.h"
#include "daemon/state/nccl_communicator.h"
#include "daemon/state/nccl_groups.h"
#include "daemon/state/nccl_kernel_join.h"

namespace gpuperf {

// Everything that is known of NCCL on this host, by communicator.
//
// Two ranks are of one communicator if they were created with the same unique id, or split off from
// one by the same call with the same color. A handle whose creation was not seen is a communicator
// of its own with one rank: which ranks of other processes belong to it cannot be told.
//
// Thread: loop only; times are passed in. `drops` must outlive it. Bounds: kMaxRanks handles, of
// one process kMaxRanksOfProcess; calls with others, launchers beyond kMaxWorlds and splits beyond
// kMaxSplits are counted (kNcclRanksFull) and left out.
// What is known of a process goes with it.
class NcclState {
 public:
  static constexpr size_t kMaxRanks = 1'024;
  static constexpr size_t kMaxRanksOfProcess = 128;
  static constexpr size_t kMaxWorlds = 4'096;  // processes whose launcher is known
  static constexpr size_t kMaxSplits = 256;    // that are not complete

  // A thread that communicates; the others wait for it, or may.
  struct Watched {
    ProcessKey process;
    uint32_t tid = 0;
    bool operator==(const Watched&) const = default;
  };

  explicit NcclState(DropCounters& drops);
  NcclState(const NcclState&) = delete;
  NcclState& operator=(const NcclState&) = delete;

  void follow(SessionRegistry& sessions) { join_.follow(sessions); }
  void apply(const Function& function, const ReportedCall& call);
  void forget(const ProcessKey& process);
  void advance(int64_t now_mono_ns);

  // Threads of communicators with several ranks on this host, each once.
  std::vector<Watched> list_watched() const;
  void add_look(const Watched& thread, const NcclLook& look);
  // What the launcher of a process gave it in its environment: stands in for what the creation of
  // its communicators would say. 0 ranks = not known.
  void learn_world(const ProcessKey& process, uint32_t rank, uint32_t ranks);

  void fill(NcclReport& report) const;
  void fill(SelfReport& report) const {
    report.add(Bound::kNcclGroups, groups_.count(), NcclGroups::kMaxGroups);
    report.add(Bound::kNcclRanks, handles_.size(), kMaxRanks);
    report.add(Bound::kNcclKernels, join_.count_waiting(), NcclKernelJoin::kMaxKernels);
  }

 private:
  struct HandleOrder {
    bool operator()(const std::pair<ProcessKey, uint64_t>& a,
                    const std::pair<ProcessKey, uint64_t>& b) const {
      if (ProcessOrder()(a.first, b.first)) return true;
      return !ProcessOrder()(b.first, a.first) && a.second < b.second;
    }
  };
  // Of a rank's communicator.
  struct Handle {
    uint64_t communicator = 0;  // its number
    size_t slot = 0;
  };
  struct World {
    uint32_t rank = 0;
    uint32_t ranks = 0;
  };
  // A rank's call that splits a communicator.
  struct Split {
    ProcessKey process;
    uint64_t comm = 0;  // new one; 0 = it is part of none
    uint32_t parent_rank = 0;
    int32_t color = 0;
    int32_t key = 0;
  };
  using Handles = std::map<std::pair<ProcessKey, uint64_t>, Handle, HandleOrder>;

  void create(const NcclCall& call);
  void split(const NcclCall& call);
  void note_split(uint64_t parent_id, uint64_t number, uint32_t ranks, const Split& split);
  void destroy(const ProcessKey& process, uint64_t comm);
  void take(const NcclWork& work);
  Handle* find_or_add(const NcclWork& work);
  Handle* add_handle(const ProcessKey& process, uint64_t comm,
                     const NcclCommunicator::Identity& identity, std::optional<uint32_t> rank);
  void leave(Handles::iterator handle);
  void infer(const ProcessKey& process);

  // Set once in the constructor.
  DropCounters& drops_;
  // Loop thread only.
  ThreadChecker loop_thread_;
  NcclGroups groups_;
  NcclKernelJoin join_;
  std::map<uint64_t, NcclCommunicator> communicators_;  // by number, in order of creation
  uint64_t last_number_ = 0;
  Handles handles_;
  std::map<uint64_t, uint64_t> identified_;  // id -> number
  std::map<ProcessKey, World, ProcessOrder> worlds_;
  // By the parent's id and number: until all of its ranks have called, which on several hosts they
  // never do here.
  std::map<std::pair<uint64_t, uint64_t>, std::vector<Split>> splits_;
  uint64_t calls_ = 0;
};

}  // namespace gpuperf
