// Placements proven by running the code: every instruction is stepped through (the trap flag), and
// at each the question is asked that the BPF programs ask at a probe. Nothing is known here of how
// the placements were found.

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <link.h>
#include <signal.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <clocale>
#include <cstdio>
#include <locale>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "bpf/records.h"
#include "daemon/probe/code/placement.h"
#include "tests/unit/probe/code_sample.h"
#include "tests/unit/probe/samples/code_steps_sample.h"

namespace gpuperf {
namespace {

// The registers that an entry probe reads: stack, frame and six arguments.
constexpr int kRead[] = {REG_RSP, REG_RBP, REG_RDI, REG_RSI, REG_RDX, REG_RCX, REG_R8, REG_R9};
using Registers = std::array<greg_t, std::size(kRead)>;

enum class Kind : uint8_t { kBeginning, kEntry, kExit };

// What stands at an address of this process.
struct Mark {
  uint64_t address = 0;
  Kind kind = Kind::kBeginning;
  uint8_t condition = 0;
  uint32_t function = 0;
};

struct Frame {
  uint32_t function = 0;
  uint64_t sp = 0;
};

struct Begun {
  uint32_t function = 0;
  Registers registers{};
};

// What the signal handler works on; it runs synchronously, between two instructions of the test.
struct Stepping {
  std::vector<Mark> marks;   // by address
  std::vector<Frame> stack;  // calls begun and not left; reserved
  std::vector<Begun> begun;  // beginnings passed whose entry has not come yet; reserved
  uint64_t steps = 0;
  uint64_t entries = 0;
  uint64_t exits = 0;
  uint64_t abandoned = 0;      // calls whose exit was not seen when the stack was above them
  uint64_t changed = 0;        // entries that saw other registers than the beginning had
  uint64_t not_begun = 0;      // entries without a beginning: reached in some other way
  uint32_t last_function = 0;  // of the last of these three
  bool stop = false;
};
Stepping* running = nullptr;

// Intel SDM, "EFLAGS condition codes".
bool holds(uint8_t code, greg_t flags) {
  const bool carry = (flags & 0x1) != 0;
  const bool parity = (flags & 0x4) != 0;
  const bool zero = (flags & 0x40) != 0;
  const bool sign = (flags & 0x80) != 0;
  const bool overflow = (flags & 0x800) != 0;
  const bool all[] = {overflow,
                      carry,
                      zero,
                      carry || zero,
                      sign,
                      parity,
                      sign != overflow,
                      zero || sign != overflow};
  return all[code / 2] != (code % 2 == 1);
}

Registers read_registers(const greg_t* registers) {
  Registers read{};
  std::ranges::transform(kRead, read.begin(), [&](int index) { return registers[index]; });
  return read;
}

// Calls whose frame lies below the stack pointer are over, however they ended.
void drop_stale(uint64_t sp) {
  while (!running->stack.empty() && running->stack.back().sp < sp) {
    ++running->abandoned;
    running->last_function = running->stack.back().function;
    running->stack.pop_back();
  }
}

void take_entry(uint32_t function, const greg_t* registers) {
  const auto sp = static_cast<uint64_t>(registers[REG_RSP]);
  drop_stale(sp);
  const auto begun = std::find_if(running->begun.rbegin(), running->begun.rend(),
                                  [&](const Begun& one) { return one.function == function; });
  if (begun == running->begun.rend()) {
    ++running->not_begun;
    running->last_function = function;
  } else {
    if (begun->registers != read_registers(registers)) {
      ++running->changed;
      running->last_function = function;
    }
    running->begun.erase(std::next(begun).base());
  }
  ++running->entries;
  running->stack.push_back({.function = function, .sp = sp});
}

void take_exit(const Mark& mark, const greg_t* registers) {
  const bool is_conditional = mark.condition != 0 && mark.condition != GPUPERF_CONDITION_RETURN;
  if (is_conditional && !holds(mark.condition - 1, registers[REG_EFL])) return;
  if (running->stack.empty()) return;
  const Frame& top = running->stack.back();
  if (top.function != mark.function || top.sp != static_cast<uint64_t>(registers[REG_RSP])) return;
  ++running->exits;
  running->stack.pop_back();
}

void on_step(int, siginfo_t*, void* context) {
  greg_t* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  if (running->stop) {
    registers[REG_EFL] &= ~greg_t{0x100};
    return;
  }
  ++running->steps;
  const auto address = static_cast<uint64_t>(registers[REG_RIP]);
  for (const Mark& mark : std::ranges::equal_range(running->marks, address, {}, &Mark::address)) {
    if (mark.kind == Kind::kBeginning) {
      running->begun.push_back({mark.function, read_registers(registers)});
    } else if (mark.kind == Kind::kEntry) {
      take_entry(mark.function, registers);
    } else {
      take_exit(mark, registers);
    }
  }
}

// Runs `body` by single steps.
template <typename Body>
void step_through(Stepping& run, Body body) {
  struct sigaction action {};
  struct sigaction before {};
  action.sa_sigaction = on_step;
  action.sa_flags = SA_SIGINFO;
  run.stack.reserve(4096);
  run.begun.reserve(4096);
  running = &run;
  ASSERT_EQ(sigaction(SIGTRAP, &action, &before), 0);
  asm volatile("sub $128, %%rsp; pushfq; orq $0x100, (%%rsp); popfq; add $128, %%rsp" ::
                   : "memory", "cc");
  body();
  run.stop = true;
  asm volatile("nop; nop" ::: "memory");
  ASSERT_EQ(sigaction(SIGTRAP, &before, nullptr), 0);
}

// Marks of one function, if its exits are found.
bool add_marks(CodeSample& file, const FunctionSymbol& function, uint64_t bias, uint32_t id,
               std::vector<Mark>& marks) {
  const auto exits = find_exits(file.code(), function);
  if (!exits.ok()) return false;
  const auto entry = place_entry(file.code(), function, *exits);
  if (!entry.ok()) return false;
  const auto address = [&](uint64_t offset) {
    return bias + file.code().file().find_vaddr(offset).value_or(0);
  };
  marks.push_back({address(function.file_offset_bytes), Kind::kBeginning, 0, id});
  marks.push_back({address(entry->offset_bytes), Kind::kEntry, 0, id});
  for (const ExitSite& exit : *exits) {
    marks.push_back({address(exit.offset_bytes), Kind::kExit, exit.condition, id});
  }
  return true;
}

void sort_marks(std::vector<Mark>& marks) {
  std::ranges::sort(marks, [](const Mark& one, const Mark& other) {
    return std::pair(one.address, one.kind) < std::pair(other.address, other.kind);
  });
}

// A throw takes some 15,000 steps of 40 us on a virtual machine: few of them throw.
constexpr int kValues[] = {-2, 0, 1, 2, 3, 4, 5, 6, 7, 8};

class StepsTest : public testing::TestWithParam<StepsCase> {};

TEST_P(StepsTest, SeesEveryCallBeginOnceAndEndOnce) {
  CodeSample self("/proc/self/exe");
  const FunctionSymbol function = self.get(GetParam().name);
  const uint64_t bias = reinterpret_cast<uint64_t>(GetParam().run) -
                        self.code().file().find_vaddr(function.file_offset_bytes).value_or(0);
  Stepping run;
  ASSERT_TRUE(add_marks(self, function, bias, 1, run.marks))
      << find_exits(self.code(), function).status();
  sort_marks(run.marks);
  volatile uint64_t thrown = 0;
  volatile uint64_t returned = 0;

  step_through(run, [&] {
    for (const int value : kValues) {
      try {
        (void)GetParam().run(value);
        returned = returned + 1;
      } catch (const std::exception&) {
        thrown = thrown + 1;
      }
    }
  });

  EXPECT_EQ(run.changed, 0u);
  EXPECT_EQ(run.not_begun, 0u);
  EXPECT_GE(run.entries, std::size(kValues));
  EXPECT_EQ(returned + thrown, std::size(kValues));
  // The last of them may lie on the stack still: nothing came after it.
  EXPECT_EQ(run.abandoned + run.stack.size(), thrown);
  EXPECT_EQ(run.exits, run.entries - thrown);
}

INSTANTIATE_TEST_SUITE_P(Cases, StepsTest, testing::ValuesIn(kStepsCases),
                         [](const auto& one) { return std::string(one.param.name); });

// Where a library of this process is mapped.
struct Loaded {
  std::string path;
  uint64_t bias = 0;
};

Loaded find_loaded(const std::string& name) {
  Loaded found{.path = name};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto& wanted = *static_cast<Loaded*>(data);
        if (std::string(info->dlpi_name).find(wanted.path) == std::string::npos) return 0;
        wanted = {.path = info->dlpi_name, .bias = info->dlpi_addr};
        return 1;
      },
      &found);
  return found;
}

