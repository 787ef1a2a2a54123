#pragma once

// Stacks of threads as they were taken, before anything in them has a name.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "bpf/records.h"
#include "daemon/model/function.h"

namespace gpuperf {

// How a stack ends; the rows of GPUPERF_STACK_*.
enum class StackEnd {
  kComplete,    // at the thread's first frame
  kCut,         // more frames than are kept
  kUnknown,     // at an address of which no rule was known, and the rest was not sent
  kUnreadable,  // at memory that could not be read
  kBroken,      // at code that does not say how to go on, or says what cannot be
};
// "complete", "cut", "unknown", "unreadable", "broken".
std::string_view get_stack_end_name(StackEnd end);

struct NativeFrame {
  uint64_t pc = 0;        // where it goes on after its call, or, if is_exact, where it was stopped
  uint64_t sp = 0;        // with the return address of the call made from it gone
  bool is_exact = false;  // a signal stopped it
  bool operator==(const NativeFrame&) const = default;
};

struct PythonFrame {
  uint64_t code = 0;      // address of its PyCodeObject
  uint64_t entry_sp = 0;  // not 0: the outermost of one C evaluation, whose C frame holds it
  uint32_t instruction_bytes = 0;  // from the first instruction on
  uint32_t first_line = 0;         // of the code: another says that the memory was used anew
  bool operator==(const PythonFrame&) const = default;
};

struct ReplacedReturn {
  uint64_t sp = 0;  // where a return probe has put its own address
  uint64_t address = 0;
  bool operator==(const ReplacedReturn&) const = default;
};

// Memory of a stack that is still to be walked.
struct StackMemory {
  uint64_t address = 0;
  std::vector<std::byte> bytes;
  // Of each 4 KiB page from that address's on: whether it could be read.
  std::vector<bool> is_present;
  bool operator==(const StackMemory&) const = default;
};

struct StackCopy {
  uint32_t part = 0;                // others than 0 only add memory to the first
  std::vector<StackMemory> memory;  // from the last frame's sp on, and elsewhere
  std::vector<ReplacedReturn> returns;
  bool operator==(const StackCopy&) const = default;
};

// A stack as the kernel side took it. Frames innermost first.
struct RawStack {
  uint64_t id = 0;  // what events name it by
  ProcessKey process;
  uint32_t space = 0;         // whose rules it was walked by; 0 = none were known
  uint32_t code_changes = 0;  // how often the process's loader had changed what is mapped
  StackEnd end = StackEnd::kComplete;
  std::vector<NativeFrame> frames;  // the caller of the probed function first
  uint64_t bp = 0;                  // of the last frame
  std::vector<PythonFrame> python;
  bool python_is_cut = false;  // more frames of Python than are kept, or one could not be read
  std::optional<StackCopy> copy;
  bool operator==(const RawStack&) const = default;
};

// Where the stack of a call in flight begins: it can be read as long as the call lasts.
struct LiveStack {
  uint64_t sp = 0;  // at entry: there stands the return address
  uint64_t bp = 0;
  uint64_t thread_pointer = 0;  // pthread_self()
  std::vector<ReplacedReturn> returns;
  bool operator==(const LiveStack&) const = default;
};

}  // namespace gpuperf
