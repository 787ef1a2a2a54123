#include "daemon/owner/slurm.h"

#include <algorithm>

namespace gpuperf {
namespace {

constexpr size_t kMaxValueBytes = 64;

bool is_label_character(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         c == '-' || c == '.';
}

// The value when `variable` is `key` and its value is fit for a label.
void take_value(std::string_view variable, std::string_view key, std::string& value) {
  if (!value.empty() || !variable.starts_with(key)) return;  // the first counts, as in getenv
  variable.remove_prefix(key.size());
  if (variable.size() > kMaxValueBytes) return;
  if (std::ranges::all_of(variable, is_label_character)) value = variable;
}

}  // namespace

SlurmTask parse_slurm_task(std::string_view environment) {
  SlurmTask task;
  while (!environment.empty()) {
    const size_t end = std::min(environment.find('\0'), environment.size());
    const std::string_view variable = environment.substr(0, end);
    take_value(variable, "SLURM_JOB_ID=", task.job);
    take_value(variable, "SLURM_PROCID=", task.rank);
    environment.remove_prefix(std::min(end + 1, environment.size()));
  }
  return task;
}

}  // namespace gpuperf
