// Any bytes as suspended_functions.json (daemon/store/suspended_functions.h): what was read is
// written and read again the same.

#include "daemon/store/suspended_functions.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/unit/files.h"

namespace gpuperf::fuzz {

std::string find_fault(std::string_view bytes) {
  static const TempFolder folder("/dev/shm");
  static const std::string path = folder / "suspended_functions.json";
  std::ofstream(path, std::ios::binary) << bytes;
  const auto read = read_suspended_functions(path);
  if (!read.ok()) return absl::IsInvalidArgument(read.status()) ? "" : read.status().ToString();
  if (read->size() > kSuspendedFunctionsMax) return "more functions than may be";
  for (const SuspendedFunction& function : *read) {
    if (!(function.share_ratio >= 0) || function.times == 0)
      return "a function that makes no sense";
  }
  if (const Status written = write_suspended_functions(path, *read); !written.ok()) {
    return written.ToString();
  }
  const auto again = read_suspended_functions(path);
  return again.ok() && *again == *read ? "" : "not the same when read again";
}

}  // namespace gpuperf::fuzz
