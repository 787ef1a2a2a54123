#include "daemon/app/part.h"

#include <future>
#include <utility>

namespace gpuperf {

void Part::add_problem(Problem problem, LogEvent event) {
  log_warn(event, {{"error", problem.message}});
  problems_.push_back(std::move(problem));
}

void Part::stop_beside_loop(const std::function<void()>& stop) {
  // The drain's queue holds 64 batches, of which at most 50 come in a second.
  constexpr std::chrono::milliseconds kTakePeriod{20};
  const auto stopped = std::async(std::launch::async, stop);
  do {
    core_.loop->run_posted();
  } while (stopped.wait_for(kTakePeriod) != std::future_status::ready);
}

}  // namespace gpuperf
