#include "daemon/unwind/address_spaces.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "daemon/base/proc_text.h"
#include "daemon/unwind/frame_rules.h"
#include "daemon/unwind/stack_walk.h"
#include "tests/unit/base/fake_clock.h"
#include "tests/unit/matchers.h"
#include "tests/unit/probe/fake_proc.h"
#include "tests/unit/unwind/commanded_child.h"
#include "tests/unit/unwind/python_process.h"
#include "tests/unit/unwind/rule_text.h"

// What is known of this very process and of children that map and unmap code, and what the kernel
// side is told of it.

namespace gpuperf {
namespace {

// What the kernel side would know.
struct FakeTables {
  using Key = std::tuple<uint32_t, uint64_t, bool>;  // space, pc, is_exact

  WalkTables make() {
    return {
        .set_space =
            [this](uint32_t pid, const gpuperf_address_space& space) {
              ++times_told;
              if (!is_full) spaces[pid] = space;
              return !is_full;
            },
        .erase_space = [this](uint32_t pid) { spaces.erase(pid); },
        .set_rule =
            [this](const gpuperf_unwind_key& key, const gpuperf_unwind_rule& rule) {
              ++times_taught;
              if (!is_full) rules[{key.space, key.pc, key.is_exact != 0}] = rule;
              return !is_full;
            },
        .erase_rule =
            [this](const gpuperf_unwind_key& key) {
              rules.erase({key.space, key.pc, key.is_exact != 0});
            },
        .read_code_changes = [this](uint32_t) { return code_changes; },
        .watch_loader =
            [this](int, const FileIdentity&, uint64_t) {
              ++times_watched;
              return absl::OkStatus();
            },
    };
  }

  bool is_full = false;
  uint32_t code_changes = 0;  // of all processes
  size_t times_watched = 0;
  size_t times_told = 0;
  size_t times_taught = 0;
  std::map<uint32_t, gpuperf_address_space> spaces;
  std::map<Key, gpuperf_unwind_rule> rules;
};

constexpr gpuperf_unwind_rule kAtEntry{.kind = GPUPERF_UNWIND_SP, .cfa_offset_bytes = 8};
constexpr gpuperf_unwind_rule kNone{.kind = GPUPERF_UNWIND_UNKNOWN};
constexpr auto kLeaf = "frame_sample_leaf";

class AddressSpacesTest : public testing::Test {
 protected:
  static ProcessKey self() {
    const auto pid = static_cast<uint32_t>(getpid());
    return {.pid = pid, .start_boot_ns = read_start_ticks("/proc", pid).value_or(0) * 10'000'000};
  }
  static uint64_t own_code() { return reinterpret_cast<uint64_t>(&own_function); }
  [[gnu::noinline]] static void own_function() { asm volatile(""); }
  // As it came, walked by the rules of a space.
  static RawStack make_stack(const ProcessKey& process, uint32_t space) {
    return {.process = process, .space = space};
  }
  const gpuperf_address_space& told(uint32_t pid) { return tables_.spaces.at(pid); }

