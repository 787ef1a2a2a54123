#pragma once

// Which rank a launcher made of a process, from its environment.

#include <cstdint>
#include <optional>
#include <string_view>

namespace gpuperf {

struct WorldTask {
  std::optional<uint32_t> rank;
  uint32_t ranks = 0;  // 0 = not told
  bool operator==(const WorldTask&) const = default;
};

// Of the text of /proc/PID/environ: what torchrun, Open MPI, MPICH or Slurm say, the first of these
// that gives a rank. Values that are no numbers count as absent.
WorldTask parse_world_task(std::string_view environment);

}  // namespace gpuperf
