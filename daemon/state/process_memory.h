#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "daemon/base/shares.h"
#include "daemon/model/memory.h"
#include "daemon/state/flat_table.h"
#include "daemon/state/memory_calls.h"
#include "daemon/state/memory_growth.h"

namespace gpuperf {

// What one process holds, from its calls in the order of their ends.
//
// Calls are reported when they end, and memory is free before the call that released it has ended.
// So another thread may have been given an address again by then: its allocation is reported first.
// A release is of an allocation only if it began after that had ended; an allocation at an address
// that is still held means that the release of the former one is yet to come.
//
// Thread: one. Bounds: pieces of memory and mappings are taken from `pieces`, sites from `sites`,
// both shared by all processes and outliving it; what finds no place is not counted, which `gaps`
// says. A stack beyond kMaxSites counts as none. kMaxOwed releases may be yet to come, for kOwedNs.
class ProcessMemory {
 public:
  static constexpr size_t kMaxOwed = 1'024;
  static constexpr uint64_t kOwedNs = 60'000'000'000;
  static constexpr size_t kMaxSites = size_t{1} << 16;  // ever; most become one with another

  struct Room {
    Shares& pieces;
    Shares& sites;
    Shares::Holder holder;
  };

  ProcessMemory(const ProcessKey& process, const Room& room);
  ~ProcessMemory();
  ProcessMemory(const ProcessMemory&) = delete;
  ProcessMemory& operator=(const ProcessMemory&) = delete;

  // A call that succeeded. `site`: of an allocation, of find_site(). False: there was no place.
  bool apply(const MemoryCall& call, uint32_t site);
  struct FoundSite {
    uint32_t site = 0;
    bool is_new = false;      // its stack is to be named
    bool is_refused = false;  // there was no place: it is that of all such stacks
  };
  // Where memory of that kind and stack is counted.
  FoundSite find_site(MemoryKind kind, uint32_t function_id, uint64_t stack_id);
  // The frames have names. Sites that are the same by these become one.
  void set_stack(uint32_t site, std::shared_ptr<const Stack> stack);

  void add_gaps(uint32_t gaps) { row_.gaps |= gaps; }
  void set_first(uint64_t mono_ns) { row_.first_mono_ns = mono_ns; }
  void set_owner(Owner owner) { row_.owner = std::move(owner); }
  void set_on_gpus(std::vector<MemoryOnGpu> gpus);
  // To be called every SiteGrowth::kShortNs.
  void end_window(int64_t now_mono_ns);

  const MemoryProcess& row() const { return row_; }  // without sites
  MemoryProcess make_row() const;

 private:
  struct Piece {
    uint64_t bytes = 0;
    uint64_t start_ns = 0;
    uint64_t end_ns = 0;
    uint32_t site = 0;
    uint32_t opens = 1;  // of memory of another process: how often it is to be released
  };
  // Physical memory: it lasts as long as a handle or a mapping of it.
  struct Physical {
    Piece piece;
    uint32_t references = 0;
  };
  struct Reference {
    uint32_t physical = 0;
    uint64_t end_ns = 0;
    uint32_t count = 1;  // of a handle: how often it is to be released
  };
  struct Owed {
    uint64_t key = 0;
    uint64_t before_ns = 0;  // it began before that
  };
  struct Site {
    MemorySite row;
    SiteGrowth growth;
  };
  using References = std::map<uint64_t, Reference>;            // by handle or address
  using SiteKey = std::tuple<MemoryKind, uint32_t, uint64_t>;  // kind, function, stack

  bool allocate(const MemoryCall& call, uint32_t site);
  bool allocate_virtual(const MemoryCall& call, const Piece& piece);
  void release(const MemoryCall& call);
  bool map(const MemoryCall& call);
  void unmap(const MemoryCall& call);
  void retain(const MemoryCall& call);
  void begin_context(const MemoryCall& call);
  void end_context(const MemoryCall& call);
  void release_before(uint64_t mono_ns);

  void add(const Piece& piece);
  void take_off(const Piece& piece);
  void drop_reference(uint32_t physical);
  void displace(uint64_t key, uint64_t end_ns);
  bool take_owed(uint64_t key, uint64_t start_ns);
  void note_unknown_release();
  void note_missed_release();
  bool take_place();
  void return_places(uint64_t count) { room_.pieces.give_back(room_.holder, count); }
  Site& get_site(uint32_t site);
  void merge(uint32_t from, uint32_t into);
  void find_oldest();

  const Room room_;
  MemoryProcess row_;
  FlatTable<uint64_t, Piece> pieces_;  // by key
  References handles_, mappings_;
  std::map<uint32_t, Physical> physicals_;
  uint32_t last_physical_ = 0;
  std::deque<Owed> owed_;                          // oldest first
  std::map<uint64_t, uint32_t> primary_contexts_;  // by device: how often retained
  std::set<uint64_t> contexts_;                    // others
  // By number; the first kMemoryKindCount take what has none of its own.
  std::map<uint32_t, Site> sites_;
  std::vector<uint32_t> merged_into_;  // by number; itself: it is in sites_
  std::map<SiteKey, uint32_t> site_index_;
};

}  // namespace gpuperf
