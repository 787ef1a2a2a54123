#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "daemon/base/byte_lru.h"
#include "daemon/base/clock.h"
#include "daemon/base/process_users.h"
#include "daemon/model/drops.h"
#include "daemon/model/function.h"
#include "daemon/probe/discovery/file_opener.h"
#include "daemon/probe/discovery/process_maps.h"
#include "daemon/resolve/perf_map.h"

namespace gpuperf {

// Names of code that processes make at run time, from the perf maps they write:
// /tmp/perf-PID.map, in their own mount namespace and with the pid of their own pid namespace.
//
// Thread: one; `clock` must outlive it. A map is read when an address is first asked for, and what
// was appended to it when one is not in it, or after kMaxAge: a piece at a time, so that whoever
// else waits has his turn. One that took long to read is read again only when kPauseFactor times
// that has passed; meanwhile what was read is what is known (kNamesMapPaused).
// It must be a regular file that belongs to the process's user and has no other name: anybody may
// put files and links into /tmp. Others are refused, counted as kNamesFileRefused.
// Bounds: kMaxFileBytes of each are read and all together take `max_bytes`; one map takes half of
// that at most. For room maps of the user whose maps take most leave, so that none takes the place
// of others': of those the least recently used.
class PerfMapCache {
 public:
  static constexpr uint64_t kMaxFileBytes = uint64_t{64} << 20;
  static constexpr uint64_t kPieceBytes = uint64_t{2} << 20;  // some 10 ms
  static constexpr std::chrono::milliseconds kMaxAge{100};
  static constexpr std::chrono::seconds kKeepGone{10};
  // So that the maps of one process take a twentieth of a CPU at most.
  static constexpr int64_t kPauseFactor = 20;
  // Of a CPU: what is read so fast may be read again at once.
  static constexpr std::chrono::milliseconds kQuickRead{5};

  using CountDrop = std::function<void(DropCause)>;
  PerfMapCache(std::string proc_root, size_t max_bytes, CountDrop count_drop, const Clock& clock);

  // Reads what naming `address` needs. False: there is more to read, by another call.
  bool read_ahead(const ProcessKey& process, uint64_t address);
  // The function at `address`, as far as it was read; the name is valid until the next call. What
  // was read stays known when the process is gone.
  std::optional<PerfMap::Match> find(const ProcessKey& process, uint64_t address);
  // Call now and then: lets go of large maps that nobody asked for within kKeepGone, of processes
  // that are gone.
  void forget_gone(const std::function<bool(const ProcessKey&)>& is_running);

 private:
  struct Kept {
    PerfMap map;
    FileIdentity file;        // as last seen; all zero = none found
    uint64_t read_bytes = 0;  // of the file, whole lines
    int64_t looked_mono_ns = 0;
    bool is_reading = false;  // there is more of the file
    bool is_anew = false;     // it is read from its beginning
    uint64_t cost_ns = 0;     // of this reading, so far
  };
  // When a map may be read again from its beginning, and what was appended to it. Apart from the
  // maps, so that one that leaves is not read again at once.
  struct Pause {
    int64_t anew_mono_ns = 0;
    int64_t appended_mono_ns = 0;
  };

  using Maps = ByteLru<ProcessKey, Kept>;

  Kept* find_kept(const ProcessKey& process);
  void keep(const ProcessKey& process, Kept kept);
  bool is_known(const Kept& kept, uint64_t address, int64_t now_mono_ns) const;
  void look(const ProcessKey& process, Kept& kept, const OpenedFile& opened, int64_t now_mono_ns);
  void read_piece(Kept& kept, const OpenedFile& opened) const;
  void pause(const ProcessKey& process, const Kept& kept);
  std::optional<OpenedFile> open_map(const ProcessKey& process) const;

  // Set once in the constructor.
  const std::string proc_root_;
  const size_t max_bytes_;
  const size_t max_map_bytes_;
  const CountDrop count_drop_;
  const Clock& clock_;
  // Caller's thread only.
  ProcessUsers users_;
  std::map<uint32_t, Maps> maps_;  // by user; none is empty
  ByteLru<ProcessKey, Pause> pauses_;
  std::map<ProcessKey, int64_t> used_mono_ns_;  // large ones, when last
};

// Whether code of that mapping was made at run time: anonymous memory, or a file that exists in
// memory only.
bool is_made_at_run_time(const MapEntry& mapping);

}  // namespace gpuperf
