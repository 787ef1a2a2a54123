#include "daemon/resolve/frame_finder.h"

#include "tests/unit/base/fake_clock.h"
#include "tests/unit/matchers.h"
#include "tests/unit/probe/elf_builder.h"
#include "tests/unit/probe/fake_proc.h"

namespace gpuperf {
namespace {

namespace fs = std::filesystem;
using elf_builder::ElfImage;

constexpr uint64_t kMappingBytes = 0x2000;
constexpr uint64_t kCode = kBase + ElfImage::kCodeOffset;  // where the image's code is mapped
const ProcessKey kProcess{.pid = 7, .start_boot_ns = 10'000'000};

// Functions `name` and _ZN1a1bEi of 16 bytes each, 16 bytes apart.
std::string make_library(const std::string& name) {
  return ElfImage({{name, ElfImage::kCodeVaddr, 16}, {"_ZN1a1bEi", ElfImage::kCodeVaddr + 32, 16}})
      .build();
}

std::vector<StackFrame> join_groups(const std::vector<FrameGroup>& groups) {
  std::vector<StackFrame> frames;
  for (const FrameGroup& group : groups) frames.insert(frames.end(), group.begin(), group.end());
  return frames;
}

class FrameFinderTest : public testing::Test {
 protected:
  FrameFinderTest() { fake_.add_process(7, "/app"); }

  void map_library(const std::string& path = "/lib/a.so", const std::string& function = "foo") {
    fake_.map(7, fake_.add_file(7, path, make_library(function)), path, kBase, kMappingBytes);
  }
  std::vector<StackFrame> find(const std::vector<uint64_t>& addresses,
                               const ProcessKey& process = kProcess) {
    return join_groups(finder_.find_frames(process, to_return_addresses(addresses)));
  }
  std::string find_symbol(uint64_t address) { return find({address}).at(0).symbol; }

