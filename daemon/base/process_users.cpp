#include "daemon/base/process_users.h"

#include "daemon/base/process_status.h"

namespace gpuperf {

uint32_t ProcessUsers::find(uint32_t pid, uint64_t start_boot_ns) {
  const std::pair key(pid, start_boot_ns);
  const uint32_t* const known = start_boot_ns == 0 ? nullptr : known_.find(key);
  if (known != nullptr) return *known;
  const auto status = read_process_status(proc_root_ + "/" + std::to_string(pid));
  if (!status.ok()) return kGone;
  if (start_boot_ns != 0) (void)known_.put(key, status->uid, 1);  // there is room for them
  return status->uid;
}

}  // namespace gpuperf
