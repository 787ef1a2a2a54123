#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "daemon/base/mutex.h"
#include "daemon/export/http_message.h"
#include "daemon/model/drops.h"

namespace gpuperf {

// An answer that costs something to make and is the same for everyone: made once for all who wait.
//
// Thread: one of its own, where `make` is called; the rest on any. The counters must outlive it.
// Bounds: after each time it rests for kRestFactor times as long, kMaxRest at most, and whoever
// asks meanwhile gets the last answer: however many ask, it takes a fifth of one CPU. kMaxWaiting
// wait; who comes then gets 503 and counts DropCause::kHttpBusy.
class SharedAnswer {
 public:
  static constexpr int kRestFactor = 4;
  static constexpr std::chrono::seconds kMaxRest{1};  // older, an answer would be noticed
  // Twice as many as there can be connections: those that are closed while they wait stay here.
  static constexpr size_t kMaxWaiting = 1'024;

  SharedAnswer(std::function<HttpResponse()> make, DropCounters& drops);
  ~SharedAnswer();  // who waits then is not answered
  SharedAnswer(const SharedAnswer&) = delete;
  SharedAnswer& operator=(const SharedAnswer&) = delete;

  void post(const HttpReply& reply);

 private:
  void run();

  // Set once in the constructor.
  const std::function<HttpResponse()> make_;
  DropCounters& drops_;
  Mutex mutex_;
  ConditionVariable changed_;
  std::vector<HttpReply> waiting_ ABSL_GUARDED_BY(mutex_);
  std::optional<HttpResponse> newest_ ABSL_GUARDED_BY(mutex_);  // while it rests
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace gpuperf
