#include "injector/own_rules.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bpf/frame_rules.h"
#include "daemon/base/fd.h"
#include "daemon/probe/code/frame_memory.h"
#include "daemon/unwind/frame_rules.h"
#include "daemon/unwind/vdso.h"
#include "injector/own_memory.h"
#include "tests/unit/files.h"
#include "tests/unit/probe/elf_builder.h"
#include "tests/unit/unwind/rule_text.h"

namespace gpuperf::injector {
namespace {

// A module as it is loaded here.
struct Loaded {
  std::string path;
  uint64_t bias = 0;
};

Loaded find_loaded(std::string_view part) {
  struct Search {
    std::string_view part;
    Loaded found;
  } search{.part = part, .found = {}};
  (void)dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto& wanted = *static_cast<Search*>(data);
        const std::string_view name(info->dlpi_name);
        const bool is_it =
            wanted.part.empty() ? name.empty() : name.find(wanted.part) != std::string_view::npos;
        if (is_it) wanted.found = {std::string(name), info->dlpi_addr};
        return is_it ? 1 : 0;
      },
      &search);
  if (part.empty()) search.found.path = "/proc/self/exe";
  return search.found;
}

// Begin and end of every stretch of code described, and addresses inside.
std::vector<uint64_t> list_addresses(const CodeFile& file) {
  FrameMemory memory(file);
  frame_cursor cursor;
  frame_begin(&cursor, &memory);
  const AddressRange table = *file.elf().unwind_table();
  frame_table_header header{};
  EXPECT_EQ(frame_read_table(&memory, table.vaddr, &header), FRAME_OK);
  std::set<uint64_t> addresses;
  for (uint32_t i = 0; i < header.count; ++i) {
    frame_table_row row{};
    frame_description frame{};
    EXPECT_EQ(frame_read(&memory, table.vaddr + sizeof header + i * sizeof row, &row, sizeof row),
              0);
    const uint64_t entry = table.vaddr + static_cast<uint64_t>(int64_t{row.entry});
    EXPECT_EQ(frame_read_description(&cursor, entry, &frame), FRAME_OK);
    for (const uint64_t inside : {0, 1, 4, 9, 23, 64, 200}) {
      if (frame.begin + inside < frame.end) addresses.insert(frame.begin + inside);
    }
    addresses.insert(frame.end);
  }
  return {addresses.begin(), addresses.end()};
}

struct Comparison {
  size_t compared = 0;
  size_t differing = 0;
};

// Each as the address of an instruction and as a return address.
Comparison compare(const CodeFile& file, uint64_t bias) {
  Comparison found;
  for (const uint64_t vaddr : list_addresses(file)) {
    for (const bool is_exact : {true, false}) {
      const uint64_t code = is_exact ? vaddr : vaddr - 1;
      if (!file.is_code(code)) continue;
      const auto expected = find_unwind_rule(file, code);
      const gpuperf_unwind_rule rule = find_own_rule(vaddr + bias, is_exact);
      ++found.compared;
      if (expected.ok() && rule == *expected) continue;
      if (++found.differing > 10) continue;
      ADD_FAILURE() << std::hex << vaddr << " exact " << is_exact << ": "
                    << rule_text::describe(rule) << ", not "
                    << (expected.ok() ? rule_text::describe(*expected)
                                      : expected.status().ToString());
    }
  }
  return found;
}

class OwnRulesTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(can_find_own_rules()); }
};

class LoadedCodeTest : public testing::TestWithParam<const char*> {};

TEST_P(LoadedCodeTest, HasTheRulesThatTheDaemonFindsInItsFile) {
  ASSERT_TRUE(can_find_own_rules());
  const Loaded loaded = find_loaded(GetParam());
  const Fd fd(::open(loaded.path.c_str(), O_RDONLY | O_CLOEXEC));
  const auto file = CodeFile::open(fd.get());
  ASSERT_TRUE(file.ok()) << loaded.path;

  const Comparison first = compare(*file, loaded.bias);
  const Comparison again = compare(*file, loaded.bias);  // those that were kept

  EXPECT_GT(first.compared, 1000u);
  EXPECT_EQ(first.differing, 0u);
  EXPECT_EQ(again.differing, 0u);
  std::printf("%s: %zu rules, %zu differ\n", loaded.path.c_str(), first.compared, first.differing);
}

