// Any bytes as the text of /proc/PID/maps (daemon/probe/discovery/process_maps.h).

#include <algorithm>

#include "daemon/probe/discovery/process_maps.h"
#include "tests/fuzz/fuzz_target.h"

namespace gpuperf::fuzz {

std::string find_fault(std::string_view bytes) {
  const std::vector<MemoryMap> maps = parse_maps(bytes);
  const std::vector<MapEntry> executable = parse_executable_maps(bytes);
  const auto count = std::ranges::count_if(maps, &MemoryMap::can_execute);
  if (executable.size() != static_cast<size_t>(count)) return "other mappings are executable";
  const auto is_wrong = [&](const MemoryMap& map) { return map.path.size() > bytes.size(); };
  return std::ranges::any_of(maps, is_wrong) ? "a path that the text does not have" : "";
}

}  // namespace gpuperf::fuzz