  FakeClock clock_;
  CodeFiles files_;
  FakeTables tables_;
  AddressSpaces spaces_{{.tables = tables_.make()}, files_, clock_};
};

// As mm_struct.exec_vm counts: what may be run and not written. The vsyscall page is the kernel's.
uint64_t count_code_pages(uint32_t pid) {
  uint64_t bytes = 0;
  const auto maps = read_executable_maps("/proc", pid);
  if (!maps.ok()) return 0;
  for (const MapEntry& entry : maps->entries) {
    if (entry.path != "[vsyscall]") bytes += entry.end_address - entry.start_address;
  }
  return bytes / 4096;
}

TEST_F(AddressSpacesTest, TellsWhatTheKernelSideComparesAProcessBy) {
  ASSERT_TRUE(spaces_.prepare(self().pid));

  const gpuperf_address_space& space = told(self().pid);
  EXPECT_EQ(space.start_stack, read_start_stack("/proc", self().pid).value());
  EXPECT_EQ(space.code_pages, count_code_pages(self().pid));
  EXPECT_EQ(space.python_runtime, 0u);
  EXPECT_NE(space.space, 0u);
  EXPECT_TRUE(spaces_.is_known(self().pid));
}

TEST_F(AddressSpacesTest, GivesEachProcessANumberOfItsOwn) {
  const CommandedChild child;

  ASSERT_TRUE(spaces_.prepare(self().pid));
  ASSERT_TRUE(spaces_.prepare(child.pid()));

  EXPECT_NE(told(self().pid).space, told(child.pid()).space);
  EXPECT_EQ(spaces_.counts(), (AddressSpaces::Counts{.processes = 2}));
}

TEST_F(AddressSpacesTest, LearnsARuleOnceAndTeachesItTheKernelSide) {
  EXPECT_EQ(spaces_.find_rule(self(), 0, own_code(), true), kAtEntry);
  EXPECT_EQ(spaces_.find_rule(self(), 0, own_code(), true), kAtEntry);

  EXPECT_EQ(tables_.times_taught, 1u);
  const std::map<FakeTables::Key, gpuperf_unwind_rule> expected = {
      {{told(self().pid).space, own_code(), true}, kAtEntry}};
  EXPECT_EQ(tables_.rules, expected);
  EXPECT_EQ(spaces_.counts(), (AddressSpaces::Counts{.processes = 1, .rules = 1}));
}

TEST_F(AddressSpacesTest, TellsAReturnAddressFromThePlaceAtTheSameAddress) {
  const CommandedChild child;
  const uint64_t code = child.key().pid != 0 ? own_code() : 0;

  const gpuperf_unwind_rule exact = spaces_.find_rule(child.key(), 0, code + 1, true);
  const gpuperf_unwind_rule after_call = spaces_.find_rule(child.key(), 0, code + 1, false);

  EXPECT_EQ(after_call, kAtEntry);  // that of the byte before
  EXPECT_THAT(tables_.rules, SizeIs(2));
  EXPECT_EQ((tables_.rules[{told(child.pid()).space, code + 1, true}]), exact);
  EXPECT_EQ((tables_.rules[{told(child.pid()).space, code + 1, false}]), after_call);
}

TEST_F(AddressSpacesTest, KnowsTheCodeThatTheKernelMaps) {
  void* const vdso = dlopen("linux-vdso.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (vdso == nullptr) GTEST_SKIP() << "this process has no vdso";
  const auto function = reinterpret_cast<uint64_t>(dlsym(vdso, "__vdso_clock_gettime"));
  ASSERT_NE(function, 0u);

  EXPECT_EQ(spaces_.find_rule(self(), 0, function, true), kAtEntry);
}

TEST_F(AddressSpacesTest, GuessesInMemoryWithoutAFile) {
  CommandedChild child;
  const uint64_t code = child.map_memory();

  EXPECT_EQ(spaces_.find_rule(child.key(), 0, code + 100, false), kGuess);
}

TEST_F(AddressSpacesTest, GuessesInAFileThatIsNoElfFile) {
  CommandedChild child;
  const uint64_t code = child.map_file(__FILE__);

  EXPECT_EQ(spaces_.find_rule(child.key(), 0, code + 100, false), kGuess);
}

// However many files of a process are held open.
TEST_F(AddressSpacesTest, KnowsThatAnotherFileCameInTheSamePlace) {
  CommandedChild child;
  std::vector<uint64_t> places;
  for (int i = 0; i < 80; ++i) places.push_back(child.map_file(FRAME_SAMPLE));
  for (const uint64_t place : places) (void)spaces_.find_rule(child.key(), 0, place + 100, false);

  (void)child.map_file(__FILE__, places[0]);
  ASSERT_TRUE(spaces_.prepare(child.pid()));

  EXPECT_EQ(spaces_.find_rule(child.key(), 0, places[0] + 100, false), kGuess);
}

TEST_F(AddressSpacesTest, KnowsNothingOfMemoryThatIsNoCode) {
  const uint64_t data = reinterpret_cast<uint64_t>(&clock_);

  EXPECT_EQ(spaces_.find_rule(self(), 0, data, true), kNone);

  EXPECT_THAT(tables_.rules, IsEmpty());
}

TEST_F(AddressSpacesTest, KnowsNothingOfAProcessThatHasGone) {
  CommandedChild child;
  const ProcessKey gone = child.key();
  child.kill();

  EXPECT_FALSE(spaces_.prepare(gone.pid));
  EXPECT_EQ(spaces_.find_rule(gone, 0, own_code(), true), kNone);

  EXPECT_EQ(spaces_.counts(), AddressSpaces::Counts{});
}

TEST_F(AddressSpacesTest, KnowsNothingOfAProcessWhosePidHasANewOwner) {
  ProcessKey before = self();
  before.start_boot_ns -= 10'000'000;

  EXPECT_EQ(spaces_.find_rule(before, 0, own_code(), true), kNone);

  EXPECT_THAT(tables_.rules, IsEmpty());
}

TEST_F(AddressSpacesTest, KeepsItsRulesWhenCodeWasAdded) {
  CommandedChild child;
  (void)spaces_.find_rule(child.key(), 0, own_code(), true);
  const gpuperf_address_space before = told(child.pid());
  const auto rules = tables_.rules;

  const uint64_t added = child.open_library(FRAME_SAMPLE, kLeaf);
  ASSERT_TRUE(spaces_.prepare(child.pid()));

  EXPECT_EQ(told(child.pid()).space, before.space);
  EXPECT_GT(told(child.pid()).code_pages, before.code_pages);
  EXPECT_EQ(tables_.rules, rules);
  EXPECT_EQ(spaces_.find_rule(child.key(), 0, added, true), kAtEntry);
}

TEST_F(AddressSpacesTest, ForgetsItsRulesWhenCodeHasGone) {
  CommandedChild child;
  const uint64_t leaf = child.open_library(FRAME_SAMPLE, kLeaf);
  (void)spaces_.find_rule(child.key(), 0, leaf, true);
  (void)spaces_.find_rule(child.key(), 0, own_code(), true);
  const uint32_t before = told(child.pid()).space;
  ASSERT_THAT(tables_.rules, SizeIs(2));

  child.close_library();
  ASSERT_TRUE(spaces_.prepare(child.pid()));

  EXPECT_NE(told(child.pid()).space, before);
  EXPECT_THAT(tables_.rules, IsEmpty());
  EXPECT_EQ(spaces_.counts(), (AddressSpaces::Counts{.processes = 1}));
  EXPECT_EQ(spaces_.find_rule(child.key(), 0, leaf, true), kNone);
}

TEST_F(AddressSpacesTest, KeepsItsRulesWhenMemoryWithoutAFileHasGone) {
  CommandedChild child;
  const uint64_t code = child.map_memory();
  (void)spaces_.find_rule(child.key(), 0, code, true);
  const uint32_t before = told(child.pid()).space;

  child.unmap(code);
  ASSERT_TRUE(spaces_.prepare(child.pid()));

  EXPECT_EQ(told(child.pid()).space, before);
  EXPECT_THAT(tables_.rules, SizeIs(1));
}

TEST_F(AddressSpacesTest, ForgetsItsRulesWhenAFileComesWhereMemoryWithoutOneWas) {
  CommandedChild child;
  const uint64_t code = child.map_memory();
  (void)spaces_.find_rule(child.key(), 0, code + 8192, true);
  const uint32_t before = told(child.pid()).space;

  child.unmap(code);
  (void)child.map_file(FRAME_SAMPLE, code + 8192);  // not at its beginning
  ASSERT_TRUE(spaces_.prepare(child.pid()));

  EXPECT_NE(told(child.pid()).space, before);
  EXPECT_THAT(tables_.rules, IsEmpty());
}

TEST_F(AddressSpacesTest, TakesAnotherProgramForAnotherSpace) {
  CommandedChild child;
  const ProcessKey process = child.key();
  (void)spaces_.find_rule(process, 0, own_code(), true);
  const gpuperf_address_space before = told(child.pid());

  child.exec();
  spaces_.note_walk(make_stack(process, 0));

  EXPECT_NE(told(child.pid()).space, before.space);
  EXPECT_NE(told(child.pid()).start_stack, before.start_stack);
  EXPECT_THAT(tables_.rules, IsEmpty());
  EXPECT_EQ(spaces_.counts(), (AddressSpaces::Counts{.processes = 1}));
}

TEST_F(AddressSpacesTest, KnowsAForkedProcessByTheSpaceOfItsParent) {
  const CommandedChild child;
  ASSERT_TRUE(spaces_.prepare(self().pid));
  const uint32_t parents = told(self().pid).space;

  spaces_.note_walk(make_stack(child.key(), parents));

  EXPECT_EQ(spaces_.find_rule(child.key(), parents, own_code(), true), kAtEntry);
  EXPECT_FALSE(spaces_.is_known(child.pid()));
  EXPECT_TRUE(tables_.rules.contains({parents, own_code(), true}));
}

TEST_F(AddressSpacesTest, SaysWhichMappingsItKnows) {
  ASSERT_TRUE(spaces_.prepare(self().pid));
  const uint32_t number = told(self().pid).space;

  const AddressSpaces::Mapped now = spaces_.find_mapped(self(), 0);
  const AddressSpaces::Mapped by_number = spaces_.find_mapped({.pid = 1}, number);
  const AddressSpaces::Mapped never = spaces_.find_mapped(self(), number + 1);

  const auto maps = read_executable_maps("/proc", self().pid);
  ASSERT_TRUE(maps.ok() && now.mappings && by_number.mappings);
  EXPECT_EQ(now.space, number);
  EXPECT_EQ(*now.mappings, maps->entries);
  EXPECT_EQ(*by_number.mappings, maps->entries);
  EXPECT_EQ(never.mappings, nullptr);
}

TEST_F(AddressSpacesTest, FindsTheSpaceOfAStackThatTheKernelSideKnewNoneOf) {
  ASSERT_TRUE(spaces_.prepare(self().pid));

  EXPECT_EQ(spaces_.find_number(make_stack(self(), 0)), told(self().pid).space);
}

TEST_F(AddressSpacesTest, KeepsTheSpaceThatAStackWasWalkedBy) {
  EXPECT_EQ(spaces_.find_number(make_stack(self(), 71)), 71u);
}

TEST_F(AddressSpacesTest, FindsNoSpaceOfAProcessThatIsNotKnown) {
  EXPECT_EQ(spaces_.find_number(make_stack(self(), 0)), AddressSpaces::kNoSpace);

  EXPECT_EQ(spaces_.find_rule(self(), AddressSpaces::kNoSpace, own_code(), true), kNone);
}

TEST_F(AddressSpacesTest, TellsSuccessiveSpacesApartByTheChangesOfTheLoader) {
  CommandedChild child;
  (void)child.open_library(FRAME_SAMPLE, kLeaf);
  tables_.code_changes = 2;
  ASSERT_TRUE(spaces_.prepare(child.pid()));
  const uint32_t before = told(child.pid()).space;
  RawStack then = make_stack(child.key(), 0);
  then.code_changes = 2;

  child.close_library();
  tables_.code_changes = 4;
  ASSERT_TRUE(spaces_.prepare(child.pid()));

  RawStack now = then;
  now.code_changes = 4;
  RawStack between = then;
  between.code_changes = 3;
  EXPECT_EQ(spaces_.find_number(then), before);
  EXPECT_EQ(spaces_.find_number(now), told(child.pid()).space);
  EXPECT_EQ(spaces_.find_number(between), AddressSpaces::kNoSpace);
  EXPECT_EQ(told(child.pid()).code_changes, 4u);
}

TEST_F(AddressSpacesTest, FindsNoSpaceWhereALibraryMayHaveTakenAnothersPlaceForAWhile) {
  CommandedChild child;
  (void)child.open_library(FRAME_SAMPLE, kLeaf);
  tables_.code_changes = 2;
  ASSERT_TRUE(spaces_.prepare(child.pid()));
  const uint32_t number = told(child.pid()).space;
  const auto find_at = [&](uint32_t code_changes) {
    RawStack stack = make_stack(child.key(), 0);
    stack.code_changes = code_changes;
    return spaces_.find_number(stack);
  };
  tables_.code_changes = 6;  // one that came elsewhere and went
  ASSERT_TRUE(spaces_.prepare(child.pid()));
  EXPECT_EQ(find_at(4), number);

  tables_.code_changes = 14;
  ASSERT_TRUE(spaces_.prepare(child.pid()));

  EXPECT_EQ(find_at(6), number);
  EXPECT_EQ(find_at(10), AddressSpaces::kNoSpace);
  EXPECT_EQ(find_at(14), number);
}

TEST_F(AddressSpacesTest, AnswersByASpaceOfBeforeForAWhileAndTeachesNobody) {
  CommandedChild child;
  const uint64_t leaf = child.open_library(FRAME_SAMPLE, kLeaf);
  ASSERT_TRUE(spaces_.prepare(child.pid()));
  const uint32_t before = told(child.pid()).space;
  child.close_library();
  ASSERT_TRUE(spaces_.prepare(child.pid()));

  const gpuperf_unwind_rule soon = spaces_.find_rule(child.key(), before, leaf, true);
  clock_.advance(std::chrono::seconds{10});
  spaces_.sweep();
  const gpuperf_unwind_rule late = spaces_.find_rule(child.key(), before, leaf, true);

  EXPECT_EQ(soon, kAtEntry);
  EXPECT_EQ(late, kNone);
  EXPECT_THAT(tables_.rules, IsEmpty());
}

TEST_F(AddressSpacesTest, WatchesEachLoaderOnce) {
  const CommandedChild child;

  ASSERT_TRUE(spaces_.prepare(self().pid));
  ASSERT_TRUE(spaces_.prepare(child.pid()));

  EXPECT_EQ(tables_.times_watched, 1u);
}

TEST_F(AddressSpacesTest, ReadsNothingAnewForAWalkByItsRules) {
  ASSERT_TRUE(spaces_.prepare(self().pid));

  spaces_.note_walk(make_stack(self(), told(self().pid).space));

  EXPECT_EQ(tables_.times_told, 1u);
}

TEST_F(AddressSpacesTest, ReadsNothingAnewForAWalkFromBeforeItWasRead) {
  ASSERT_TRUE(spaces_.prepare(self().pid));

  spaces_.note_walk(make_stack(self(), 0));

  EXPECT_EQ(tables_.times_told, 1u);
}

TEST_F(AddressSpacesTest, ReadsAProcessAtItsFirstWalk) {
  spaces_.note_walk(make_stack(self(), 0));

  EXPECT_TRUE(tables_.spaces.contains(self().pid));
}

TEST_F(AddressSpacesTest, ReadsAProcessAnewAtAWalkSinceWhichCodeWasAdded) {
  CommandedChild child;
  ASSERT_TRUE(spaces_.prepare(child.pid()));
  (void)child.open_library(FRAME_SAMPLE, kLeaf);

  spaces_.note_walk(make_stack(child.key(), 0));

  EXPECT_EQ(told(child.pid()).code_pages, count_code_pages(child.pid()));
}

TEST_F(AddressSpacesTest, ReadsMappingsAnewForAPlaceInNoneWhenTheyAreNotFresh) {
  CommandedChild child;
  ASSERT_TRUE(spaces_.prepare(child.pid()));
  const uint64_t leaf = child.open_library(FRAME_SAMPLE, kLeaf);

  const gpuperf_unwind_rule at_once = spaces_.find_rule(child.key(), 0, leaf, true);
  clock_.advance(std::chrono::milliseconds{20});
  const gpuperf_unwind_rule later = spaces_.find_rule(child.key(), 0, leaf, true);

  EXPECT_EQ(at_once, kNone);
  EXPECT_EQ(later, kAtEntry);
}

TEST_F(AddressSpacesTest, ForgetsProcessesThatHaveGoneAndKeepsOthers) {
  CommandedChild child;
  (void)spaces_.find_rule(child.key(), 0, own_code(), true);
  (void)spaces_.find_rule(self(), 0, own_code(), true);
  const uint32_t gone = child.pid();
  child.kill();

  spaces_.sweep();

  EXPECT_FALSE(spaces_.is_known(gone));
  EXPECT_FALSE(tables_.spaces.contains(gone));
  EXPECT_TRUE(tables_.spaces.contains(self().pid));
  EXPECT_THAT(tables_.rules, SizeIs(1));
  EXPECT_EQ(spaces_.counts(), (AddressSpaces::Counts{.processes = 1, .rules = 1}));
}

TEST_F(AddressSpacesTest, AnswersWhatTheKernelSideHasNoRoomForWithoutKeepingIt) {
  tables_.is_full = true;

  EXPECT_TRUE(spaces_.prepare(self().pid));
  EXPECT_EQ(spaces_.find_rule(self(), 0, own_code(), true), kAtEntry);
  EXPECT_EQ(spaces_.counts(), (AddressSpaces::Counts{.processes = 1}));

  tables_.is_full = false;
  EXPECT_EQ(spaces_.find_rule(self(), 0, own_code(), true), kAtEntry);
  EXPECT_EQ(spaces_.counts(), (AddressSpaces::Counts{.processes = 1, .rules = 1}));
}

TEST_F(AddressSpacesTest, TellsOfAProcessOnceTheKernelSideHasRoomForIt) {
  tables_.is_full = true;
  ASSERT_TRUE(spaces_.prepare(self().pid));
  tables_.is_full = false;

  spaces_.note_walk(make_stack(self(), 0));

  EXPECT_TRUE(tables_.spaces.contains(self().pid));
}

TEST_F(AddressSpacesTest, AnswersBeyondItsMostRulesWithoutKeepingThem) {
  void* const code = mmap(nullptr, AddressSpaces::kMaxRules, PROT_READ | PROT_EXEC,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(code, MAP_FAILED);
  const auto first = reinterpret_cast<uint64_t>(code);
  const ProcessKey process = self();
  for (uint64_t i = 0; i < AddressSpaces::kMaxRules; ++i) {
    (void)spaces_.find_rule(process, 0, first + i, true);
  }
  ASSERT_EQ(tables_.times_taught, AddressSpaces::kMaxRules);

  const gpuperf_unwind_rule one_more = spaces_.find_rule(process, 0, own_code(), true);

  EXPECT_EQ(one_more, kAtEntry);
  EXPECT_EQ(tables_.times_taught, AddressSpaces::kMaxRules);
  EXPECT_EQ(spaces_.counts().rules, AddressSpaces::kMaxRules);
  munmap(code, AddressSpaces::kMaxRules);
}

TEST_F(AddressSpacesTest, RefusesMoreProcessesThanTheKernelSideHasRoomFor) {
  FakeProc fake;
  fake.add_process(1, "/app");
  fake.write(1, "status", "Name:\tapp\nVmExe:\t       4 kB\nVmLib:\t       0 kB\n");
  fake.write(1, "maps", "5000-6000 r-xp 00000000 00:00 0 \n");
  std::string stat = "1 (app) S";
  for (int field = 4; field <= 52; ++field) stat += " 1";
  fake.write(1, "stat", stat + "\n");
  AddressSpaces spaces({.proc = fake.proc(), .tables = tables_.make()}, files_, clock_);
  constexpr uint32_t kMost = AddressSpaces::kMaxProcesses;
  for (uint32_t pid = 1; pid <= kMost; ++pid) {
    ASSERT_TRUE(spaces.prepare(pid)) << pid;
    std::filesystem::rename(fake.directory(pid), fake.directory(pid + 1));
  }

  EXPECT_FALSE(spaces.prepare(kMost + 1));
  std::filesystem::rename(fake.directory(kMost + 1), fake.directory(1));
  EXPECT_TRUE(spaces.prepare(1));  // known already

  EXPECT_THAT(tables_.spaces, SizeIs(kMost));
}

TEST_F(AddressSpacesTest, TellsOfThePythonInAProcess) {
  PythonProcess process({"system", "/usr/bin/python3"});
  ASSERT_TRUE(process.read_report().ok());
  const auto expected = process.find_runtime();
  ASSERT_TRUE(expected.ok()) << expected.status();

  ASSERT_TRUE(spaces_.prepare(process.pid()));

  for (const AddressSpaces::FoundPython& python : spaces_.take_found_pythons()) {
    spaces_.set_python(
        python, load_python_runtime(python.file, python.bias, make_direct_reader(python.pid)));
  }

  const PythonRuntime* const found = spaces_.find_python({.pid = process.pid()}, 0);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->address, expected->address);
  EXPECT_EQ(told(process.pid()).python_runtime, expected->address);
  EXPECT_EQ(told(process.pid()).python.version, expected->layout.version);
}

TEST_F(AddressSpacesTest, LooksForAPythonAgainWhoseFileWasLate) {
  // A copy, removed once it runs: there is no other way to its file than by its mapping.
  const std::filesystem::path copy =
      std::filesystem::path(testing::TempDir()) / ("python3-" + std::to_string(getpid()));
  std::filesystem::copy_file("/usr/bin/python3", copy,
                             std::filesystem::copy_options::overwrite_existing);
  PythonProcess process({"copy", "PYTHONHOME=/usr " + copy.string()});
  ASSERT_TRUE(process.read_report().ok());
  std::filesystem::remove(copy);
  bool is_late = true;
  const ProcFiles direct;
  const ProcFiles proc(
      "/proc", {.read_maps = [&](uint32_t pid, size_t max) { return direct.read_maps(pid, max); },
                .read_environment = [&](uint32_t pid,
                                        size_t max) { return direct.read_environment(pid, max); },
                .take_mapped = [&](uint32_t pid, const std::string& range) -> Result<Fd> {
                  if (is_late) return absl::DeadlineExceededError("late");
                  return direct.take_mapped(pid, range);
                }});
  AddressSpaces spaces({.proc = proc, .tables = tables_.make()}, files_, clock_);
  ASSERT_TRUE(spaces.prepare(process.pid()));
  const uint32_t number = told(process.pid()).space;
  EXPECT_TRUE(spaces.take_found_pythons().empty());
  is_late = false;

  spaces.note_walk(make_stack({.pid = process.pid()}, number));
  EXPECT_TRUE(spaces.take_found_pythons().empty()) << "its user has to wait";
  clock_.advance(std::chrono::seconds{2});
  spaces.note_walk(make_stack({.pid = process.pid()}, number));

  EXPECT_EQ(spaces.take_found_pythons().size(), 1u);
}

TEST_F(AddressSpacesTest, FindsNoPythonWhereNoneIs) {
  ASSERT_TRUE(spaces_.prepare(self().pid));

  EXPECT_EQ(spaces_.find_python(self(), 0), nullptr);
}

TEST_F(AddressSpacesTest, LeadsAWalkThroughAThreadOfAnotherProcessToItsEnd) {
  CommandedChild child;
  const CommandedChild::Blocked blocked = child.block();
  ASSERT_GT(blocked.callers.size(), 8u);
  const ProcessKey process = child.key();
  std::vector<NativeFrame> frames;

  const StackEnd end = walk_live_stack(
      frames, blocked.live,
      [&](uint64_t pc, bool is_exact) { return spaces_.find_rule(process, 0, pc, is_exact); },
      make_direct_reader(child.pid()));

  EXPECT_EQ(end, StackEnd::kComplete);
  std::vector<uint64_t> callers;
  for (const NativeFrame& frame : frames) callers.push_back(frame.pc);
  EXPECT_EQ(callers, blocked.callers);
}

}  // namespace
}  // namespace gpuperf
