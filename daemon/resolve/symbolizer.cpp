#include "daemon/resolve/symbolizer.h"

#include <pthread.h>

#include <chrono>
#include <utility>

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

size_t count_copy_bytes(const std::vector<RawStack>& stacks) {
  size_t bytes = 0;
  for (const RawStack& stack : stacks) {
    if (!stack.copy) continue;
    for (const StackMemory& memory : stack.copy->memory) bytes += memory.bytes.size();
  }
  return bytes;
}

}  // namespace

Symbolizer::Symbolizer(Options options, DropCounters& drops)
    : drops_(drops),
      namer_({.frames = with_drops(std::move(options.frames), drops),
              .tables = std::move(options.tables),
              .forget_sent = std::move(options.forget_sent)},
             clock_),
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

bool Symbolizer::post_resolve(std::vector<StackRequest> requests, OnResolved on_resolved) {
  return queue_.try_push(
      Resolve{.requests = std::move(requests), .on_resolved = std::move(on_resolved)});
}

bool Symbolizer::post_stacks(std::vector<RawStack> stacks) {
  const size_t bytes = count_copy_bytes(stacks);
  if (copy_bytes_.fetch_add(bytes) + bytes > kMaxCopyBytes) {
    copy_bytes_ -= bytes;
    for (RawStack& stack : stacks) {
      if (!stack.copy) continue;
      stack.copy.reset();
      drops_.add(DropCause::kBpfStackCopy);
    }
    return queue_.try_push(std::move(stacks));
  }
  if (queue_.try_push(std::move(stacks))) return true;
  copy_bytes_ -= bytes;
  return false;
}

// A process is queued once at a time, however much it maps.
void Symbolizer::queue_prepare(const ProcessKey& process) {
  if (prepared_[process.pid] && process.start_boot_ns == 0) return;
  if (queue_.try_push(Prepare{process})) {
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

StackPtr Symbolizer::resolve(const StackRequest& request) {
  if (const auto* taken = std::get_if<TakenStack>(&request)) return namer_.find(taken->id);
  if (stopping_) return nullptr;
  if (const auto* live = std::get_if<StackInFlight>(&request)) {
    return namer_.walk(live->process, live->live);
  }
  if (const auto* kernel = std::get_if<KernelStack>(&request)) {
    return namer_.name_kernel(kernel->addresses);
  }
  if (const auto* place = std::get_if<CodePlace>(&request)) {
    return namer_.name_place(place->process, place->address);
  }
  return nullptr;
}

// Behind the stacks that it may name.
void Symbolizer::walk(Resolve& task) { (void)walked_.push(std::move(task)); }

void Symbolizer::walk(std::vector<RawStack>& stacks) {
  copy_bytes_ -= count_copy_bytes(stacks);
  for (RawStack& stack : stacks) {
    if (stopping_) return;
    {
      const Work work("walk");
      namer_.finish_walk(stack);
    }
    (void)walked_.push(std::move(stack));
  }
}

void Symbolizer::walk(const Prepare& task) {
  {
    const MutexLock lock(mutex_);
    prepared_[task.process.pid] = false;  // what is mapped from now on is not in what is read below
  }
  {
    const Work work("walk");
    if (stopping_ || !namer_.prepare(task.process.pid)) return;
  }
  if (task.process.start_boot_ns != 0) (void)walked_.push(Prepare{task});
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
  // Only for those who look at threads; the names fit, so it cannot fail.
  (void)pthread_setname_np(pthread_self(), "walk");
  while (auto task = queue_.pop()) {
    std::visit([this](auto& known) { walk(known); }, *task);
    sweep();
  }
}

void Symbolizer::name(Resolve& task) {
  Stacks stacks;
  for (const StackRequest& request : task.requests) {
    const Work work("resolve", kNamingLimit);
    stacks.push_back(resolve(request));
  }
  task.on_resolved(std::move(stacks));
}

void Symbolizer::name(const RawStack& stack) {
  const Work work("resolve", kNamingLimit);
  if (!stopping_) namer_.keep(stack);
}

void Symbolizer::name(const Prepare& task) {
  const Work work("resolve", kNamingLimit);
  if (!stopping_) namer_.prefetch(task.process);
}

void Symbolizer::name_all() {
  (void)pthread_setname_np(pthread_self(), "resolve");
  while (auto task = walked_.pop()) std::visit([this](auto& known) { name(known); }, *task);
}

}  // namespace gpuperf
