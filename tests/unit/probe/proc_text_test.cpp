#include "daemon/base/proc_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/probe/fake_proc.h"

namespace gpuperf {
namespace {

TEST(ProcTextTest, ReadsAWholeFileAndSaysWhenThereWasMore) {
  FakeProc fake;
  fake.add_process(7, "/bin/a");
  fake.write(7, "text", std::string(1000, 'x'));
  const std::string path = get_proc_path(fake.proc(), 7, "text");

  const BoundedText exact = read_bounded_text(path, 1000).value();
  const BoundedText less = read_bounded_text(path, 999).value();

  EXPECT_EQ(exact.text.size(), 1000u);
  EXPECT_FALSE(exact.truncated);
  EXPECT_EQ(less.text.size(), 999u);
  EXPECT_TRUE(less.truncated);
}

TEST(ProcTextTest, ReadsAnEndlessFileUpToTheBound) {
  const BoundedText zeroes = read_bounded_text("/dev/zero", 300'000).value();

  EXPECT_EQ(zeroes.text.size(), 300'000u);
  EXPECT_TRUE(zeroes.truncated);
}

TEST(ProcTextTest, SaysWhatIsNotThereAndDoesNotWaitForAFifo) {
  FakeProc fake;
  fake.add_process(7, "/bin/a");
  ASSERT_EQ(::mkfifo((fake.directory(7) / "fifo").c_str(), 0600), 0);

  const Status missing = read_bounded_text("/nowhere/maps", 100).status();

  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(missing.message(), "/nowhere/maps: open: No such file or directory");
  EXPECT_EQ(read_bounded_text(fake.directory(7) / "fifo", 100).value().text, "");
}

TEST(ProcTextTest, ListsProcessesAndNothingElse) {
  FakeProc fake;
  for (const uint32_t pid : {700, 9, 80}) fake.add_process(pid, "/bin/a");
  for (const char* name : {"self", "12x", "0", "-3", "99999999999"}) {
    std::filesystem::create_directory(std::filesystem::path(fake.proc()) / name);
  }

  EXPECT_THAT(list_pids(fake.proc()).value(), testing::ElementsAre(9, 80, 700));
  EXPECT_EQ(list_pids("/nowhere").status().message(),
            "/nowhere: list processes: No such file or directory");
}

TEST(ProcTextTest, ReadsTheStartTimeBehindAnyName) {
  FakeProc fake;
  fake.add_process(7, "/bin/a", 4711);  // its name holds spaces and parentheses

  EXPECT_EQ(read_start_ticks(fake.proc(), 7).value(), 4711u);
  fake.write(7, "stat", "7 (short) S 1 2 3");
  EXPECT_EQ(read_start_ticks(fake.proc(), 7).status().code(), absl::StatusCode::kDataLoss);
  fake.write(7, "stat", "no parenthesis");
  EXPECT_EQ(read_start_ticks(fake.proc(), 7).status().code(), absl::StatusCode::kDataLoss);
}

TEST(ProcTextTest, TellsAProcessFromTheNextOneWithItsPid) {
  FakeProc fake;
  fake.add_process(7, "/bin/a", 4711);

  EXPECT_TRUE(is_running_since(fake.proc(), 7, 47'110'000'000));
  EXPECT_TRUE(is_running_since(fake.proc(), 7, 47'119'999'999));
  EXPECT_FALSE(is_running_since(fake.proc(), 7, 47'120'000'000));
  EXPECT_TRUE(is_running_since(fake.proc(), 7, 0));
  EXPECT_FALSE(is_running_since(fake.proc(), 8, 0));
}

TEST(ProcTextTest, ReadsItsOwnStartTimeFromTheRealProc) {
  const uint64_t ticks = read_start_ticks("/proc", static_cast<uint32_t>(::getpid())).value();
  timespec now{};
  ASSERT_EQ(::clock_gettime(CLOCK_BOOTTIME, &now), 0);

  EXPECT_LE(ticks, static_cast<uint64_t>(now.tv_sec) * 100 + 100);
  EXPECT_GT(ticks, 0u);
}

}  // namespace
}  // namespace gpuperf
