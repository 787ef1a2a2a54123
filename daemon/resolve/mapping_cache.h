#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/byte_lru.h"
#include "daemon/base/clock.h"
#include "daemon/base/proc_files.h"
#include "daemon/model/function.h"
#include "daemon/probe/discovery/process_maps.h"
#include "daemon/resolve/code_address.h"
#include "daemon/unwind/address_spaces.h"

namespace gpuperf {

// One executable mapping of a process, with what is known of the file behind it.
struct MappedCode {
  MapEntry mapping;
  enum class State { kNotTried, kOpened, kFailed } state = State::kNotTried;
  // Given by CodeNamer; while kNotTried or kFailed: as opened earlier.
  std::optional<uint64_t> code_id;
  CodeFiles::CodePtr held;  // null = it is to be opened by the mapping
};

// Which of a process's successive mappings are meant.
struct MappingVersion {
  uint32_t number = 0;  // of all processes; another when something was unmapped; 0 = as of now
  std::shared_ptr<const std::vector<MapEntry>> mappings;  // of that number, by address
  HeldCode held;                                          // files that may be on no disk any more
};

// The executable mappings of processes.
//
// Thread: one; `clock` must outlive it. A process that is gone keeps the mappings read while it
// lived. Those of a version are as it says; without one (number 0) they are read again when they
// are older than kMaxAge, or an address asked for is in none of them and they are older than
// kMinAge (reading them holds a lock of the process). Bounds: the mappings of all processes
// `max_bytes`; least recently used leave first, and those that nobody has asked for within
// kKeepGone, of processes that are gone.
class MappingCache {
 public:
  static constexpr std::chrono::milliseconds kMaxAge{1000};
  static constexpr std::chrono::milliseconds kMinAge{100};
  // Stacks taken of a process may wait for their names so long.
  static constexpr std::chrono::seconds kKeepGone{30};

  struct View {
    std::vector<MappedCode> codes;  // by address
    int64_t read_mono_ns = 0;
    int64_t used_mono_ns = 0;  // the last time, by this process
    ProcessKey process;
    std::shared_ptr<const std::vector<MapEntry>> source;  // of a version

    // Null when no mapping covers `address`.
    MappedCode* find(uint64_t address);
  };

  MappingCache(ProcFiles proc, size_t max_bytes, const Clock& clock);

  // Null when the process, or the version, is gone and was not seen before.
  std::shared_ptr<View> find_view(const ProcessKey& process, std::span<const CodeAddress> addresses,
                                  const MappingVersion& version = {});
  // Call now and then.
  void forget_gone(const std::function<bool(const ProcessKey&)>& is_running);

 private:
  bool is_stale(View& view, std::span<const CodeAddress> addresses,
                const MappingVersion& version) const;
  static std::shared_ptr<View> make_view(std::vector<MapEntry> entries, const View* old);
  std::shared_ptr<View> read_view(const ProcessKey& process, const View* old) const;
  void note_use(View& view, const ProcessKey& process) const;

  // Set once in the constructor.
  const ProcFiles proc_;
  const Clock& clock_;
  // Caller's thread only.
  // By version; those without one by process. A forked process may be asked for by its parent's.
  using Key = std::pair<uint32_t, ProcessKey>;
  ByteLru<Key, std::shared_ptr<View>> views_;
};

}  // namespace gpuperf
