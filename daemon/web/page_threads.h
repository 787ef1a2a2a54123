#pragma once

#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

#include "daemon/base/bounded_queue.h"
#include "daemon/export/http_message.h"
#include "daemon/model/drops.h"

namespace gpuperf {

// Where the page's questions wait for the API, so that the HTTP server does not.
//
// Thread: kThreads of its own; `post` on any. The counters must outlive it.
// Bounds: kThreads answers are made at once and kWaiting wait; beyond them a request gets 503 and
// counts DropCause::kHttpBusy.
class PageThreads {
 public:
  // A browser asks six questions at once, and forms of captures hold two threads at most
  // (WebPage::kViews).
  static constexpr size_t kThreads = 8;
  static constexpr size_t kWaiting = 32;

  explicit PageThreads(DropCounters& drops);
  ~PageThreads();  // what waits is still answered
  PageThreads(const PageThreads&) = delete;
  PageThreads& operator=(const PageThreads&) = delete;

  void post(const HttpReply& reply, std::function<HttpResponse()> make);

 private:
  DropCounters& drops_;
  BoundedQueue<std::function<void()>> tasks_{kWaiting};
  std::vector<std::thread> threads_;  // last: they use all of the above
};

}  // namespace gpuperf
