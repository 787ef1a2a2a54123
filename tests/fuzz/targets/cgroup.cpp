// Any bytes as the small files of /proc that say whose a process is: cgroup, environ, status.

#include "daemon/base/process_status.h"
#include "daemon/owner/container.h"
#include "daemon/owner/slurm.h"
#include "tests/fuzz/fuzz_target.h"

namespace gpuperf::fuzz {
namespace {

constexpr size_t kContainerIdBytes = 12;
constexpr size_t kPodUidBytes = 36;
constexpr size_t kBarePodUidBytes = 32;  // of static pods
constexpr size_t kSlurmValueBytes = 64;

std::string check(const ContainerIds& ids) {
  if (!ids.container.empty() && ids.container.size() != kContainerIdBytes) return "no container id";
  const size_t uid_bytes = ids.pod_uid.size();
  return uid_bytes == 0 || uid_bytes == kPodUidBytes || uid_bytes == kBarePodUidBytes
             ? ""
             : "no pod uid";
}

}  // namespace

std::string find_fault(std::string_view bytes) {
  std::vector<std::string_view> names;
  for (std::string_view rest = bytes; names.size() < 64;) {
    const size_t end = rest.find('/');
    names.push_back(rest.substr(0, end));
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  const SlurmTask task = parse_slurm_task(bytes);
  if (task.job.size() > kSlurmValueBytes || task.rank.size() > kSlurmValueBytes) {
    return "a Slurm value beyond its bound";
  }
  (void)parse_process_status(bytes);
  (void)parse_inner_id(bytes, 71);
  return check(parse_cgroup(bytes)) + check(parse_cgroup_names(names));
}

}  // namespace gpuperf::fuzz
