#include "daemon/base/process_status.h"

#include <algorithm>
#include <charconv>

#include "daemon/base/proc_text.h"

namespace gpuperf {
namespace {

// Some 1.5 KiB, more where the masks of CPUs and memory nodes are long, or a user has many groups.
constexpr size_t kMaxProcessStatusBytes = size_t{64} << 10;

// The numbers of a line "Key:\t71\t3"; empty = no such line. The name of a process cannot hold a
// line break there: the kernel writes it as "\n".
std::vector<uint32_t> list_numbers(std::string_view status, std::string_view key) {
  const size_t at = status.find("\n" + std::string(key) + ":");
  std::vector<uint32_t> numbers;
  if (at == std::string_view::npos) return numbers;
  status.remove_prefix(at + key.size() + 2);
  status = status.substr(0, status.find('\n'));
  while (true) {
    status.remove_prefix(std::min(status.find_first_not_of(" \t"), status.size()));
    uint32_t number = 0;
    const auto [end, error] = std::from_chars(status.data(), status.data() + status.size(), number);
    if (error != std::errc()) return numbers;
    numbers.push_back(number);
    status.remove_prefix(static_cast<size_t>(end - status.data()));
  }
}

}  // namespace

Result<ProcessStatus> parse_process_status(std::string_view text) {
  const std::vector<uint32_t> uids = list_numbers(text, "Uid");
  ProcessStatus status{.groups = list_numbers(text, "Gid"), .pids = list_numbers(text, "NSpid")};
  if (uids.empty() || status.groups.empty()) return absl::DataLossError("no user or group");
  status.uid = uids.front();
  status.groups.resize(1);
  std::ranges::copy(list_numbers(text, "Groups"), std::back_inserter(status.groups));
  return status;
}

Result<ProcessStatus> read_process_status(const std::string& folder) {
  const std::string path = folder + "/status";
  ASSIGN_OR_RETURN(const BoundedText status, read_bounded_text(path, kMaxProcessStatusBytes));
  Result<ProcessStatus> parsed = parse_process_status(status.text);
  if (!parsed.ok())
    return absl::DataLossError(path + ": " + std::string(parsed.status().message()));
  return parsed;
}

}  // namespace gpuperf
