#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"

namespace gpuperf {

// Hears of every executable mapping made on the host, through the kernel's perf MMAP2 records: one
// software event per CPU, no cost to anything but an executable mmap, no polling.
//
// Thread: one. Owns the events and their rings (32 KiB per CPU). A ring that overflows reports how
// many records were lost; the caller then scans. Descriptors become readable at the first record.
class MappingEvents {
 public:
  // Any CPU at all must work; needs CAP_PERFMON (or kernel.perf_event_paranoid below 1).
  static Result<std::unique_ptr<MappingEvents>> open();
  ~MappingEvents();
  MappingEvents(const MappingEvents&) = delete;
  MappingEvents& operator=(const MappingEvents&) = delete;

  std::vector<int> descriptors() const;
  // `on_mapping(pid, file name)`: pid in the initial pid namespace, the name as the process sees it
  // and at most 4 KiB of it; valid during the call. Returns how many records the kernel dropped.
  uint64_t drain(const std::function<void(uint32_t pid, std::string_view name)>& on_mapping);

 private:
  struct Ring;
  MappingEvents() = default;
  std::vector<std::unique_ptr<Ring>> rings_;
};

}  // namespace gpuperf
