#include "daemon/resolve/symbolizer.h"

#include <chrono>
#include <string>
#include <utility>

#include "daemon/base/thread_cpu.h"
#include "daemon/base/work_watch.h"

namespace gpuperf {
namespace {

// Processes that have gone are forgotten this often.
constexpr std::chrono::nanoseconds kSweepPeriod = std::chrono::seconds{10};

// A stack that leads through several large libraries for the first time.
constexpr std::chrono::seconds kNamingLimit{30};

FrameFinder::Options with_drops(FrameFinder::Options options, DropCounters& drops) {
  options.count_drop = [&drops](DropCause cause) { drops.add(cause); };
  return options;
}

size_t count_copy_bytes(const RawStack& stack) {
  size_t bytes = 0;
  if (!stack.copy) return bytes;
  for (const StackMemory& memory : stack.copy->memory) bytes += memory.bytes.size();
  return bytes;
}

}  // namespace

Symbolizer::Symbolizer(Options options, ProcessReader& memory, DropCounters& drops)
    : drops_(drops),
      users_(options.frames.proc.root()),
      forget_sent_(options.forget_sent),
      namer_({.frames = with_drops(std::move(options.frames), drops),
              .tables = std::move(options.tables),
              .forget_sent = std::move(options.forget_sent),
              .keep_gone_stacks = options.keep_gone_stacks},
             memory, clock_),
      queue_(options.queue_requests),
      naming_([this] { name_all(); }),
      walking_([this] { walk_all(); }) {}

Symbolizer::~Symbolizer() {
  stopping_ = true;
  queue_.close();
  walking_.join();
  walked_.close();
  naming_.join();
}

WorkOwner Symbolizer::find_owner(const ProcessKey& process) {
  if (process.pid == 0) return {};
  return {.uid = users_.find(process.pid, process.start_boot_ns), .process = process};
}

bool Symbolizer::post_resolve(const ProcessKey& process, std::vector<StackRequest> requests,
                              OnResolved on_resolved) {
  const MutexLock lock(mutex_);
  return queue_.try_push(find_owner(process), Resolve{.requests = std::move(requests),
                                                      .on_resolved = std::move(on_resolved)});
}

void Symbolizer::limit_copy(const WorkOwner& owner, RawStack& stack) {
  const Shares::Holder holder{.uid = owner.uid, .pid = owner.process.pid};
  if (copy_bytes_.take(holder, count_copy_bytes(stack)) == Shares::Verdict::kTaken) return;
  stack.copy.reset();
  drops_.add(DropCause::kBpfStackCopy);
}

void Symbolizer::return_copy(const WorkOwner& owner, size_t bytes) {
  copy_bytes_.give_back({.uid = owner.uid, .pid = owner.process.pid}, bytes);
}

std::vector<uint64_t> Symbolizer::post_stacks(std::vector<RawStack> stacks) {
  const MutexLock lock(mutex_);
  std::vector<uint64_t> refused;
  for (RawStack& stack : stacks) {
    const WorkOwner owner = find_owner(stack.process);
    limit_copy(owner, stack);
    const uint64_t id = stack.id;
    const size_t bytes = count_copy_bytes(stack);
    if (queue_.try_push(owner, std::move(stack))) continue;
    return_copy(owner, bytes);
    refused.push_back(id);
  }
  return refused;
}

// A process is queued once at a time, however much it maps.
void Symbolizer::queue_prepare(const ProcessKey& process) {
  if (prepared_[process.pid] && process.start_boot_ns == 0) return;
  if (queue_.try_push(find_owner(process), Prepare{process})) {
    prepared_[process.pid] = true;
  } else {
    prepared_.erase(process.pid);
  }
}

void Symbolizer::post_prepare(const ProcessKey& process) {
  const MutexLock lock(mutex_);
  if (process.start_boot_ns != 0 || !prepared_.contains(process.pid)) queue_prepare(process);
}

void Symbolizer::note_mapping(uint32_t pid, const std::string& path) {
  const MutexLock lock(mutex_);
  if (prepared_.contains(pid) || is_python_name(path)) queue_prepare({.pid = pid});
}

void Symbolizer::fill(SelfReport& report) {
  report.add(Bound::kWalkQueue, queue_.take_highest(), queue_.capacity());
  report.add(Bound::kNamingQueue, walked_.take_highest(), walked_.capacity());
  const uint64_t copies_bytes = copies_.take();
  report.add(Bound::kStackCopies, copies_bytes, kMaxCopyBytes);
  report.add(MemoryPart::kStackCopies, copies_bytes);
  report.add(Bound::kUnwindRules, rules_.take(), AddressSpaces::kMaxRules);
  report.add(Bound::kAddressSpaces, spaces_.take(), AddressSpaces::kMaxProcesses);
}

std::optional<StackPtr> Symbolizer::resolve(const StackRequest& request) {
  if (const auto* taken = std::get_if<TakenStack>(&request)) return namer_.find(taken->id);
  if (stopping_) return nullptr;
  if (const auto* live = std::get_if<StackInFlight>(&request)) {
    return namer_.walk(live->process, live->live);
  }
  if (const auto* kernel = std::get_if<KernelStack>(&request)) {
    return namer_.name_kernel(kernel->addresses);
  }
  if (const auto* place = std::get_if<SingleFrame>(&request)) {
    return namer_.name_place(place->process, place->address);
  }
  return nullptr;
}

// Behind the stacks that it may name.
void Symbolizer::walk(const WorkOwner& owner, Resolve& task) {
  Task naming(std::move(task));
  if (walked_.try_push(owner, std::move(naming))) return;
  drops_.add(DropCause::kSymbolsQueueFull);
  const auto& refused = std::get<Resolve>(naming);
  refused.on_resolved(Stacks(refused.requests.size()));
}

void Symbolizer::walk(const WorkOwner& owner, RawStack& stack) {
  {
    const MutexLock lock(mutex_);
    return_copy(owner, count_copy_bytes(stack));
  }
  if (stopping_) return;
  {
    const Work work("walk");
    namer_.finish_walk(stack);
  }
  const uint64_t id = stack.id;
  if (walked_.try_push(owner, std::move(stack))) return;
  drops_.add(DropCause::kStacksQueueFull);
  if (forget_sent_) forget_sent_(id);
}

void Symbolizer::walk(const WorkOwner& owner, const Prepare& task) {
  {
    const MutexLock lock(mutex_);
    prepared_[task.process.pid] = false;  // what is mapped from now on is not in what is read below
  }
  {
    const Work work("walk");
    if (stopping_ || !namer_.prepare(task.process.pid)) return;
  }
  // Without room they are read with the first stack.
  if (task.process.start_boot_ns != 0) (void)walked_.try_push(owner, Prepare{task});
}

void Symbolizer::sweep() {
  const int64_t now_ns = clock_.mono_ns();
  if (stopping_ || now_ns - sweep_mono_ns_ < kSweepPeriod.count()) return;
  sweep_mono_ns_ = now_ns;
  const Work work("walk");
  namer_.sweep();
  const MutexLock lock(mutex_);
  std::erase_if(prepared_, [this](const auto& entry) {
    return !entry.second && !namer_.is_known(entry.first);
  });
}

void Symbolizer::walk_all() {
  while (auto turn = queue_.pop()) {
    const uint64_t begun_ns = read_thread_cpu_ns();
    std::visit([&](auto& known) { walk(turn->owner, known); }, turn->value);
    queue_.finish(turn->owner, read_thread_cpu_ns() - begun_ns);
    sweep();
    const AddressSpaces::Counts counts = namer_.counts();
    rules_.note(counts.rules);
    spaces_.note(counts.processes);
  }
}

bool Symbolizer::name(Resolve& task) {
  while (task.stacks.size() < task.requests.size()) {
    const Work work("resolve", kNamingLimit);
    std::optional<StackPtr> stack = resolve(task.requests[task.stacks.size()]);
    if (!stack) return false;
    task.stacks.push_back(*std::move(stack));
  }
  task.on_resolved(std::move(task.stacks));
  return true;
}

bool Symbolizer::name(const RawStack& stack) {
  const Work work("resolve", kNamingLimit);
  return stopping_ || namer_.keep(stack);
}

bool Symbolizer::name(const Prepare& task) {
  const Work work("resolve", kNamingLimit);
  if (!stopping_) namer_.prefetch(task.process);
  return true;
}

void Symbolizer::name_all() {
  while (auto turn = walked_.pop()) {
    const uint64_t begun_ns = read_thread_cpu_ns();
    const bool is_done = std::visit([this](auto& known) { return name(known); }, turn->value);
    namer_.forget_gone();
    const uint64_t cpu_ns = read_thread_cpu_ns() - begun_ns;
    if (is_done) {
      walked_.finish(turn->owner, cpu_ns);
    } else {
      walked_.put_back(*std::move(turn), cpu_ns);
    }
  }
}

}  // namespace gpuperf
