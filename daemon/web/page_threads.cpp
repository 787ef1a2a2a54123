#include "daemon/web/page_threads.h"

#include <optional>
#include <utility>

namespace gpuperf {

PageThreads::PageThreads(DropCounters& drops) : drops_(drops) {
  for (size_t i = 0; i < kThreads; ++i) {
    threads_.emplace_back([this] {
      while (const std::optional<std::function<void()>> task = tasks_.pop()) (*task)();
    });
  }
}

PageThreads::~PageThreads() {
  tasks_.close();
  for (std::thread& thread : threads_) thread.join();
}

void PageThreads::post(const HttpReply& reply, std::function<HttpResponse()> make) {
  if (tasks_.try_push([reply, make = std::move(make)] { reply_with(reply, make); })) return;
  drops_.add(DropCause::kHttpBusy);
  reply(make_text_response(503, "too many questions wait; try again in a moment\n"));
}

}  // namespace gpuperf
