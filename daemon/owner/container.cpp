#include "daemon/owner/container.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "daemon/base/proc_text.h"
#include "daemon/owner/slurm.h"

namespace gpuperf {
namespace {

constexpr size_t kIdDigits = 64;
constexpr size_t kShownIdDigits = 12;  // what `docker ps` and `crictl ps` show (13 there)
constexpr size_t kMaxCommBytes = 64;
// Some 13 hierarchies of paths of at most 4 KiB.
constexpr size_t kMaxCgroupBytes = size_t{64} << 10;

bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

// "docker-<id>.scope", "cri-containerd-<id>.scope", "kubepods-….slice:cri-containerd:<id>", "<id>".
std::string_view find_container_id(std::string_view component) {
  constexpr std::string_view kScope = ".scope";
  if (component.ends_with(kScope)) component.remove_suffix(kScope.size());
  if (component.size() < kIdDigits) return {};
  const std::string_view prefix = component.substr(0, component.size() - kIdDigits);
  const std::string_view id = component.substr(prefix.size());
  if (!std::ranges::all_of(id, is_hex)) return {};
  if (!prefix.empty() && prefix.back() != '-' && prefix.back() != ':') return {};
  // "crio-conmon-<id>.scope" holds the container's monitor, not the container.
  if (prefix.find("conmon") != std::string_view::npos) return {};
  return id;
}

// The uid at the front of `text`: 8-4-4-4-12 digits with dashes, or underscores where systemd names
// the slice, or 32 digits alone (static pods).
std::string take_pod_uid(std::string_view text) {
  constexpr size_t kDashes[] = {8, 13, 18, 23};
  constexpr size_t kUidLength = 36;
  constexpr size_t kBareLength = 32;
  const auto digits = static_cast<size_t>(std::ranges::find_if_not(text, is_hex) - text.begin());
  if (digits == kBareLength) return std::string(text.substr(0, kBareLength));
  if (text.size() < kUidLength) return {};
  std::string uid(text.substr(0, kUidLength));
  for (size_t i = 0; i < kUidLength; ++i) {
    const bool is_dash = std::ranges::find(kDashes, i) != std::end(kDashes);
    if (is_dash ? uid[i] != '-' && uid[i] != '_' : !is_hex(uid[i])) return {};
    if (is_dash) uid[i] = '-';
  }
  const bool ends = text.size() == kUidLength || !is_hex(text[kUidLength]);
  return ends ? uid : std::string();
}

// "pod<uid>", "kubepods-burstable-pod<uid>.slice".
std::string find_pod_uid(std::string_view component) {
  constexpr std::string_view kPod = "pod";
  for (size_t at = component.find(kPod); at != std::string_view::npos;
       at = component.find(kPod, at + 1)) {
    if (at > 0 && component[at - 1] != '-') continue;
    std::string uid = take_pod_uid(component.substr(at + kPod.size()));
    if (!uid.empty()) return uid;
  }
  return {};
}

// Takes the text up to `separator` off the front.
std::string_view take_until(std::string_view& text, char separator) {
  const size_t length = std::min(text.find(separator), text.size());
  const std::string_view taken = text.substr(0, length);
  text.remove_prefix(std::min(length + 1, text.size()));
  return taken;
}

// Takes in what one component of a path says; the innermost, which comes last, counts.
void take_component(std::string_view component, ContainerIds& ids) {
  if (std::string uid = find_pod_uid(component); !uid.empty()) ids.pod_uid = std::move(uid);
  const std::string_view id = find_container_id(component);
  if (!id.empty()) ids.container = id.substr(0, kShownIdDigits);
}

ContainerIds parse_path(std::string_view path) {
  ContainerIds ids;
  while (!path.empty()) take_component(take_until(path, '/'), ids);
  return ids;
}

ContainerIds parse_info(const gpuperf_process_info& info) {
  std::array<std::string_view, GPUPERF_CGROUP_LEVELS> names;
  for (size_t i = 0; i < names.size(); ++i) {
    names[i] = {info.cgroup[i], ::strnlen(info.cgroup[i], sizeof info.cgroup[i])};
  }
  return parse_cgroup_names(names);
}

// Empty when it cannot be read.
std::string read_text(std::string_view proc_root, uint32_t pid, std::string_view name,
                      size_t max_bytes) {
  Result<BoundedText> text = read_bounded_text(get_proc_path(proc_root, pid, name), max_bytes);
  return text.ok() ? std::move(text->text) : std::string();
}

}  // namespace

ContainerIds parse_cgroup(std::string_view text) {
  ContainerIds best;
  while (!text.empty()) {
    std::string_view line = take_until(text, '\n');
    (void)take_until(line, ':');  // number of the hierarchy
    (void)take_until(line, ':');  // its controllers; the rest is the path, which may hold colons
    ContainerIds ids = parse_path(line);
    if (!ids.container.empty()) return ids;
    if (best.pod_uid.empty()) best = std::move(ids);
  }
  return best;
}

ContainerIds parse_cgroup_names(std::span<const std::string_view> names) {
  ContainerIds ids;
  for (size_t i = names.size(); i > 0; --i) take_component(names[i - 1], ids);
  return ids;
}

Owner read_owner(const ProcFiles& files, const ProcessKey& process,
                 const gpuperf_process_info* info, WorldTask* world) {
  ContainerIds ids = info == nullptr ? ContainerIds() : parse_info(*info);
  Owner owner;
  std::string comm = read_text(files.root(), process.pid, "comm", kMaxCommBytes);
  if (comm.ends_with('\n')) comm.pop_back();
  const std::string cgroup = read_text(files.root(), process.pid, "cgroup", kMaxCgroupBytes);
  const Result<BoundedText> environment = files.read_environment(process.pid, kMaxEnvironmentBytes);
  // Asked last: then all of the above was this process's and not its successor's.
  if (is_running_since(files.root(), process.pid, process.start_boot_ns)) {
    ContainerIds read = parse_cgroup(cgroup);
    if (ids.container.empty()) ids.container = std::move(read.container);
    if (ids.pod_uid.empty()) ids.pod_uid = std::move(read.pod_uid);
    SlurmTask slurm = environment.ok() ? parse_slurm_task(environment->text) : SlurmTask();
    if (world != nullptr && environment.ok()) *world = parse_world_task(environment->text);
    owner = {.comm = std::move(comm),
             .slurm_job = std::move(slurm.job),
             .slurm_rank = std::move(slurm.rank)};
  }
  owner.container = std::move(ids.container);
  owner.pod = std::move(ids.pod_uid);
  return owner;
}

}  // namespace gpuperf