INSTANTIATE_TEST_SUITE_P(Modules, LoadedCodeTest,
                         testing::Values("", "/libc.so", "/libstdc++.so", "/ld-linux"));

TEST_F(OwnRulesTest, KnowsTheVdso) {
  const auto vdso = copy_vdso();
  ASSERT_TRUE(vdso.ok()) << vdso.status();
  const auto file = CodeFile::open(vdso->file.get());
  ASSERT_TRUE(file.ok()) << file.status();

  const Comparison found = compare(*file, getauxval(AT_SYSINFO_EHDR));

  EXPECT_GT(found.compared, 20u);
  EXPECT_EQ(found.differing, 0u);
}

TEST_F(OwnRulesTest, KnowsNothingOfCodeInNoLoadedFile) {
  void* const page = mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto address = reinterpret_cast<uint64_t>(page);

  EXPECT_EQ(find_own_rule(address, true).kind, GPUPERF_UNWIND_UNKNOWN);
  EXPECT_EQ(find_own_rule(address + 4096, false).kind, GPUPERF_UNWIND_UNKNOWN);
  munmap(page, 4096);
}

TEST_F(OwnRulesTest, KnowsNothingWhereNothingCanBeRead) {
  void* const page = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  errno = 71;

  for (const uint64_t pc :
       {uint64_t{0}, uint64_t{1}, uint64_t{4096}, reinterpret_cast<uint64_t>(page) + 8,
        uint64_t{0x7fff'ffff'f000}, uint64_t{0x8000'0000'0000}, UINT64_MAX}) {
    EXPECT_EQ(find_own_rule(pc, true).kind, GPUPERF_UNWIND_UNKNOWN) << pc;
    EXPECT_EQ(find_own_rule(pc, false).kind, GPUPERF_UNWIND_UNKNOWN) << pc;
  }

  EXPECT_EQ(errno, 71);
  munmap(page, 4096);
}

// More often than there are numbers of generations.
TEST_F(OwnRulesTest, FindsTheSameAfterRulesWereForgotten) {
  const auto pc = reinterpret_cast<uint64_t>(&find_loaded);
  const gpuperf_unwind_rule before = find_own_rule(pc, true);
  ASSERT_EQ(before.kind, GPUPERF_UNWIND_SP);

  for (int i = 0; i < 140'000; ++i) {
    forget_own_rules();
    if (i % 1'000 == 0) {
      ASSERT_EQ(find_own_rule(pc, true), before);
    }
  }

  EXPECT_EQ(find_own_rule(pc, true), before);
}

TEST_F(OwnRulesTest, FindsTheSameOnManyThreadsWhileRulesAreForgotten) {
  const Loaded loaded = find_loaded("/libc.so");
  const Fd fd(::open(loaded.path.c_str(), O_RDONLY | O_CLOEXEC));
  const auto file = CodeFile::open(fd.get());
  ASSERT_TRUE(file.ok());
  std::vector<std::pair<uint64_t, gpuperf_unwind_rule>> expected;
  for (const uint64_t vaddr : list_addresses(*file)) {
    if (expected.size() == 2'000) break;
    if (file->is_code(vaddr)) {
      expected.emplace_back(vaddr + loaded.bias, find_own_rule(vaddr + loaded.bias, true));
    }
  }
  std::atomic<int> differing = 0;
  std::atomic<int> running = 4;

  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 10; ++round) {
        for (const auto& [pc, rule] : expected) {
          if (!(find_own_rule(pc, true) == rule)) ++differing;
        }
      }
      --running;
    });
  }
  while (running > 0) forget_own_rules();
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(differing, 0);
}

