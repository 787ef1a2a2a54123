#pragma once

// The BPF side of stack_cost: its programs, and the daemon's way of teaching them rules.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/result.h"
#include "daemon/model/stack.h"
#include "daemon/unwind/address_spaces.h"
#include "daemon/unwind/code_files.h"
#include "tests/bench/stack_taken.h"
#include "tests/bench/stack_workload.h"
#include "tests/bench/tool_probe.h"

struct bpf_object;
struct ring_buffer;

namespace gpuperf::bench {

// Loaded programs of stack_cost.bpf.c. One thread.
class StackPrograms {
 public:
  // What is kept from walk to walk. Nothing: each word is read by itself, too.
  enum class Keeps { kAll, kLastWalk, kNothing };
  static Result<std::unique_ptr<StackPrograms>> load(Keeps keeps);
  ~StackPrograms();
  StackPrograms(const StackPrograms&) = delete;
  StackPrograms& operator=(const StackPrograms&) = delete;

  // Runs one of them whenever the probed function of these libraries is called.
  Result<Detach> attach(const char* program, std::span<const StackLibrary> libraries);

  // Calls until the stack of `workload` is walked in the kernel to its end, while take_ours is
  // attached. The stack, where it was sent: not when it was known before. Errors: no such end came.
  Result<std::optional<RawStack>> learn(const StackWorkload& workload);

  // Empties the rings, so that they do not fill up while calls are measured.
  void drain();
  // How often a stack could not be taken or sent since the programs were loaded.
  uint64_t count_losses() const;
  uint64_t sent_count() const { return sent_count_; }
  bench_taken read_taken() const;

  // A copy to walk in user space, while take_copy_64 is attached; nullopt = not all could be read.
  std::optional<RawStack> take_copy(const StackWorkload& workload);
  // Walks it. How many frames there were, the probed function's own too.
  size_t walk(const RawStack& copy, const ProcessKey& process);

 private:
  StackPrograms();
  static int on_stack(void* programs, void* bytes, size_t size_bytes);
  static int on_copy(void* programs, void* bytes, size_t size_bytes);
  int map_fd(const char* name) const;
  Status set_constant(const char* section, bool value);
  WalkTables make_tables() const;
  void teach(RawStack& stack);

  bpf_object* object_ = nullptr;
  ring_buffer* rings_ = nullptr;
  SystemClock clock_;
  CodeFiles files_;
  std::unique_ptr<AddressSpaces> spaces_;
  std::vector<RawStack> stacks_;  // came last
  uint64_t sent_count_ = 0;
  bool keeps_copy_ = false;
  std::optional<RawStack> last_copy_;
};

}  // namespace gpuperf::bench
