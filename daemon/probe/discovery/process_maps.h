#pragma once

// What a process has mapped to run, from the text of /proc/PID/maps.

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/proc_files.h"
#include "daemon/base/result.h"

namespace gpuperf {

// A file as /proc/PID/maps tells it. On btrfs and on overlays with several file systems below,
// fstat of the same file gives another device: good for telling mappings apart, not for opening.
struct MappedInode {
  uint64_t device = 0;  // as makedev
  uint64_t inode = 0;   // 0 = not a file
  auto operator<=>(const MappedInode&) const = default;
};

// One executable mapping.
struct MapEntry {
  uint64_t start_address = 0;
  uint64_t end_address = 0;
  uint64_t offset_bytes = 0;  // in the file, of start_address
  MappedInode file;
  // As the process sees it, " (deleted)" removed; "[vdso]" and the like; empty = anonymous memory.
  std::string path;
  bool deleted = false;
  bool operator==(const MapEntry&) const = default;
};

// Any mapping, and what may be done with it.
struct MemoryMap : MapEntry {
  bool can_write = false;
  bool can_execute = false;
  bool is_shared = false;
  bool contains(uint64_t address) const {
    return address >= start_address && address < end_address;
  }
};

// All mappings of `text`, in its order. Lines that are not of the format are skipped.
std::vector<MemoryMap> parse_maps(std::string_view text);
// The executable mappings of `text`, in its order. Lines that are not of the format are skipped.
std::vector<MapEntry> parse_executable_maps(std::string_view text);

struct ProcessMaps {
  std::vector<MapEntry> entries;
  bool truncated = false;  // the text was longer than kMaxMapsBytes
};
// vm.max_map_count is 65,530 by default, some 6 MB of text; 64 MiB allows for ten times that.
inline constexpr size_t kMaxMapsBytes = size_t{64} << 20;

// Executable mappings of a process; empty for kernel threads and zombies. Errors: as ProcFiles.
Result<ProcessMaps> read_executable_maps(const ProcFiles& files, uint32_t pid);

}  // namespace gpuperf