// Streams, locales and strings: functions of the real library, virtual ones and those with parts
// split off among them, nested in each other.
void use_streams() {
  std::stringstream stream;
  stream.imbue(std::locale::classic());
  for (int i = 0; i < 6; ++i) stream << i * 37 << ' ' << i / 7.0 << ' ' << (i % 2 == 0) << '\n';
  int number = 0;
  double quotient = 0;
  bool even = false;
  while (stream >> number >> quotient >> even) number += even ? 1 : 0;
  std::string text = stream.str();
  text.insert(3, "and more of it than fits");
  text.replace(0, 5, text.substr(8, 40));
  (void)text.find("42");
  std::wostringstream wide;
  wide << text.c_str() << 3.25L << std::hex << 255;
}

TEST(StepsTest, PairsEveryCallOfARealLibrary) {
  const Loaded loaded = find_loaded("libstdc++.so");
  ASSERT_NE(loaded.bias, 0u);
  CodeSample library(loaded.path);
  Stepping run;
  std::map<uint32_t, std::string> names;
  for (const SortedSymbol& symbol : library.symbols().sort_functions()) {
    const auto offset = library.code().file().find_offset(symbol.vaddr);
    const auto id = static_cast<uint32_t>(names.size());
    if (!offset ||
        !add_marks(library, {.file_offset_bytes = *offset, .size_bytes = symbol.size_bytes},
                   loaded.bias, id, run.marks)) {
      continue;
    }
    names[id] = symbol.name;
  }
  sort_marks(run.marks);

  step_through(run, use_streams);

  std::printf("%llu steps, %llu calls of %zu functions\n",
              static_cast<unsigned long long>(run.steps),
              static_cast<unsigned long long>(run.entries), names.size());
  EXPECT_GT(run.entries, 300u);
  EXPECT_EQ(run.changed, 0u) << names[run.last_function];
  EXPECT_EQ(run.not_begun, 0u) << names[run.last_function];
  EXPECT_EQ(run.abandoned, 0u) << names[run.last_function];
  EXPECT_EQ(run.exits, run.entries);
}

}  // namespace
}  // namespace gpuperf
