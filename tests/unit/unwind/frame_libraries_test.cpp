// Every row of real files, and of the vDSO, against what elfutils says of them.
//
// More files to compare: GPUPERF_UNWIND_FILES, paths separated by colons.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <link.h>
#include <sys/auxv.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>

#include "daemon/base/fd.h"
#include "tests/unit/probe/elf_builder.h"
#include "tests/unit/unwind/libdw_rules.h"

namespace gpuperf {
namespace {

RuleComparison compare_file(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return compare_with_libdw(fd.get());
}

void expect_no_difference(const RuleComparison& found) {
  EXPECT_EQ(found.difference_count, 0u);
  for (const std::string& difference : found.differences) ADD_FAILURE() << difference;
}

// The path of the library mapped here whose path has this in it; empty = none.
std::string find_mapped(std::string_view part) {
  struct Search {
    std::string_view part;
    std::string path;
  } search{.part = part};
  (void)::dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto& wanted = *static_cast<Search*>(data);
        const std::string_view name(info->dlpi_name);
        if (name.find(wanted.part) == std::string_view::npos) return 0;
        wanted.path = name;
        return 1;
      },
      &search);
  return search.path;
}

class MappedLibraryTest : public testing::TestWithParam<const char*> {};

TEST_P(MappedLibraryTest, HasTheRulesThatLibdwFinds) {
  const std::string path = find_mapped(GetParam());
  ASSERT_FALSE(path.empty());

  const RuleComparison found = compare_file(path);

  expect_no_difference(found);
  EXPECT_GT(found.rows, 1000u);
  EXPECT_GT(found.gaps, 100u);
}

INSTANTIATE_TEST_SUITE_P(Libraries, MappedLibraryTest,
                         testing::Values("/libc.so", "/ld-linux", "/libstdc++.so"));

TEST(FrameLibrariesTest, FindsEveryKindThatCompilersMake) {
  RuleComparison found = compare_file(FRAME_SAMPLE);

  expect_no_difference(found);
  for (const char* kind : {"sp", "bp", "bp memory", "plt", "unknown"}) {
    EXPECT_GT(found.kinds[kind], 0u) << kind;
  }
}

TEST(FrameLibrariesTest, FindsSignalsAndEndsInTheCLibrary) {
  RuleComparison found = compare_file(find_mapped("/libc.so"));

  EXPECT_EQ(found.kinds["signal"], 1u);
  EXPECT_GT(found.kinds["end"], 0u);
}

TEST(FrameLibrariesTest, ReadsTheKernelsLibraryFromMemory) {
  const auto* begin = reinterpret_cast<const char*>(::getauxval(AT_SYSINFO_EHDR));
  if (begin == nullptr) GTEST_SKIP() << "this kernel maps no vDSO";
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(begin);
  const size_t size_bytes = header->e_shoff + header->e_shnum * sizeof(Elf64_Shdr);
  const Fd copy = elf_builder::make_file(std::string(begin, size_bytes));

  const RuleComparison found = compare_with_libdw(copy.get());

  expect_no_difference(found);
  EXPECT_GT(found.rows, 5u);
}

TEST(FrameLibrariesTest, FindsTheRulesOfOtherFiles) {
  const char* files = std::getenv("GPUPERF_UNWIND_FILES");
  if (files == nullptr) GTEST_SKIP() << "GPUPERF_UNWIND_FILES names none";

  std::istringstream paths(files);
  for (std::string path; std::getline(paths, path, ':');) {
    SCOPED_TRACE(path);
    const RuleComparison found = compare_file(path);
    std::printf("%s: %lu rows, %lu bytes of gaps\n", path.c_str(), found.rows, found.gaps);
    for (const auto& [kind, count] : found.kinds) std::printf("  %s %lu\n", kind.c_str(), count);
    for (const auto& [reason, count] : found.unknown_reasons) {
      std::printf("  unknown: %s %lu\n", reason.c_str(), count);
    }
    expect_no_difference(found);
  }
}

}  // namespace
}  // namespace gpuperf
