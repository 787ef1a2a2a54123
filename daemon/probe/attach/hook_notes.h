#pragma once

#include <array>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "bpf/hook_notes.h"
#include "daemon/base/result.h"
#include "daemon/probe/attach/probe_links.h"
#include "daemon/probe/attach/programs.h"
#include "daemon/probe/elf/usdt_notes.h"

namespace gpuperf {

// Probes the notes by which launch hooks hand over what they counted (bpf/hook_notes.h), in every
// copy of the injected library. While a file's are probed, the kernel holds the semaphores up by
// which the hooks know, in every process that maps it. When counting ends, the notes stay probed:
// what was counted comes within 100 ms, and calls in flight when they have ended.
//
// Thread: one. Owns the links; destroying it removes every probe. `programs` must outlive it.
// Anyone can have the notes in a file of this name probed: seven places at most.
class HookNotes {
 public:
  struct Wanted {
    bool count = false;  // the hooks count, instead of the probes in the driver
    gpuperf_launch_reports launches = GPUPERF_LAUNCHES_NONE;
  };
  static constexpr const char* kLibraryGlob = "libgpuperf_injector.so*";
  // Symbols of the driver, by enum gpuperf_hook_entry.
  static const std::array<std::string_view, GPUPERF_HOOK_COUNT> kEntries;

  explicit HookNotes(const Programs& programs) : programs_(programs) {}
  HookNotes(const HookNotes&) = delete;
  HookNotes& operator=(const HookNotes&) = delete;

  static bool is_library(std::string_view path);
  static bool is_driver(std::string_view path);

  // Has exactly what is wanted of the file's notes probed. An error leaves it as it was.
  Status set(const ProbedFile& file, const Wanted& wanted);
  void detach(const std::set<int>& file_ids);
  // Has the hooks count no longer; false = none did.
  bool stop_counting();
  void detach_all();

 private:
  struct Library {
    ProbeLinks notes;
    ProbeLinks count;
    ProbeLinks launches;
    ProbeLinks each;
    gpuperf_launch_reports reports = GPUPERF_LAUNCHES_NONE;
  };

  Status set_reports(const ProbedFile& file, const std::vector<UsdtSite>& sites,
                     gpuperf_launch_reports wanted, Library& library) const;

  const Programs& programs_;
  std::map<int, Library> libraries_;  // by the file's id
};

}  // namespace gpuperf