  FakeProc fake_;
  FakeClock clock_;
  FrameFinder finder_{{.proc = fake_.proc()}, clock_};
};

TEST_F(FrameFinderTest, NamesReturnAddressesByTheCallBeforeThem) {
  map_library();

  // The second is the byte behind foo: its last instruction was the call.
  EXPECT_THAT(find({kCode + 4, kCode + 16, kCode + 32 + 5}),
              ElementsAre(StackFrame{"foo", "/lib/a.so", 4, kCode + 4},
                          StackFrame{"foo", "/lib/a.so", 16, kCode + 16},
                          StackFrame{"a::b(int)", "/lib/a.so", 5, kCode + 37}));
}

TEST_F(FrameFinderTest, GivesModuleAndOffsetWhereNoFunctionCovers) {
  map_library();

  EXPECT_THAT(find({kCode + 20}),
              ElementsAre(StackFrame{"", "/lib/a.so", ElfImage::kCodeVaddr + 20, kCode + 20}));
}

TEST_F(FrameFinderTest, GivesTheAddressAloneOutsideEveryMapping) {
  map_library();

  EXPECT_THAT(
      find({0, 1, kBase, kBase + kMappingBytes + 1, UINT64_MAX}),
      ElementsAre(StackFrame{.address = 0}, StackFrame{.address = 1}, StackFrame{.address = kBase},
                  StackFrame{.address = kBase + kMappingBytes + 1},
                  StackFrame{.address = UINT64_MAX}));
}

TEST_F(FrameFinderTest, NamesExactAddressesByTheCodeAtThem) {
  map_library();
  const std::vector<CodeAddress> addresses = {{kCode, true}, {kCode + 4, true}, {kCode + 16, true}};

  EXPECT_THAT(join_groups(finder_.find_frames(kProcess, addresses)),
              ElementsAre(StackFrame{"foo", "/lib/a.so", 0, kCode},
                          StackFrame{"foo", "/lib/a.so", 4, kCode + 4},
                          StackFrame{"", "/lib/a.so", ElfImage::kCodeVaddr + 16, kCode + 16}));
}

TEST_F(FrameFinderTest, LeavesAnonymousCodeWithoutModuleAndAnUnknownVdsoWithoutNames) {
  // The kernel's own has 2 pages; that of a 32-bit process, for example, has another size.
  fake_.write(7, "maps",
              "1000-2000 rwxp 00000000 00:00 0 \n"
              "5000-6000 r-xp 00000000 00:00 0                          [vdso]\n");

  EXPECT_THAT(find({0x1010, 0x5a20}),
              ElementsAre(StackFrame{.address = 0x1010}, StackFrame{"", "[vdso]", 0xa20, 0x5a20}));
}

TEST_F(FrameFinderTest, GivesFileOffsetsForFilesThatAreNoElf) {
  fake_.map(7, fake_.add_file(7, "/code.bin", "machine code"), "/code.bin", kBase, kMappingBytes,
            0x3000);

  EXPECT_THAT(find({kBase + 0x10}), ElementsAre(StackFrame{"", "/code.bin", 0x3010, kBase + 0x10}));
}

TEST_F(FrameFinderTest, GivesAddressesOfAProcessItNeverSaw) {
  fake_.remove_process(7);

  EXPECT_THAT(find({kCode + 4, 9}),
              ElementsAre(StackFrame{.address = kCode + 4}, StackFrame{.address = 9}));
}

TEST_F(FrameFinderTest, AnswersForAProcessThatIsGoneFromWhatItRead) {
  map_library();
  ASSERT_EQ(find_symbol(kCode + 4), "foo");
  fake_.remove_process(7);
  fs::remove_all(fake_.root(7));
  clock_.advance(std::chrono::hours(1));

  EXPECT_EQ(find_symbol(kCode + 4), "foo");
  EXPECT_EQ(find_symbol(kCode + 37), "a::b(int)");
}

TEST_F(FrameFinderTest, NamesAProcessThatIsGoneByMappingsReadEarly) {
  // As on a host: the path is the same for everybody.
  const fs::path real = fake_.add_file(7, "/lib/a.so", make_library("foo"));
  fake_.map(7, real, real.string(), kBase, kMappingBytes);
  finder_.prefetch(kProcess);
  fake_.remove_process(7);

  EXPECT_EQ(find_symbol(kCode + 4), "foo");
}

TEST_F(FrameFinderTest, ForgetsTheMappingsOfAProcessThatIsGoneAndIsAskedForNoMore) {
  map_library();
  EXPECT_EQ(find_symbol(kCode + 4), "foo");
  fake_.remove_process(7);
  const auto forget_gone = [this](bool is_running) {
    finder_.forget_gone([is_running](const ProcessKey&) { return is_running; });
  };

  forget_gone(false);
  EXPECT_EQ(find_symbol(kCode + 4), "foo");
  clock_.advance(MappingCache::kKeepGone);
  forget_gone(true);
  EXPECT_EQ(find_symbol(kCode + 4), "foo");
  clock_.advance(MappingCache::kKeepGone);
  forget_gone(false);

  EXPECT_EQ(find_symbol(kCode + 4), "");
}

TEST_F(FrameFinderTest, KeepsWhatItKnowsOfAProcessThatIsExiting) {
  map_library();
  ASSERT_EQ(find_symbol(kCode + 4), "foo");
  fake_.write(7, "maps", "");
  clock_.advance(std::chrono::seconds(2));

  EXPECT_EQ(find_symbol(kCode + 4), "foo");
}

TEST_F(FrameFinderTest, DoesNotTakeTheNextProcessWithThePidForThisOne) {
  map_library();
  const ProcessKey next{.pid = 7, .start_boot_ns = 20'000'000};

  EXPECT_THAT(find({kCode + 4}, next), ElementsAre(StackFrame{.address = kCode + 4}));
  EXPECT_EQ(find_symbol(kCode + 4), "foo");
}

TEST_F(FrameFinderTest, ReadsMappingsAgainForAnAddressItDoesNotKnow) {
  map_library();
  ASSERT_EQ(find_symbol(kCode + 4), "foo");
  const uint64_t later = kBase + 0x10000;
  fake_.map(7, fake_.add_file(7, "/lib/b.so", make_library("bar")), "/lib/b.so", later,
            kMappingBytes);
  const uint64_t address = later + ElfImage::kCodeOffset + 4;

  EXPECT_EQ(find_symbol(address), "");  // just read: not again at once
  clock_.advance(MappingCache::kMinAge);
  EXPECT_EQ(find_symbol(address), "bar");
}

TEST_F(FrameFinderTest, NoticesAnotherProgramAtTheSameAddressesAfterAWhile) {
  map_library("/lib/a.so", "before");
  ASSERT_EQ(find_symbol(kCode + 4), "before");
  fake_.write(7, "maps", "");
  map_library("/lib/b.so", "after");

  EXPECT_EQ(find_symbol(kCode + 4), "before");
  clock_.advance(MappingCache::kMaxAge);
  EXPECT_EQ(find_symbol(kCode + 4), "after");
}

TEST_F(FrameFinderTest, NoticesARewrittenFileAfterAWhile) {
  map_library("/lib/a.so", "before");
  ASSERT_EQ(find_symbol(kCode + 4), "before");
  fake_.add_file(7, "/lib/a.so", make_library("rewritten"));
  clock_.advance(MappingCache::kMaxAge);

  EXPECT_EQ(find_symbol(kCode + 4), "rewritten");
}

TEST_F(FrameFinderTest, StillNamesModulesWithRoomForNothing) {
  map_library();
  FrameFinder finder({.proc = fake_.proc(), .table_bytes = 0, .maps_bytes = 0}, clock_);

  const auto frames = join_groups(finder.find_frames(kProcess, to_return_addresses({kCode + 4})));

  // No table fits, so no names; the module is known all the same.
  EXPECT_THAT(frames,
              ElementsAre(StackFrame{"", "/lib/a.so", ElfImage::kCodeVaddr + 4, kCode + 4}));
}

TEST_F(FrameFinderTest, KeepsTheMostRecentTablesWithinTheirBytes) {
  constexpr int kLibraries = 50;
  FrameFinder finder({.proc = fake_.proc(), .table_bytes = 2000}, clock_);
  std::vector<uint64_t> addresses;
  for (int i = 0; i < kLibraries; ++i) {
    const std::string path = "/lib/" + std::to_string(i) + ".so";
    const uint64_t start = kBase + i * 0x10000;
    fake_.map(7, fake_.add_file(7, path, make_library("f" + std::to_string(i))), path, start,
              kMappingBytes);
    addresses.push_back(start + ElfImage::kCodeOffset + 4);
  }

  for (int pass = 0; pass < 2; ++pass) {
    const auto frames = join_groups(finder.find_frames(kProcess, to_return_addresses(addresses)));
    for (int i = 0; i < kLibraries; ++i) EXPECT_EQ(frames[i].symbol, "f" + std::to_string(i));
  }
}

// Those of PyTorch's libraries: if they were kept with their names, each would push out the others.
TEST_F(FrameFinderTest, KeepsTheTablesOfLibrariesWhoseNamesDoNotFit) {
  constexpr int kLibraries = 4;
  FrameFinder finder({.proc = fake_.proc(), .table_bytes = 6'000, .name_bytes = 0}, clock_);
  std::vector<uint64_t> addresses;
  std::vector<std::string> names;
  for (int i = 0; i < kLibraries; ++i) {
    names.push_back(std::string(3'000, 'x') + std::to_string(i));
    const std::string path = "/lib/" + std::to_string(i) + ".so";
    const uint64_t start = kBase + i * 0x10000;
    fake_.map(7, fake_.add_file(7, path, make_library(names.back())), path, start, kMappingBytes);
    addresses.push_back(start + ElfImage::kCodeOffset + 4);
  }

  const auto frames = join_groups(finder.find_frames(kProcess, to_return_addresses(addresses)));

  for (int i = 0; i < kLibraries; ++i) EXPECT_EQ(frames[i].symbol, names[i]);
  EXPECT_GE(finder.kept_bytes(), kLibraries * 2 * 16u);
  EXPECT_LT(finder.kept_bytes(), 2'000u);
}

}  // namespace
}  // namespace gpuperf
