#include "daemon/resolve/stack_namer.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "daemon/base/proc_text.h"
#include "daemon/resolve/stack_merge.h"
#include "daemon/unwind/process_memory.h"
#include "daemon/unwind/python_walk.h"
#include "daemon/unwind/stack_walk.h"

namespace gpuperf {
namespace {

std::vector<CodeAddress> list_addresses(const std::vector<NativeFrame>& native) {
  std::vector<CodeAddress> addresses;
  addresses.reserve(native.size());
  for (const NativeFrame& frame : native) {
    addresses.push_back({.address = frame.pc, .is_exact = frame.is_exact});
  }
  return addresses;
}

}  // namespace

StackNamer::StackNamer(Options options, ProcessReader& memory, const Clock& clock)
    : clock_(clock),
      proc_root_(options.frames.proc.root()),
      memory_(memory),
      spaces_(
          {.proc = options.frames.proc,
           .tables = std::move(options.tables),
           .wait_unlocked = [this](const std::function<void()>& wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(
                                spaces_mutex_) { spaces_mutex_.wait_unlocked(wait); }},
          files_, clock),
      finder_(std::move(options.frames), clock),
      stacks_(options.stack_bytes, options.keep_gone_stacks, std::move(options.forget_sent)) {}

bool StackNamer::prepare(uint32_t pid) {
  FoundPythons pythons;
  {
    const MutexLock lock(spaces_mutex_);
    if (!spaces_.prepare(pid)) return false;
    pythons = take_pythons();
  }
  read_pythons(std::move(pythons));
  return true;
}

// Those found since, and now and then those that were put off.
StackNamer::FoundPythons StackNamer::take_pythons() {
  constexpr std::chrono::nanoseconds kRetryPeriod = std::chrono::seconds{1};
  FoundPythons found = spaces_.take_found_pythons();
  const int64_t now_ns = clock_.mono_ns();
  if (!unread_pythons_.empty() && now_ns - pythons_mono_ns_ >= kRetryPeriod.count()) {
    std::ranges::move(std::exchange(unread_pythons_, {}), std::back_inserter(found));
    pythons_mono_ns_ = now_ns;
  }
  return found;
}

void StackNamer::read_pythons(FoundPythons pythons) {
  for (AddressSpaces::FoundPython& python : pythons) {
    if (!memory_.may_read(python.pid)) {
      const MutexLock lock(spaces_mutex_);
      if (unread_pythons_.size() < AddressSpaces::kMaxFoundPythons) {
        unread_pythons_.push_back(std::move(python));
      }
      continue;
    }
    auto runtime = load_python_runtime(python.file, python.bias, memory_.make_reader(python.pid));
    const MutexLock lock(spaces_mutex_);
    spaces_.set_python(python, std::move(runtime));
  }
}

void StackNamer::prefetch(const ProcessKey& process) {
  finder_.prefetch(process, find_version(process, 0));
}

void StackNamer::sweep() {
  const MutexLock lock(spaces_mutex_);
  spaces_.sweep();
  std::erase_if(unread_pythons_, [this](const AddressSpaces::FoundPython& python)
                                     ABSL_EXCLUSIVE_LOCKS_REQUIRED(spaces_mutex_) {
                                       return !spaces_.is_known(python.pid);
                                     });
}

bool StackNamer::is_known(uint32_t pid) const {
  const MutexLock lock(spaces_mutex_);
  return spaces_.is_known(pid);
}

void StackNamer::finish_walk(RawStack& raw) { read_pythons(walk_copy(raw)); }

StackNamer::FoundPythons StackNamer::walk_copy(RawStack& raw) {
  const MutexLock lock(spaces_mutex_);
  spaces_.note_walk(raw);
  const bool is_of_process = raw.space == 0 && !raw.copy;
  raw.space = spaces_.find_number(raw);
  if (raw.copy && !raw.frames.empty() && raw.space != AddressSpaces::kNoSpace) {
    const auto find_rule = [this, &raw](uint64_t pc, bool is_exact)
                               ABSL_EXCLUSIVE_LOCKS_REQUIRED(spaces_mutex_) {
                                 return spaces_.find_rule(raw.process, raw.space, pc, is_exact);
                               };
    raw.end =
        walk_stack(raw.frames, raw.bp, find_rule, make_copy_reader(*raw.copy), raw.copy->returns);
  }
  // Walked by the process itself: the kernel side and Python's names are to know its code, too.
  for (const NativeFrame& frame : raw.frames) {
    if (!is_of_process || raw.space == AddressSpaces::kNoSpace) break;
    (void)spaces_.find_rule(raw.process, raw.space, frame.pc, frame.is_exact);
  }
  raw.copy.reset();
  return take_pythons();
}

bool StackNamer::keep(const RawStack& raw) {
  const std::optional<StackPtr> stack = name(raw);
  if (stack) stacks_.set(raw.id, raw.process, *stack);
  return stack.has_value();
}

void StackNamer::forget_gone() {
  constexpr std::chrono::seconds kPeriod{5};
  const int64_t now_ns = clock_.mono_ns();
  if (std::chrono::nanoseconds(now_ns - forgot_mono_ns_) < kPeriod) return;
  forgot_mono_ns_ = now_ns;
  const auto is_running = [this](const ProcessKey& process) {
    return is_running_since(proc_root_, process.pid, process.start_boot_ns);
  };
  finder_.forget_gone(is_running);
  stacks_.forget_gone(is_running, now_ns);
}

std::optional<StackPtr> StackNamer::walk(const ProcessKey& process, const LiveStack& live) {
  const ReadMemory read_memory = memory_.make_reader(process.pid);
  const auto find_rule = [this, &process](uint64_t pc, bool is_exact) {
    const MutexLock lock(spaces_mutex_);
    return spaces_.find_rule(process, 0, pc, is_exact);
  };
  RawStack raw{.process = process};
  raw.end = walk_live_stack(raw.frames, live, find_rule, read_memory);
  FoundPythons pythons;
  {
    const MutexLock lock(spaces_mutex_);
    pythons = take_pythons();
  }
  read_pythons(std::move(pythons));
  if (const auto runtime = find_python(process, 0)) {
    raw.python = walk_python(*runtime, live.thread_pointer, read_memory);
  }
  return name(raw);
}

StackPtr StackNamer::name_kernel(const std::vector<uint64_t>& addresses) {
  return stacks_.intern(
      kernel_symbols_.find_frames(to_return_addresses(addresses), clock_.mono_ns()),
      StackEnd::kComplete);
}

std::optional<StackPtr> StackNamer::name_place(const ProcessKey& process, uint64_t address) {
  return name({.process = process, .frames = {{.pc = address, .is_exact = true}}});
}

// `space`: that a stack was walked by; 0 = that of now.
MappingVersion StackNamer::find_version(const ProcessKey& process, uint32_t space) const {
  AddressSpaces::Mapped mapped;
  {
    const MutexLock lock(spaces_mutex_);
    mapped = spaces_.find_mapped(process, space);
  }
  return {.number = space != 0 ? space : mapped.space,
          .mappings = std::move(mapped.mappings),
          .held = std::move(mapped.held)};
}

std::optional<PythonRuntime> StackNamer::find_python(const ProcessKey& process,
                                                     uint32_t space) const {
  const MutexLock lock(spaces_mutex_);
  const PythonRuntime* const runtime = spaces_.find_python(process, space);
  return runtime == nullptr ? std::nullopt : std::optional(*runtime);
}

std::vector<StackFrame> StackNamer::name_python(const RawStack& raw, const PythonRuntime* runtime) {
  const ReadMemory read_memory = memory_.make_reader(raw.process.pid);
  std::vector<StackFrame> names;
  for (const PythonFrame& frame : raw.python) {
    StackFrame& named = names.emplace_back(StackFrame{.kind = StackFrameKind::kPython});
    if (runtime == nullptr || frame.code == 0) continue;
    auto found = python_names_.find(raw.process, runtime->layout, frame, read_memory);
    if (!found) continue;
    named.symbol = std::move(found->function);
    named.file = std::move(found->file);
    named.line = found->line;
  }
  return names;
}

std::optional<StackPtr> StackNamer::name(const RawStack& raw) {
  const auto found = find_python(raw.process, raw.space);
  const PythonRuntime* const runtime = found ? &*found : nullptr;
  // First, of memory that goes with its process: those of code are in files.
  std::vector<StackFrame> python = name_python(raw, runtime);
  const std::vector<CodeAddress> addresses = list_addresses(raw.frames);
  const MappingVersion version = find_version(raw.process, raw.space);
  if (!finder_.read_ahead(raw.process, addresses, version)) return std::nullopt;
  std::vector<FrameGroup> groups = finder_.find_frames(raw.process, addresses, version);
  std::optional<EvaluationCode> evaluation;
  if (runtime != nullptr && runtime->layout.form == GPUPERF_PYTHON_FRAME_OBJECTS) {
    evaluation = EvaluationCode{.begin = runtime->eval_begin, .end = runtime->eval_end};
  }
  const bool is_cut = raw.python_is_cut && raw.end == StackEnd::kComplete;
  return stacks_.intern(
      merge_stacks(raw.frames, std::move(groups), raw.python, std::move(python), evaluation),
      is_cut ? StackEnd::kCut : raw.end);
}

}  // namespace gpuperf
