#include "daemon/app/memory_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/files.h"

namespace gpuperf {
namespace {

using testing::HasSubstr;

constexpr uint64_t kMib = 1 << 20;

class MemoryLimitsTest : public testing::Test {
 protected:
  MemoryLimitsTest() { write("proc/self/cgroup", "1:name=x:/other\n0::/a/b\n"); }

  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(folder_ / path).parent_path());
    std::ofstream(folder_ / path) << text;
  }
  MemoryLimits read() { return read_memory_limits(folder_ / "proc", folder_ / "cgroup"); }

  const TempFolder folder_;
};

TEST_F(MemoryLimitsTest, TheLeastOfTheGroupAndThoseAboveHolds) {
  write("cgroup/a/b/memory.max", "max\n");
  write("cgroup/a/memory.max", "134217728\n");
  write("cgroup/memory.max", "268435456\n");

  const MemoryLimits limits = read();

  EXPECT_EQ(limits.group_bytes, 128 * kMib);
  EXPECT_EQ(limits.group, "/a");
}

TEST_F(MemoryLimitsTest, TheRootOfACgroupNamespaceMayHaveALimit) {
  write("proc/self/cgroup", "0::/\n");
  write("cgroup/memory.max", "134217728\n");

  EXPECT_EQ(read().group_bytes, 128 * kMib);
  EXPECT_EQ(read().group, "/");
}

TEST_F(MemoryLimitsTest, GroupsOfVersion1HoldAsWell) {
  write("proc/self/cgroup", "4:memory:/c\n0::/\n");
  write("cgroup/memory/c/memory.limit_in_bytes", "134217728\n");

  EXPECT_EQ(read().group_bytes, 128 * kMib);
  EXPECT_EQ(read().group, "/c");
}

TEST_F(MemoryLimitsTest, WhatCannotBeReadLimitsNothing) {
  std::filesystem::remove_all(folder_ / "proc");

  EXPECT_EQ(read().group_bytes, ~uint64_t{0});
  EXPECT_TRUE(check_memory_limits(read()).ok());
}

TEST_F(MemoryLimitsTest, TooLittleIsNamedWithWhatIsNeeded) {
  const Status group = check_memory_limits({.group_bytes = 110 * kMib, .group = "/a"});
  const Status space = check_memory_limits({.address_bytes = 300 * kMib});

  EXPECT_THAT(std::string(group.message()), HasSubstr("/a may use 110 MiB, and a start takes"));
  EXPECT_THAT(std::string(space.message()), HasSubstr("address space is limited to 300 MiB"));
}

}  // namespace
}  // namespace gpuperf
