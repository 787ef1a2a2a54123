#include "daemon/owner/world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace gpuperf {
namespace {

WorldTask parse_world_of(std::string environment) {
  std::ranges::replace(environment, '|', '\0');
  return parse_world_task(environment);
}

TEST(WorldTest, KnowsTheLaunchers) {
  EXPECT_EQ(parse_world_of("A=1|RANK=3|WORLD_SIZE=8|LOCAL_RANK=1|"),
            (WorldTask{.rank = 3, .ranks = 8}));
  EXPECT_EQ(parse_world_of("OMPI_COMM_WORLD_RANK=2|OMPI_COMM_WORLD_SIZE=4"),
            (WorldTask{.rank = 2, .ranks = 4}));
  EXPECT_EQ(parse_world_of("PMI_SIZE=2|PMI_RANK=1"), (WorldTask{.rank = 1, .ranks = 2}));
  EXPECT_EQ(parse_world_of("SLURM_PROCID=0|SLURM_NTASKS=16"), (WorldTask{.rank = 0, .ranks = 16}));
}

TEST(WorldTest, PrefersWhatTheInnermostLauncherSays) {
  EXPECT_EQ(parse_world_of("SLURM_PROCID=0|SLURM_NTASKS=2|RANK=5|WORLD_SIZE=16"),
            (WorldTask{.rank = 5, .ranks = 16}));
}

TEST(WorldTest, FindsNothingElsewhere) {
  EXPECT_EQ(parse_world_of(""), WorldTask{});
  EXPECT_EQ(parse_world_of("XRANK=1|RANKS=2|RANK|WORLD_SIZE=8"), WorldTask{});
  EXPECT_EQ(parse_world_of("RANK=first|WORLD_SIZE=8"), WorldTask{});
  EXPECT_EQ(parse_world_of("RANK=1|WORLD_SIZE=many"), (WorldTask{.rank = 1}));
}

}  // namespace
}  // namespace gpuperf
