#include "daemon/base/clock.h"

#include <ctime>

namespace gpuperf {
namespace {

int64_t read_ns(clockid_t id) {
  timespec now{};
  // Cannot fail: both ids exist on every Linux and `now` is a valid address.
  (void)clock_gettime(id, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

int64_t SystemClock::mono_ns() const { return read_ns(CLOCK_MONOTONIC); }
int64_t SystemClock::unix_ns() const { return read_ns(CLOCK_REALTIME); }

}  // namespace gpuperf
