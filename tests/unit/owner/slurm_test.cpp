#include "daemon/owner/slurm.h"

#include <gtest/gtest.h>

namespace gpuperf {
namespace {

// With the zeroes that separate variables written as '|'.
SlurmTask parse(std::string environment) {
  for (char& c : environment) c = c == '|' ? '\0' : c;
  return parse_slurm_task(environment);
}

TEST(SlurmTest, FindsJobAndRank) {
  EXPECT_EQ(parse("PATH=/bin|SLURM_JOB_ID=4711|SLURM_NODEID=1|SLURM_PROCID=12|"),
            (SlurmTask{.job = "4711", .rank = "12"}));
  EXPECT_EQ(parse("SLURM_JOB_ID=4711_3.batch"), (SlurmTask{.job = "4711_3.batch"}));
}

TEST(SlurmTest, FindsNothingOutsideAJob) {
  EXPECT_EQ(parse(""), SlurmTask{});
  EXPECT_EQ(parse("HOME=/root|XSLURM_JOB_ID=1|SLURM_JOB_IDS=2|"), SlurmTask{});
}

TEST(SlurmTest, TakesTheFirstOfTwoAsGetenvDoes) {
  EXPECT_EQ(parse("SLURM_JOB_ID=1|SLURM_JOB_ID=2|").job, "1");
}

TEST(SlurmTest, TakesNoValueThatIsNoLabel) {
  EXPECT_EQ(parse("SLURM_JOB_ID=1 2|SLURM_PROCID=\"3|"), SlurmTask{});
  EXPECT_EQ(parse("SLURM_JOB_ID=\n|SLURM_PROCID=\xff|"), SlurmTask{});
  EXPECT_EQ(parse("SLURM_JOB_ID=|"), SlurmTask{});
  EXPECT_EQ(parse("SLURM_JOB_ID=" + std::string(65, '1') + "|"), SlurmTask{});
  EXPECT_EQ(parse("SLURM_JOB_ID=" + std::string(64, '1') + "|").job.size(), 64u);
}

}  // namespace
}  // namespace gpuperf
