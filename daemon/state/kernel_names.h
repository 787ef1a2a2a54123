#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "daemon/base/thread_checker.h"
#include "daemon/model/drops.h"
#include "daemon/model/event.h"

namespace gpuperf {

// What the kernels behind CUfunction and CUkernel handles are called, as the calls that made the
// handles said: a handle means something only within its process.
//
// Thread: loop only. Names are copied in and out; `drops` must outlive it.
// Bounds: `max_names`; beyond, the name used longest ago leaves, counted (kNamesFull). A name comes
// with at most 255 bytes (bpf/records.h cuts longer ones). Names leave with their process.
// Memory: 180 bytes and the name; 65,536 of 255 bytes are 28 MB.
// Not here: demangling.
class KernelNames {
 public:
  static constexpr size_t kMaxNames = 65'536;

  explicit KernelNames(DropCounters& drops, size_t max_names = kMaxNames)
      : max_names_(max_names), drops_(drops) {}
  KernelNames(const KernelNames&) = delete;
  KernelNames& operator=(const KernelNames&) = delete;

  // The newest name of a handle counts: a module that was unloaded may leave its handles to
  // another.
  void apply(const HandleNamed& named);
  void apply(const ProcessExited& exited);

  size_t count() const { return names_.size(); }
  size_t max_names() const { return max_names_; }

  // As the module spells it (mangled). Empty = the call that made the handle was not seen.
  std::optional<std::string> find(const ProcessKey& process, uint64_t handle);

 private:
  using Key = std::pair<ProcessKey, uint64_t>;  // process first: its names stand together
  struct Entry {
    std::string name;
    std::list<Key>::iterator use;  // in uses_
  };

  // Set once in the constructor.
  const size_t max_names_;
  DropCounters& drops_;
  // Loop thread only.
  ThreadChecker loop_thread_;
  std::map<Key, Entry> names_;
  std::list<Key> uses_;  // of names_, used longest ago first
};

}  // namespace gpuperf
