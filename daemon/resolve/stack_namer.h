#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/mutex.h"
#include "daemon/model/snapshot.h"
#include "daemon/model/stack.h"
#include "daemon/resolve/frame_finder.h"
#include "daemon/resolve/kernel_symbols.h"
#include "daemon/resolve/python_names.h"
#include "daemon/resolve/stack_table.h"
#include "daemon/unwind/address_spaces.h"
#include "daemon/unwind/code_files.h"
#include "daemon/unwind/process_reader.h"

namespace gpuperf {

// From a stack as it was taken to one with names, native and Python in one order.
//
// Thread: one that walks (prepare, finish_walk) and one that names (all the rest), so that walks,
// which teach the kernel side, do not wait for names, for which whole libraries are read. `memory`
// and `clock` must outlive it. Promises: whatever happens, what can be told is told; the stack's
// end says what is missing. A process that has gone is named from what was read while it lived.
class StackNamer {
 public:
  struct Options {
    FrameFinder::Options frames;
    WalkTables tables;
    StackTable::OnForgotten forget_sent;
    // Some 5,000 stacks of 60 frames.
    size_t stack_bytes = size_t{64} << 20;
    // Of processes that are gone: as long as captures may name their launches.
    std::chrono::nanoseconds keep_gone_stacks = std::chrono::hours{1};
  };

  // `memory`: by which frames.proc reads, too.
  StackNamer(Options options, ProcessReader& memory, const Clock& clock);
  StackNamer(const StackNamer&) = delete;
  StackNamer& operator=(const StackNamer&) = delete;

  // Reads what the process has mapped, for walks. False: it is gone.
  bool prepare(uint32_t pid);
  // Likewise for names, while the process lives.
  void prefetch(const ProcessKey& process);
  // Walks it to its end, which teaches the kernel side what it lacked. Quick, beside naming.
  void finish_walk(RawStack& raw);
  // Names and keeps one that was walked to its end. False: there is more to read for it; call again
  // once others had their turn.
  bool keep(const RawStack& raw);
  // Call often: lets go of what is kept of processes that are gone.
  void forget_gone();
  // What was taken under that id; null = nothing, or forgotten.
  StackPtr find(uint64_t raw_id) { return stacks_.find(raw_id); }
  // Of a call in flight, now; nothing = as `keep`.
  std::optional<StackPtr> walk(const ProcessKey& process, const LiveStack& live);
  StackPtr name_kernel(const std::vector<uint64_t>& addresses);
  // Nothing = as `keep`.
  std::optional<StackPtr> name_place(const ProcessKey& process, uint64_t address);
  // Forgets processes that have gone.
  void sweep();                       // either thread
  bool is_known(uint32_t pid) const;  // any thread
  // Of what the kernel side was told. The thread that walks.
  AddressSpaces::Counts counts() const {
    const MutexLock lock(spaces_mutex_);
    return spaces_.counts();
  }
  // Lets go of workers that have ended: any thread, now and then.
  void reap_workers() { finder_.reap_workers(); }

 private:
  MappingVersion find_version(const ProcessKey& process, uint32_t space) const;
  std::optional<PythonRuntime> find_python(const ProcessKey& process, uint32_t space) const;
  using FoundPythons = std::vector<AddressSpaces::FoundPython>;
  FoundPythons take_pythons() ABSL_EXCLUSIVE_LOCKS_REQUIRED(spaces_mutex_);
  void read_pythons(FoundPythons pythons);
  FoundPythons walk_copy(RawStack& raw);
  std::optional<StackPtr> name(const RawStack& raw);
  std::vector<StackFrame> name_python(const RawStack& raw, const PythonRuntime* runtime);

  const Clock& clock_;
  const std::string proc_root_;
  ProcessReader& memory_;
  mutable Mutex spaces_mutex_;  // never held while something is read that a process can hold back
  CodeFiles files_ ABSL_GUARDED_BY(spaces_mutex_);
  AddressSpaces spaces_ ABSL_GUARDED_BY(spaces_mutex_);
  // Pythons whose process's memory is not to be read yet.
  std::vector<AddressSpaces::FoundPython> unread_pythons_ ABSL_GUARDED_BY(spaces_mutex_);
  int64_t pythons_mono_ns_ ABSL_GUARDED_BY(spaces_mutex_) = 0;  // when they were last looked at
  // Of the thread that names.
  FrameFinder finder_;
  KernelSymbols kernel_symbols_;
  PythonNames python_names_;
  StackTable stacks_;
  int64_t forgot_mono_ns_ = 0;
};

}  // namespace gpuperf