// The loader reads nothing of what is damaged here.
TEST_F(OwnRulesTest, SurvivesDamagedDescriptions) {
  const uint32_t seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  const std::string bytes = read_file(FRAME_SAMPLE);
  const Fd right(::open(FRAME_SAMPLE, O_RDONLY | O_CLOEXEC));
  const auto file = CodeFile::open(right.get());
  ASSERT_TRUE(file.ok());
  const NamedSection code = *file->find_section(".text");
  int wrong = 0;

  for (const char* name : {".eh_frame_hdr", ".eh_frame"}) {
    const NamedSection damaged = *file->find_section(name);
    for (int round = 0; round < 100; ++round) {
      std::string copy = bytes;
      for (uint32_t i = 1 + random() % 16; i > 0; --i) {
        copy[damaged.offset_bytes + random() % damaged.size_bytes] = static_cast<char>(random());
      }
      const Fd fd = elf_builder::make_file(copy);
      void* const library =
          dlopen(("/proc/self/fd/" + std::to_string(fd.get())).c_str(), RTLD_LAZY | RTLD_LOCAL);
      ASSERT_NE(library, nullptr) << dlerror();
      link_map* map = nullptr;
      ASSERT_EQ(dlinfo(library, RTLD_DI_LINKMAP, &map), 0);
      forget_own_rules();
      for (uint64_t vaddr = code.vaddr; vaddr < code.vaddr + code.size_bytes; vaddr += 5) {
        const gpuperf_unwind_rule rule = find_own_rule(vaddr + map->l_addr, true);
        ASSERT_LT(rule.kind, GPUPERF_UNWIND_KINDS);
        const auto expected = find_unwind_rule(*file, vaddr);
        wrong += expected.ok() && rule == *expected ? 0 : 1;
      }
      dlclose(library);
    }
  }

  EXPECT_GT(wrong, 100);  // or nothing of what was damaged is ever read
}

// What it costs, in words only: machines differ.
TEST_F(OwnRulesTest, PrintsWhatItCosts) {
  const Loaded loaded = find_loaded("/libc.so");
  const Fd fd(::open(loaded.path.c_str(), O_RDONLY | O_CLOEXEC));
  const auto file = CodeFile::open(fd.get());
  std::vector<uint64_t> addresses = list_addresses(*file);
  addresses.resize(std::min<size_t>(addresses.size(), 4'000));
  const auto measure = [&] {
    timespec begin{};
    timespec end{};
    (void)clock_gettime(CLOCK_MONOTONIC, &begin);
    for (const uint64_t vaddr : addresses) (void)find_own_rule(vaddr + loaded.bias, true);
    (void)clock_gettime(CLOCK_MONOTONIC, &end);
    const double ns = static_cast<double>(end.tv_sec - begin.tv_sec) * 1e9 +
                      static_cast<double>(end.tv_nsec - begin.tv_nsec);
    return ns / static_cast<double>(addresses.size());
  };
  forget_own_rules();

  const double made_ns = measure();
  const double known_ns = measure();

  std::printf("ns per rule: made %.0f, known %.0f\n", made_ns, known_ns);
}

TEST(OwnMemoryTest, ReadsWhatIsThere) {
  const std::array<uint64_t, 3> values = {1, 2, 3};
  std::array<uint64_t, 3> read{};

  EXPECT_TRUE(read_own(reinterpret_cast<uint64_t>(&values), &read, sizeof read));
  EXPECT_EQ(read, values);
}

TEST(OwnMemoryTest, RefusesWhatCannotBeReadWithoutAFault) {
  void* const pages = mmap(nullptr, 2 * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto address = reinterpret_cast<uint64_t>(pages);
  ASSERT_EQ(mprotect(static_cast<char*>(pages) + 4096, 4096, PROT_NONE), 0);
  std::array<uint8_t, 16> bytes{};
  errno = 71;

  EXPECT_TRUE(read_own(address + 4080, &bytes, 16));
  EXPECT_FALSE(read_own(address + 4081, &bytes, 16));  // all or nothing
  EXPECT_FALSE(read_own(address + 4096, &bytes, 1));   // PROT_NONE
  munmap(pages, 2 * 4096);
  EXPECT_FALSE(read_own(address, &bytes, 1));
  EXPECT_FALSE(read_own(0, &bytes, 1));
  EXPECT_FALSE(read_own(0xffff'8000'0000'0000, &bytes, 8));  // the kernel's
  EXPECT_FALSE(read_own(UINT64_MAX - 3, &bytes, 8));

  EXPECT_EQ(errno, 71);
}

TEST(OwnMemoryTest, ReadsAForkedChildsOwnMemory) {
  volatile uint64_t value = 1;
  const pid_t child = fork();
  if (child == 0) {
    value = 2;
    uint64_t read = 0;
    const bool is_read = read_own(reinterpret_cast<uint64_t>(&value), &read, sizeof read);
    _exit(is_read && read == 2 ? 0 : 1);
  }

  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace gpuperf::injector
