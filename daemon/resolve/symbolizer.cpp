#include "daemon/resolve/symbolizer.h"

#include <pthread.h>

#include <utility>

namespace gpuperf {

Symbolizer::Symbolizer(Options options)
    : finder_(std::move(options.frames), clock_),
      queue_(options.queue_requests),
      thread_([this] { run(); }) {}

Symbolizer::~Symbolizer() {
  stopping_ = true;
  queue_.close();
  thread_.join();
}

bool Symbolizer::post_resolve(const ProcessKey& process, std::vector<uint64_t> addresses,
                              OnResolved on_resolved) {
  return queue_.try_push({process, std::move(addresses), std::move(on_resolved)});
}

bool Symbolizer::post_prefetch(const ProcessKey& process) {
  return queue_.try_push({.process = process});
}

void Symbolizer::run() {
  // Only for those who look at threads; the name fits, so it cannot fail.
  (void)pthread_setname_np(pthread_self(), "resolve");
  while (std::optional<Request> request = queue_.pop()) {
    if (!request->on_resolved) {
      if (!stopping_) finder_.prefetch(request->process);
      continue;
    }
    std::vector<StackFrame> frames;
    if (stopping_) {
      for (const uint64_t address : request->addresses) frames.push_back({.address = address});
    } else {
      frames = finder_.find_frames(request->process, request->addresses);
    }
    request->on_resolved(std::move(frames));
  }
}

}  // namespace gpuperf
