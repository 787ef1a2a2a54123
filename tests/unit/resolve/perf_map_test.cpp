#include "daemon/resolve/perf_map.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "daemon/resolve/frame_finder.h"
#include "tests/unit/base/fake_clock.h"
#include "tests/unit/probe/fake_proc.h"
#include "tests/unit/resolve/print_frames.h"

namespace gpuperf {
namespace {

namespace fs = std::filesystem;
using MapMatch = PerfMap::Match;

constexpr size_t kRoom = size_t{1} << 20;

TEST(PerfMapTest, FindsTheFunctionThatCoversAnAddress) {
  PerfMap map(kRoom);
  map.append("7f0010 20 LazyCompile:~f /a.js:3\n0x7f0000 10 stub\n");

  EXPECT_EQ(map.find(0x7effff), std::nullopt);
  EXPECT_EQ(map.find(0x7f0000), (MapMatch{"stub", 0x7f0000}));
  EXPECT_EQ(map.find(0x7f000f), (MapMatch{"stub", 0x7f0000}));
  EXPECT_EQ(map.find(0x7f0010), (MapMatch{"LazyCompile:~f /a.js:3", 0x7f0010}));
  EXPECT_EQ(map.find(0x7f0030), std::nullopt);
}

TEST(PerfMapTest, SkipsLinesOfAnotherForm) {
  PerfMap map(kRoom);
  map.append(
      "\n"
      "no numbers\n"
      "1000\n"
      "1000 10\n"
      "1000 10 \n"
      "fffffffffffffffff 10 too_large\n"
      "-1000 10 negative\n"
      "1000 10 good\n");

  EXPECT_EQ(map.find(0x1000), (MapMatch{"good", 0x1000}));
  EXPECT_EQ(map.find(0), std::nullopt);
}

TEST(PerfMapTest, TakesWholeLinesOnly) {
  PerfMap map(kRoom);

  EXPECT_EQ(map.append("1000 10 whole\n2000 10 par"), 14u);

  EXPECT_EQ(map.find(0x2000), std::nullopt);
  EXPECT_EQ(map.append(""), 0u);
}

TEST(PerfMapTest, LetsALaterFunctionReplaceOneAtItsAddress) {
  PerfMap map(kRoom);
  map.append("1000 10 first\n1000 10 second\n");
  map.append("1000 10 third\n");

  EXPECT_EQ(map.find(0x1000), (MapMatch{"third", 0x1000}));
}

TEST(PerfMapTest, StaysWithinItsRoom) {
  PerfMap map(4'000);
  std::string text = "10 8 " + std::string(100'000, 'x') + "\n";
  for (int i = 1; i < 1'000; ++i) text += std::to_string(i) + "000 10 function\n";

  map.append(text);

  EXPECT_LE(map.size_bytes(), 4'000u);
  EXPECT_EQ(map.find(0x10)->name.size(), PerfMap::kMaxNameBytes);
  EXPECT_EQ(map.find(0x1000)->name, "function");
}

class PerfMapCacheTest : public testing::Test {
 protected:
  PerfMapCacheTest() {
    fake_.add_process(7, "/usr/bin/node");
    fake_.write_status(7, ::geteuid(), 3);
    fake_.write(7, "maps",
                "10000-20000 r-xp 00000000 00:00 0 \n"
                "30000-40000 r-xs 00000000 00:01 99                     /memfd:jit (deleted)\n");
  }
  StackFrame find(uint64_t address) { return find(finder_, 7, address); }
  StackFrame find(FrameFinder& finder, uint32_t pid, uint64_t address) {
    const CodeAddress code{address, true};
    const ProcessKey process{.pid = pid, .start_boot_ns = 10'000'000};
    while (!finder.read_ahead(process, {&code, 1})) ++further_pieces_;
    return finder.find_frames(process, {&code, 1}).at(0).at(0);
  }
  fs::path write_map(const std::string& text, const std::string& name = "/tmp/perf-3.map") {
    return fake_.add_file(7, name, text);
  }

  // One that takes more than PerfMapCache::kQuickRead to read.
  fs::path write_large_map(const std::string& first_function) {
    std::string text = "10100 40 " + first_function + "\n";
    for (int i = 0; i < 300'000; ++i) text += "7f0000" + std::to_string(i) + "0 10 filler\n";
    return write_map(text);
  }

  // A process of that user with a map of some 60 KB.
  void add_process_with_map(uint32_t pid, uint32_t uid) {
    fake_.add_process(pid, "/usr/bin/node");
    fake_.write_status(pid, uid);
    fake_.write(pid, "maps", "10000-20000 r-xp 00000000 00:00 0 \n");
    fs::permissions(fake_.root(pid).parent_path(), fs::perms(0755));
    std::string text = "10100 40 of_" + std::to_string(pid) + "\n";
    for (int i = 0; i < 2'000; ++i) text += "7f00" + std::to_string(10'000 + i) + "0 10 filler\n";
    const fs::path map = fake_.add_file(pid, "/tmp/perf-" + std::to_string(pid) + ".map", text);
    ASSERT_EQ(::chown(map.c_str(), uid, uid), 0);
  }

  size_t further_pieces_ = 0;
  FakeProc fake_;
  FakeClock clock_;
  DropCounters drops_;
  FrameFinder finder_{
      {.proc = fake_.proc(), .count_drop = [this](DropCause cause) { drops_.add(cause); }}, clock_};
};

TEST_F(PerfMapCacheTest, NamesCodeMadeAtRunTime) {
  write_map("10100 40 compiled\n30100 40 in_memfd\n");

  EXPECT_EQ(find(0x10110), (StackFrame{.symbol = "compiled",
                                       .offset_bytes = 0x10,
                                       .address = 0x10110,
                                       .kind = StackFrameKind::kJit}));
  EXPECT_EQ(find(0x30100), (StackFrame{.symbol = "in_memfd",
                                       .module = "/memfd:jit",
                                       .address = 0x30100,
                                       .kind = StackFrameKind::kJit}));
  EXPECT_EQ(find(0x10200), StackFrame{.address = 0x10200});
}

TEST_F(PerfMapCacheTest, TakesTheMapOfTheOuterPidWhereThereIsNoOther) {
  write_map("10100 40 compiled\n", "/tmp/perf-7.map");

  EXPECT_EQ(find(0x10110).symbol, "compiled");
}

TEST_F(PerfMapCacheTest, ReadsOnWhatIsAppendedWhenItIsAskedFor) {
  const fs::path map = write_map("10100 40 first\n10200 40 unfini");
  ASSERT_EQ(find(0x10110).symbol, "first");
  ASSERT_EQ(find(0x10210).symbol, "");
  std::ofstream(map, std::ios::app) << "shed\n";

  EXPECT_EQ(find(0x10210).symbol, "unfinished");
  EXPECT_EQ(find(0x10110).symbol, "first");
}

TEST_F(PerfMapCacheTest, ReadsAMapAgainThatBeginsAnew) {
  const fs::path map = write_map("10100 40 first\n10200 40 second\n");
  ASSERT_EQ(find(0x10110).symbol, "first");
  fs::remove(map);
  write_map("10100 40 other\n");
  clock_.advance(PerfMapCache::kMaxAge);

  EXPECT_EQ(find(0x10110).symbol, "other");
  EXPECT_EQ(find(0x10210).symbol, "");
}

TEST_F(PerfMapCacheTest, KnowsWhatItReadOfAProcessThatIsGone) {
  write_map("10100 40 compiled\n");
  ASSERT_EQ(find(0x10110).symbol, "compiled");
  fake_.remove_process(7);
  clock_.advance(std::chrono::hours(1));

  EXPECT_EQ(find(0x10110).symbol, "compiled");
}

TEST_F(PerfMapCacheTest, TakesMapsOfTheProcessesUserOnly) {
  if (::geteuid() != 0) GTEST_SKIP() << "gives files to other users: needs root";
  constexpr uint32_t kUser = 12'345;
  fake_.write_status(7, kUser, 3);
  fs::permissions(fake_.root(7).parent_path(), fs::perms(0755));
  const fs::path map = write_map("10100 40 compiled\n");
  const auto find_of_owner = [&](uint32_t uid) {
    EXPECT_EQ(::chown(map.c_str(), uid, uid), 0);
    clock_.advance(PerfMapCache::kMaxAge);
    return find(0x10110).symbol;
  };

  EXPECT_EQ(find_of_owner(0), "");
  EXPECT_EQ(find_of_owner(kUser + 1), "");
  EXPECT_EQ(drops_.get(DropCause::kNamesFileRefused), 2u);
  EXPECT_EQ(find_of_owner(kUser), "compiled");
}

TEST_F(PerfMapCacheTest, RefusesAMapThatHasAnotherName) {
  const fs::path map = write_map("10100 40 planted\n");
  fs::create_hard_link(map, fake_.root(7) / "elsewhere");

  EXPECT_EQ(find(0x10110).symbol, "");
  EXPECT_EQ(drops_.get(DropCause::kNamesFileRefused), 1u);
}

TEST_F(PerfMapCacheTest, RefusesWhatIsNoRegularFile) {
  fs::create_directories(fake_.root(7) / "tmp");
  ASSERT_EQ(::mkfifo((fake_.root(7) / "tmp/perf-3.map").c_str(), 0600), 0);

  EXPECT_EQ(find(0x10110).symbol, "");
}

TEST_F(PerfMapCacheTest, ReadsNoMoreOfAMapThanItsBound) {
  const fs::path map = write_map("10100 40 early\n");
  fs::resize_file(map, PerfMapCache::kMaxFileBytes);  // zeroes up to there: one long line
  std::ofstream(map, std::ios::app) << "\n10200 40 late\n";

  EXPECT_EQ(find(0x10110).symbol, "early");
  EXPECT_EQ(find(0x10210).symbol, "");
}

TEST_F(PerfMapCacheTest, ReadsALargeMapPieceByPiece) {
  const fs::path map = write_large_map("first");

  EXPECT_EQ(find(0x10110).symbol, "first");

  EXPECT_EQ(further_pieces_, fs::file_size(map) / PerfMapCache::kPieceBytes);
}

TEST_F(PerfMapCacheTest, ReadsALargeMapThatChangesAllTheTimeAgainAfterAPauseOnly) {
  write_large_map("first");
  ASSERT_EQ(find(0x10110).symbol, "first");
  write_large_map("other");
  clock_.advance(PerfMapCache::kMaxAge);

  EXPECT_EQ(find(0x10110).symbol, "first");
  EXPECT_EQ(drops_.get(DropCause::kNamesMapPaused), 1u);

  clock_.advance(std::chrono::hours(1));
  EXPECT_EQ(find(0x10110).symbol, "other");
}

TEST_F(PerfMapCacheTest, ForgetsALargeMapOfAProcessThatIsGone) {
  write_large_map("first");
  ASSERT_EQ(find(0x10110).symbol, "first");
  fake_.remove_process(7);

  EXPECT_EQ(find(0x10110).symbol, "first");
  clock_.advance(PerfMapCache::kKeepGone);
  EXPECT_EQ(find(0x10110).symbol, "first");  // still asked for
  clock_.advance(2 * PerfMapCache::kKeepGone);
  finder_.forget_gone([](const ProcessKey&) { return false; });

  EXPECT_EQ(find(0x10110).symbol, "");
}

TEST_F(PerfMapCacheTest, MapsOfOneUsersProcessesLeaveThoseOfOthers) {
  if (::geteuid() != 0) GTEST_SKIP() << "gives files to other users: needs root";
  FrameFinder finder({.proc = fake_.proc(), .perf_map_bytes = size_t{256} << 10}, clock_);
  constexpr uint32_t kUser = 12'345;
  constexpr uint32_t kProcesses = 10;
  const auto find_name = [&](uint32_t pid) { return find(finder, pid, 0x10110).symbol; };
  add_process_with_map(50, kUser + 1);
  EXPECT_EQ(find_name(50), "of_50");

  for (uint32_t pid = 100; pid < 100 + kProcesses; ++pid) {
    add_process_with_map(pid, kUser);
    EXPECT_EQ(find_name(pid), "of_" + std::to_string(pid));
  }

  for (const uint32_t pid : {50, 100, 109}) fake_.remove_process(pid);
  clock_.advance(PerfMapCache::kMaxAge);
  EXPECT_EQ(find_name(50), "of_50");
  EXPECT_EQ(find_name(109), "of_109");
  EXPECT_EQ(find_name(100), "");  // made room
}

// It must not be read from its beginning again and again.
TEST_F(PerfMapCacheTest, AMapIsKeptHoweverMuchAllOthersTake) {
  if (::geteuid() != 0) GTEST_SKIP() << "gives files to other users: needs root";
  FrameFinder finder({.proc = fake_.proc(), .perf_map_bytes = size_t{130} << 10}, clock_);
  for (uint32_t pid = 100; pid < 104; ++pid) {
    add_process_with_map(pid, 12'345 + pid);
    EXPECT_EQ(find(finder, pid, 0x10110).symbol, "of_" + std::to_string(pid));
  }
}

TEST_F(PerfMapCacheTest, ReadsWhatIsAppendedToALargeMapAtOnce) {
  const fs::path map = write_large_map("first");
  ASSERT_EQ(find(0x10110).symbol, "first");
  std::ofstream(map, std::ios::app) << "10200 40 second\n";

  EXPECT_EQ(find(0x10210).symbol, "second");
}

}  // namespace
}  // namespace gpuperf
