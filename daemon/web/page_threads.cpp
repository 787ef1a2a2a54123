#include "daemon/web/page_threads.h"

#include <optional>
#include <utility>

#include "daemon/base/work_watch.h"

namespace gpuperf {
namespace {

// A form of a capture has 60 s to be made.
constexpr std::chrono::seconds kLimit{90};

}  // namespace

PageThreads::PageThreads(DropCounters& drops) : drops_(drops) {
  for (size_t i = 0; i < kThreads; ++i) {
    threads_.emplace_back([this] {
      while (const std::optional<std::function<void()>> task = tasks_.pop()) {
        const Work work("http answers", kLimit);
        (*task)();
      }
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
  reply(make_text_response(503, "too many requests are waiting; try again in a moment\n"));
}

}  // namespace gpuperf
