#include "daemon/resolve/symbolizer.h"

#include <pthread.h>

#include <utility>

namespace gpuperf {

std::vector<StackFrame> make_unnamed_frames(const std::vector<uint64_t>& addresses) {
  std::vector<StackFrame> frames;
  for (const uint64_t address : addresses) frames.push_back({.address = address});
  return frames;
}

Symbolizer::Symbolizer(Options options)
    : finder_(std::move(options.frames), clock_),
      queue_(options.queue_requests),
      thread_([this] { run(); }) {}

Symbolizer::~Symbolizer() {
  stopping_ = true;
  queue_.close();
  thread_.join();
}

bool Symbolizer::post_resolve(std::vector<StackAddresses> stacks, OnResolved on_resolved) {
  return queue_.try_push({std::move(stacks), std::move(on_resolved)});
}

bool Symbolizer::post_prefetch(const ProcessKey& process) {
  return queue_.try_push({.stacks = {{.process = process}}});
}

std::vector<StackFrame> Symbolizer::find_frames(const StackAddresses& stack) {
  if (stopping_) return make_unnamed_frames(stack.addresses);
  return stack.process ? finder_.find_frames(*stack.process, stack.addresses)
                       : kernel_symbols_.find_frames(stack.addresses, clock_.mono_ns());
}

void Symbolizer::run() {
  // Only for those who look at threads; the name fits, so it cannot fail.
  (void)pthread_setname_np(pthread_self(), "resolve");
  while (std::optional<Request> request = queue_.pop()) {
    if (!request->on_resolved) {
      if (!stopping_) finder_.prefetch(*request->stacks.front().process);
      continue;
    }
    Stacks named;
    for (const StackAddresses& stack : request->stacks) {
      named.push_back(stack.addresses.empty() ? std::vector<StackFrame>() : find_frames(stack));
    }
    request->on_resolved(std::move(named));
  }
}

}  // namespace gpuperf
