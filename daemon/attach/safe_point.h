#pragma once

#include <sys/user.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bpf/stack_records.h"
#include "daemon/attach/target.h"
#include "daemon/unwind/process_memory.h"

namespace gpuperf {

// A thread's stack from its stack pointer on, as it was at one moment.
struct StackImage {
  user_regs_struct registers{};
  std::vector<std::byte> bytes;  // from registers.rsp on
};

// Tells whether a thread that waits in a system call can be made to call mmap and pthread_create:
// whether it holds nothing that these need. Its own stack proves it: walked to its first frame,
// with no frame in the dynamic loader, in CUDA, in an allocator, in functions of the C library that
// hold its locks, or below a signal handler.
//
// Reads files and copies of memory only: the thread runs meanwhile. Rules and symbols are kept, so
// that a second look is quick. Thread: one.
class SafePoint {
 public:
  // All must outlive it.
  SafePoint(const ProcFiles& files, CodeFiles& code_files, const AttachTarget& target)
      : files_(files), code_files_(code_files), target_(target) {}

  // Why not, for people; empty = it is safe.
  std::string find_objection(const StackImage& image);

 private:
  struct Library {
    LoadedLibrary loaded;
    std::string objection;  // to any frame in it; empty = none
    bool is_libc = false;
  };
  Library* find_library(uint64_t pc);
  Library open(const MemoryMap& map);
  gpuperf_unwind_rule find_rule(uint64_t pc, bool is_exact);
  std::string find_objection(uint64_t pc, bool is_exact);
  std::string find_stack_objection(const user_regs_struct& registers) const;
  void list_libc_ranges(const Library& libc);

  const ProcFiles& files_;
  CodeFiles& code_files_;
  const AttachTarget& target_;
  std::map<uint64_t, Library> libraries_;  // by the start of their mapping
  std::map<std::pair<uint64_t, bool>, gpuperf_unwind_rule> rules_;
  // Of functions of the C library that hold locks.
  struct Range {
    uint64_t begin = 0;
    uint64_t end = 0;
    std::string name;
  };
  std::vector<Range> libc_ranges_;
};

// How much of a stack is examined.
inline constexpr size_t kStackImageBytes = size_t{1} << 20;
// Free below the stack pointer, for the frame and for pthread_create.
inline constexpr uint64_t kFreeStackBytes = uint64_t{64} << 10;

}  // namespace gpuperf
