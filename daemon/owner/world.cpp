#include "daemon/owner/world.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace gpuperf {
namespace {

struct LauncherRow {
  std::string_view rank;
  std::string_view ranks;
};
constexpr std::array<LauncherRow, 4> kLaunchers = {{
    {"RANK", "WORLD_SIZE"},  // torchrun, and most others
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"PMI_RANK", "PMI_SIZE"},
    {"SLURM_PROCID", "SLURM_NTASKS"},
}};

std::optional<uint32_t> find_number(std::string_view environment, std::string_view name) {
  while (!environment.empty()) {
    const size_t end = std::min(environment.find('\0'), environment.size());
    std::string_view variable = environment.substr(0, end);
    environment.remove_prefix(std::min(end + 1, environment.size()));
    if (!variable.starts_with(name) || variable.substr(name.size(), 1) != "=") continue;
    variable.remove_prefix(name.size() + 1);
    uint32_t number = 0;
    const char* last = variable.data() + variable.size();
    const auto [stop, error] = std::from_chars(variable.data(), last, number);
    if (error != std::errc() || stop != last) return std::nullopt;
    return number;
  }
  return std::nullopt;
}

}  // namespace

WorldTask parse_world_task(std::string_view environment) {
  for (const LauncherRow& launcher : kLaunchers) {
    const auto rank = find_number(environment, launcher.rank);
    if (!rank) continue;
    return {.rank = rank, .ranks = find_number(environment, launcher.ranks).value_or(0)};
  }
  return {};
}

}  // namespace gpuperf
