#include "daemon/base/process_status.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "daemon/base/proc_text.h"

namespace gpuperf {
namespace {

// Some 1.5 KiB, more where the masks of CPUs and memory nodes are long, or a user has many groups.
constexpr size_t kMaxFileBytes = size_t{64} << 10;

}  // namespace

std::string_view find_status_field(std::string_view status, std::string_view key) {
  const size_t at = status.find("\n" + std::string(key) + ":");
  if (at == std::string_view::npos) return {};
  status.remove_prefix(at + key.size() + 2);
  status = status.substr(0, status.find('\n'));
  status.remove_prefix(std::min(status.find_first_not_of(" \t"), status.size()));
  return status;
}

std::vector<uint32_t> list_status_numbers(std::string_view status, std::string_view key) {
  std::string_view rest = find_status_field(status, key);
  std::vector<uint32_t> numbers;
  while (true) {
    uint32_t number = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (error != std::errc()) return numbers;
    numbers.push_back(number);
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
  }
}

Result<std::string> read_status_text(const std::string& folder) {
  ASSIGN_OR_RETURN(BoundedText status, read_bounded_text(folder + "/status", kMaxFileBytes));
  return std::move(status.text);
}

bool has_own_capability(int capability) {
  const Result<std::string> status = read_status_text("/proc/self");
  if (!status.ok()) return false;
  const std::string mask(find_status_field(*status, "CapEff"));
  return (std::strtoull(mask.c_str(), nullptr, 16) >> capability & 1) != 0;
}

InnerId parse_inner_id(std::string_view status, uint32_t id) {
  const std::vector<uint32_t> ids = list_status_numbers(status, "NSpid");
  return {.id = ids.empty() ? id : ids.back(), .is_namespace_ours = ids.size() <= 1};
}

Result<ProcessStatus> parse_process_status(std::string_view text) {
  const std::vector<uint32_t> uids = list_status_numbers(text, "Uid");
  ProcessStatus status{.groups = list_status_numbers(text, "Gid"),
                       .pids = list_status_numbers(text, "NSpid")};
  if (uids.empty() || status.groups.empty()) return absl::DataLossError("no user or group");
  status.uid = uids.front();
  status.groups.resize(1);
  std::ranges::copy(list_status_numbers(text, "Groups"), std::back_inserter(status.groups));
  return status;
}

Result<ProcessStatus> read_process_status(const std::string& folder) {
  ASSIGN_OR_RETURN(const std::string text, read_status_text(folder));
  Result<ProcessStatus> parsed = parse_process_status(text);
  if (!parsed.ok()) {
    return absl::DataLossError(folder + "/status: " + std::string(parsed.status().message()));
  }
  return parsed;
}

}  // namespace gpuperf
