#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/proc_files.h"
#include "daemon/base/result.h"
#include "daemon/unwind/code_files.h"

namespace gpuperf {

// Why a process is not attached to. Each has a text for people, and what to do next.
enum class AttachRefusal : uint32_t {
  kNone,
  kGone,
  kNoCuda,
  kTraced,
  kSeccomp,
  kStatic,
  kMusl,
  kArchitecture,
  kInjected,
  kAttached,
  kShadowStack,
  kDisabled,
  kForked,
  kNotPermitted,
  kOldKernel,
  kNoSafeThread,
  kFailed,
  kNotAttached,
};
inline constexpr size_t kAttachRefusals = 18;
// "no_cuda" and the like, for programs.
std::string_view get_refusal_name(AttachRefusal refusal);
std::string_view get_refusal_hint(AttachRefusal refusal);

const MemoryMap* find_map(const std::vector<MemoryMap>& maps, uint64_t address);

// A shared object in the process, and where.
struct LoadedLibrary {
  CodeFiles::CodePtr code;
  uint64_t bias = 0;  // address in memory - address in the file
};

// What /proc says of a process that is to be attached to. Everything is read anew by read().
struct AttachTarget {
  uint32_t pid = 0;
  uint32_t inner_pid = 0;
  char state = '?';
  uint32_t tracer_pid = 0;
  int seccomp = 0;
  bool has_shadow_stack = false;
  std::string comm;
  std::vector<MemoryMap> maps;
  bool has_cuda = false;
  bool has_injector = false;  // the library is mapped, attached or not
  const MemoryMap* find_library(std::string_view prefix) const;
  // Where the block of attach_abi.h is mapped; null = nowhere.
  const MemoryMap* find_block() const;
};

// Whether the process has a thread of that number in its own pid namespace.
bool has_thread(const ProcFiles& files, const AttachTarget& target, uint32_t inner_tid);

Result<AttachTarget> read_attach_target(const ProcFiles& files, uint32_t pid);

// The library whose file name begins so, opened.
Result<LoadedLibrary> open_library(const ProcFiles& files, CodeFiles& code_files,
                                   const AttachTarget& target, const MemoryMap& map);

// What forbids attaching, as far as can be told without touching the process, but for the library
// being there and seccomp; with the reason for people.
struct Refused {
  AttachRefusal why = AttachRefusal::kNone;
  std::string text;
};
Refused find_refusal(const ProcFiles& files, const AttachTarget& target);

}  // namespace gpuperf
