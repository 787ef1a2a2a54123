// Files that lie, through everything that reads them: nothing may crash, hang or grow.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <random>

#include "daemon/resolve/frame_finder.h"
#include "tests/unit/base/fake_clock.h"
#include "tests/unit/probe/fake_proc.h"
#include "tests/unit/resolve/mutation.h"
#include "tests/unit/resolve/sample_library.h"

namespace gpuperf {
namespace {

constexpr uint64_t kLength = 0x10000;
constexpr int kFiles = 1'000;

// A library with all there is to read: .symtab, .dynsym, DWARF, a debug link, mini debug info.
std::string make_full_library(SampleLibrary& sample) {
  (void)sample.with_mini_debug();  // leaves mini.xz
  sample.run(
      "objcopy --add-section .gnu_debugdata=mini.xz --add-gnu-debuglink=full.debug full.so all.so");
  return sample.read("all.so");
}

TEST(HostileFilesTest, AThousandDamagedLibrariesDoNoHarm) {
  const uint32_t seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  SampleLibrary sample;
  const std::string kinds[] = {make_full_library(sample), sample.full(), sample.linked(),
                               sample.debug()};
  FakeProc fake;
  FakeClock clock;
  fake.add_process(7, "/app");
  FrameFinder finder({.proc = fake.proc(),
                      .table_bytes = size_t{1} << 20,
                      .name_bytes = size_t{1} << 20,
                      .dwarf = {.timeout = std::chrono::milliseconds(2'000), .pause_factor = 0}},
                     clock);
  std::vector<CodeAddress> addresses;
  for (uint64_t offset = 0; offset < kLength; offset += 97) addresses.push_back({kBase + offset});
  for (uint64_t i = 0; i < 64; ++i) {
    addresses.push_back({kBase + sample.outer().file_offset_bytes + i, true});
  }

  size_t named = 0;
  size_t with_source = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kFiles; ++i) {
    // A sound debug file now and then, and a damaged one otherwise.
    const std::string debug = random() % 4 == 0 ? sample.debug() : mutate(sample.debug(), random);
    fake.add_file(7, "/lib/full.debug", debug);
    fake.write(7, "maps", "");
    fake.map(7, fake.add_file(7, "/lib/a.so", mutate(kinds[i % std::size(kinds)], random)),
             "/lib/a.so", kBase, kLength);
    clock.advance(MappingCache::kMaxAge);

    const auto groups = finder.find_frames({.pid = 7, .start_boot_ns = 10'000'000}, addresses);

    ASSERT_EQ(groups.size(), addresses.size());
    for (const FrameGroup& group : groups) {
      ASSERT_FALSE(group.empty());
      named += group.back().symbol.empty() ? 0 : 1;
      with_source += group.back().line == 0 ? 0 : 1;
    }
    ASSERT_LE(finder.kept_bytes(), size_t{2} << 20);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;

  // The damage leaves most files readable, so the readers have been reached.
  EXPECT_GT(named, 2'000u);
  EXPECT_GT(with_source, 1'000u);
  // 5 s in a release build; one file may take two seconds by its timeout.
  EXPECT_LT(seconds.count(), 120);
  std::printf("%zu frames named, %zu with source, %.1f s\n", named, with_source, seconds.count());
}

}  // namespace
}  // namespace gpuperf
