#include "daemon/probe/attach/hook_notes.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/file_name.h"

namespace gpuperf {
namespace {

// NotFound: the file has no such note.
Result<ProbePlace> find_place(const std::vector<UsdtSite>& sites, std::string_view name,
                              gpuperf_note note) {
  const auto site = std::ranges::find_if(
      sites, [name](const UsdtSite& candidate) { return candidate.name == name; });
  if (site == sites.end()) {
    return absl::NotFoundError("no static probe " GPUPERF_NOTE_PROVIDER ":" + std::string(name));
  }
  return ProbePlace{.offset_bytes = site->file_offset_bytes,
                    .semaphore_offset_bytes = site->semaphore_offset_bytes,
                    .cookie = note};
}

}  // namespace

const std::array<std::string_view, GPUPERF_HOOK_COUNT> HookNotes::kEntries = {
#define GPUPERF_HOOK_NAME(name, arguments) #name,
    GPUPERF_HOOK_ENTRIES(GPUPERF_HOOK_NAME)
#undef GPUPERF_HOOK_NAME
};

bool HookNotes::is_library(std::string_view path) {
  return get_file_name(path).starts_with("libgpuperf_injector.so");
}

bool HookNotes::is_driver(std::string_view path) {
  return get_file_name(path).starts_with("libcuda.so");
}

Status HookNotes::set_reports(const ProbedFile& file, const std::vector<UsdtSite>& sites,
                              gpuperf_launch_reports wanted, Library& library) const {
  struct Signal {
    const char* name;
    gpuperf_note note;
    bool is_wanted;
    ProbeLinks& links;
  };
  const Signal signals[] = {
      {"launches", GPUPERF_NOTE_LAUNCHES, wanted != GPUPERF_LAUNCHES_NONE, library.launches},
      {"each", GPUPERF_NOTE_EACH, wanted == GPUPERF_LAUNCHES_EACH, library.each}};
  for (const Signal& signal : signals) {
    if (!signal.is_wanted) signal.links.clear();
    if (!signal.is_wanted || !signal.links.empty()) continue;
    ASSIGN_OR_RETURN(const ProbePlace place, find_place(sites, signal.name, signal.note));
    RETURN_IF_ERROR(
        add_probe_links(programs_, file, "take_note", std::span(&place, 1), signal.links));
  }
  library.reports = wanted;
  return absl::OkStatus();
}

Status HookNotes::set(const ProbedFile& file, const Wanted& wanted) {
  const auto known = libraries_.find(file.id);
  if (!wanted.count) {
    if (known != libraries_.end()) known->second.count.clear();
    return absl::OkStatus();
  }
  if (known != libraries_.end() && !known->second.count.empty() &&
      known->second.reports == wanted.launches) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(std::vector<UsdtSite> sites, read_usdt_sites(file.fd));
  // A library lives as long as its process. One with other structs has notes of another provider,
  // one from before there were notes has none: their hooks stay idle, and probes count the calls.
  std::erase_if(sites, [](const UsdtSite& site) { return site.provider != GPUPERF_NOTE_PROVIDER; });
  if (sites.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const ProbePlace launch, find_place(sites, "launch", GPUPERF_NOTE_LAUNCH));
  ASSIGN_OR_RETURN(const ProbePlace thread, find_place(sites, "thread", GPUPERF_NOTE_THREAD));
  ASSIGN_OR_RETURN(const ProbePlace slow, find_place(sites, "slow", GPUPERF_NOTE_SLOW));
  ASSIGN_OR_RETURN(const ProbePlace calls, find_place(sites, "calls", GPUPERF_NOTE_CALLS));
  ASSIGN_OR_RETURN(const ProbePlace count, find_place(sites, "count", GPUPERF_NOTE_COUNT));
  Library fresh;
  Library& library = known == libraries_.end() ? fresh : known->second;
  if (library.notes.empty()) {
    const ProbePlace places[] = {launch, thread, slow, calls};
    RETURN_IF_ERROR(add_probe_links(programs_, file, "take_note", places, library.notes));
  }
  RETURN_IF_ERROR(set_reports(file, sites, wanted.launches, library));
  // Last the one from which on hooks count: they find the others there, and till then probes see
  // the calls.
  if (library.count.empty()) {
    RETURN_IF_ERROR(
        add_probe_links(programs_, file, "take_note", std::span(&count, 1), library.count));
  }
  if (known == libraries_.end()) libraries_.emplace(file.id, std::move(fresh));
  return absl::OkStatus();
}

void HookNotes::detach(const std::set<int>& file_ids) {
  std::vector<ProbeLinks> closing;
  for (const int id : file_ids) {
    const auto library = libraries_.extract(id);
    if (library.empty()) continue;
    closing.push_back(std::move(library.mapped().count));
    closing.push_back(std::move(library.mapped().notes));
    closing.push_back(std::move(library.mapped().launches));
    closing.push_back(std::move(library.mapped().each));
  }
  close_links(std::move(closing));
}

bool HookNotes::stop_counting() {
  std::vector<ProbeLinks> closing;
  for (auto& [id, library] : libraries_) {
    if (!library.count.empty()) closing.push_back(std::exchange(library.count, {}));
  }
  const bool has_counted = !closing.empty();
  close_links(std::move(closing));
  return has_counted;
}

void HookNotes::detach_all() {
  std::set<int> file_ids;
  for (const auto& [id, library] : libraries_) file_ids.insert(id);
  detach(file_ids);
}

}  // namespace gpuperf
