// Tables that lie: an error or some rule, in bounded time, never a crash. Run in the sanitizer
// build too.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <string>

#include "daemon/probe/code/code_file.h"
#include "daemon/probe/code/frame_search.h"
#include "daemon/unwind/frame_rules.h"
#include "tests/unit/files.h"
#include "tests/unit/probe/elf_builder.h"
#include "tests/unit/unwind/frame_file.h"

namespace gpuperf {
namespace {

using elf_builder::make_file;

NamedSection get_section(const std::string& bytes, const char* name) {
  const Fd fd = make_file(bytes);
  return *CodeFile::open(fd.get())->find_section(name);
}

// Asks for rules all over `code`; how many answers told of a description.
int ask_all(const std::string& bytes, const NamedSection& code) {
  const Fd fd = make_file(bytes);
  const auto file = CodeFile::open(fd.get());
  if (!file.ok()) return 0;
  int described = 0;
  for (uint64_t vaddr = code.vaddr; vaddr < code.vaddr + code.size_bytes; vaddr += 5) {
    const auto rule = find_unwind_rule(*file, vaddr);
    if (!rule.ok()) continue;
    EXPECT_LT(rule->kind, GPUPERF_UNWIND_KINDS);
    described += rule->kind != GPUPERF_UNWIND_GUESS ? 1 : 0;
  }
  return described;
}

TEST(HostileFramesTest, SeesEveryTruncation) {
  const std::string bytes = read_file(FRAME_SAMPLE);
  const NamedSection code = get_section(bytes, ".text");

  for (size_t length = 0; length < bytes.size(); length += 97) {
    (void)ask_all(bytes.substr(0, length), code);
  }
}

// The most work one address may ask for: as many bytes without a table as there may be, in entries
// as short as there are, each of a common entry of its own.
TEST(HostileFramesTest, EndsTheLongestScanInTime) {
  using namespace frame_file;
  const Bytes common = entry(as_bytes(uint32_t{0}) + bytes_of({1, 0, 1, 0x78, 16}));
  std::string other =
      entry(as_bytes(static_cast<uint32_t>(common.size() + 4)) + Bytes(2 * sizeof(uint64_t), '\0'));
  FrameFile made{.has_table = false};
  while (made.entries_before.size() < kMaxScannedBytes) {
    made.entries_before += common;
    for (uint32_t i = 0; i < 400; ++i) {
      const auto distance = static_cast<uint32_t>(common.size() + 4 + i * other.size());
      other.replace(4, 4, as_bytes(distance));
      made.entries_before += other;
    }
  }
  const Fd fd = make_file(made.build());
  const auto file = CodeFile::open(fd.get());
  ASSERT_TRUE(file.ok());

  const auto begin = std::chrono::steady_clock::now();
  const auto rule = find_unwind_rule(*file, made.function());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;

  EXPECT_EQ(rule.status().code(), absl::StatusCode::kResourceExhausted) << rule.status();
  std::printf("%.3f s\n", seconds.count());
  EXPECT_LT(seconds.count(), 5);
}

TEST(HostileFramesTest, StopsReadingCommonEntries) {
  using namespace frame_file;
  const Bytes common = entry(as_bytes(uint32_t{0}) + bytes_of({1, 0, 1, 0x78, 16}));
  const Bytes other =
      entry(as_bytes(static_cast<uint32_t>(common.size() + 4)) + Bytes(2 * sizeof(uint64_t), '\0'));
  FrameFile made{.has_table = false};
  for (int i = 0; i < 10'001; ++i) made.entries_before += common + other;
  const Fd fd = make_file(made.build());
  const auto file = CodeFile::open(fd.get());
  ASSERT_TRUE(file.ok());

  const auto rule = find_unwind_rule(*file, made.function());

  EXPECT_EQ(rule.status().code(), absl::StatusCode::kResourceExhausted) << rule.status();
}

}  // namespace
}  // namespace gpuperf
