#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "daemon/base/byte_lru.h"
#include "daemon/base/clock.h"
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
// was appended to it when one is not in it, or after kMaxAge. It must be a regular file that
// belongs to the process's user and has no other name: anybody may put files and links into /tmp.
// Others are refused, counted as kNamesFileRefused. Bounds: kMaxFileBytes of each are read and all
// together take `max_bytes`, least recently used leave first; one map takes half of that at most.
class PerfMapCache {
 public:
  static constexpr uint64_t kMaxFileBytes = uint64_t{64} << 20;
  static constexpr std::chrono::milliseconds kMaxAge{100};

  using CountDrop = std::function<void(DropCause)>;
  PerfMapCache(std::string proc_root, size_t max_bytes, CountDrop count_drop, const Clock& clock);

  // The function at `address`; the name is valid until the next call. What was read stays known
  // when the process is gone.
  std::optional<PerfMap::Match> find(const ProcessKey& process, uint64_t address);

 private:
  struct Kept {
    PerfMap map;
    FileIdentity file;        // as last read; all zero = none found
    uint64_t read_bytes = 0;  // of the file, whole lines
    int64_t looked_mono_ns = 0;
  };

  void refresh(const ProcessKey& process, Kept& kept) const;
  std::optional<OpenedFile> open_map(const ProcessKey& process) const;

  // Set once in the constructor.
  const std::string proc_root_;
  const size_t max_map_bytes_;
  const CountDrop count_drop_;
  const Clock& clock_;
  // Caller's thread only.
  ByteLru<ProcessKey, Kept> maps_;
};

// Whether code of that mapping was made at run time: anonymous memory, or a file that exists in
// memory only.
bool is_made_at_run_time(const MapEntry& mapping);

}  // namespace gpuperf
