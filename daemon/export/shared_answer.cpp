#include "daemon/export/shared_answer.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "daemon/base/work_watch.h"

namespace gpuperf {

using std::chrono::steady_clock;

SharedAnswer::SharedAnswer(std::function<HttpResponse()> make, DropCounters& drops)
    : make_(std::move(make)), drops_(drops), thread_([this] { run(); }) {}

SharedAnswer::~SharedAnswer() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void SharedAnswer::post(const HttpReply& reply) {
  std::optional<HttpResponse> response;
  {
    const MutexLock lock(mutex_);
    if (newest_) {
      response = newest_;
    } else if (waiting_.size() < kMaxWaiting) {
      waiting_.push_back(reply);
    } else {
      drops_.add(DropCause::kHttpBusy);
      response = make_text_response(503, "too many ask at once; try again in a moment\n");
    }
  }
  if (response) return reply(*std::move(response));
  changed_.notify_all();
}

void SharedAnswer::run() {
  MutexLock lock(mutex_);
  while (true) {
    while (!stopping_ && waiting_.empty()) changed_.wait(lock);
    if (stopping_) return;
    lock.unlock();
    const auto begin = steady_clock::now();
    HttpResponse response;
    {
      const Work work("http answers");
      reply_with([&](HttpResponse made) { response = std::move(made); }, make_);
    }
    const auto end = steady_clock::now();
    lock.lock();
    // Those, too, that came meanwhile.
    const std::vector<HttpReply> answered = std::exchange(waiting_, {});
    newest_ = response;
    lock.unlock();
    for (const HttpReply& reply : answered) reply(response);
    response = {};
    lock.lock();
    const auto rest = std::min<steady_clock::duration>(kRestFactor * (end - begin), kMaxRest);
    while (!stopping_ && changed_.wait_until(lock, end + rest)) continue;
    newest_.reset();
  }
}

}  // namespace gpuperf
