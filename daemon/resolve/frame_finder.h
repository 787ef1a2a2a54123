#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/proc_files.h"
#include "daemon/model/drops.h"
#include "daemon/resolve/code_address.h"
#include "daemon/resolve/code_namer.h"
#include "daemon/resolve/mapping_cache.h"
#include "daemon/resolve/perf_map_cache.h"
#include "daemon/resolve/vdso_symbols.h"

namespace gpuperf {

// Names the code at addresses of a process: files it has mapped (CodeNamer), code made at run time
// (PerfMapCache), the vDSO.
//
// Thread: one, the same always; reads /proc and mapped files, so it may take a second for a huge
// file seen for the first time. `clock` must outlive it. Promises: one group of frames per address,
// whatever happens. A process that is gone is answered from what was read while it lived; without
// that, frames hold the address alone. Bounds: those of its parts, by Options.
class FrameFinder {
 public:
  struct Options {
    ProcFiles proc;
    std::string host_root;  // see DebugFileWanted
    size_t table_bytes = size_t{64} << 20;
    // A Python process with PyTorch has some 300 executable mappings, 75 KB: room for 400 of them.
    size_t maps_bytes = size_t{32} << 20;
    // Stacks repeat: some 100,000 places, so that the tables of many large libraries need not all
    // be kept, and are not read again and again.
    size_t name_bytes = size_t{32} << 20;
    // 300,000 functions with names of 80 bytes.
    size_t perf_map_bytes = size_t{32} << 20;
    DwarfWorker::Options dwarf;
    std::function<void(DropCause)> count_drop = [](DropCause) {};
  };

  FrameFinder(const Options& options, const Clock& clock);
  FrameFinder(const FrameFinder&) = delete;
  FrameFinder& operator=(const FrameFinder&) = delete;

  // Reads a piece of what takes long to read, and is needed for names of those: perf maps. False:
  // there is more; call again once others had their turn.
  bool read_ahead(const ProcessKey& process, std::span<const CodeAddress> addresses,
                  const MappingVersion& version = {});
  // One group for each of `addresses`, in their order; of perf maps what was read ahead.
  std::vector<FrameGroup> find_frames(const ProcessKey& process,
                                      std::span<const CodeAddress> addresses,
                                      const MappingVersion& version = {});
  // Call now and then: lets go of what was read of processes that are gone.
  void forget_gone(const std::function<bool(const ProcessKey&)>& is_running) {
    mappings_.forget_gone(is_running);
    perf_maps_.forget_gone(is_running);
  }
  // Reads the mappings while the process lives.
  void prefetch(const ProcessKey& process, const MappingVersion& version = {});

  void reap_workers() { namer_.reap_workers(); }  // any thread

  // What it keeps, for tests and measurements.
  size_t kept_bytes() const { return namer_.table_bytes() + namer_.name_bytes(); }

 private:
  StackFrame find_memory_frame(const ProcessKey& process, const MapEntry& mapping,
                               const CodeAddress& code);
  StackFrame find_vdso_frame(const MapEntry& mapping, const CodeAddress& code) const;
  void name_code(const ProcessKey& process, MappedCode& mapped,
                 std::span<const CodeAddress> addresses, std::span<const size_t> wanted,
                 std::vector<FrameGroup>& groups);

  MappingCache mappings_;
  PerfMapCache perf_maps_;
  CodeNamer namer_;
  const VdsoSymbols vdso_;
};

}  // namespace gpuperf
