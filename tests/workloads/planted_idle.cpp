#include "tests/workloads/planted_idle.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "tests/fakes/cupti/fake_cuda.h"

namespace {

constexpr uint64_t kMsNs = 1'000'000;

uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

void sleep_ns(uint64_t duration_ns) {
  const timespec time{static_cast<time_t>(duration_ns / 1'000'000'000),
                      static_cast<long>(duration_ns % 1'000'000'000)};
  nanosleep(&time, nullptr);
}

}  // namespace

// Each cause in a function of its own, so that stacks tell them apart; what stands behind the work
// keeps the call from becoming a jump.
#define GPUPERF_CAUSE(name) extern "C" __attribute__((noinline)) void name(uint64_t duration_ns)
#define GPUPERF_STAYS(name) __asm__ volatile("" : : "r"(&name))

GPUPERF_CAUSE(planted_spin) {
  for (const uint64_t end_ns = now_ns() + duration_ns; now_ns() < end_ns;) {
  }
  GPUPERF_STAYS(planted_spin);
}

GPUPERF_CAUSE(planted_fault) {
  constexpr size_t kBytes = size_t{16} << 20;
  const uint64_t end_ns = now_ns() + duration_ns;
  while (now_ns() < end_ns) {
    auto* memory = static_cast<char*>(
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    madvise(memory, kBytes, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < kBytes && now_ns() < end_ns; i += 4096) memory[i] = 1;
    munmap(memory, kBytes);
  }
  GPUPERF_STAYS(planted_fault);
}

// Probed by tests.
GPUPERF_CAUSE(planted_call) {
  for (const uint64_t end_ns = now_ns() + duration_ns; now_ns() < end_ns;) {
  }
  GPUPERF_STAYS(planted_call);
}

// Likewise.
GPUPERF_CAUSE(planted_blocked_call) {
  sleep_ns(duration_ns);
  GPUPERF_STAYS(planted_blocked_call);
}

GPUPERF_CAUSE(planted_sleep) {
  sleep_ns(duration_ns);
  GPUPERF_STAYS(planted_sleep);
}

GPUPERF_CAUSE(planted_lock) {
  std::mutex lock;
  std::mutex begin;
  std::condition_variable begun;
  bool is_held = false;
  std::thread holder([&] {
    const std::lock_guard held(lock);
    {
      const std::lock_guard told(begin);
      is_held = true;
    }
    begun.notify_one();
    sleep_ns(duration_ns);
  });
  {
    std::unique_lock waiting(begin);
    begun.wait(waiting, [&] { return is_held; });
  }
  lock.lock();
  lock.unlock();
  holder.join();
  GPUPERF_STAYS(planted_lock);
}

GPUPERF_CAUSE(planted_read) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  std::thread writer([&] {
    sleep_ns(duration_ns);
    (void)!write(ends[1], "x", 1);
  });
  char byte = 0;
  (void)!read(ends[0], &byte, 1);
  writer.join();
  close(ends[0]);
  close(ends[1]);
  GPUPERF_STAYS(planted_read);
}

// Likewise.
extern "C" __attribute__((noinline)) void planted_step(void (*cause)(uint64_t),
                                                       uint64_t duration_ns, uint64_t* planted_ns) {
  FakeWork work;
  work.name = "planted_kernel";
  (void)fake_launch(work, kMsNs, true);
  (void)fake_synchronise();
  const uint64_t begin_ns = now_ns();
  cause(duration_ns);
  *planted_ns += now_ns() - begin_ns;
}

std::string plant_idle(std::istream& line) {
  static const std::map<std::string, void (*)(uint64_t)> kCauses = {
      {"spin", planted_spin},   {"fault", planted_fault},
      {"call", planted_call},   {"blocked_call", planted_blocked_call},
      {"sleep", planted_sleep}, {"lock", planted_lock},
      {"read", planted_read}};
  std::string cause;
  uint64_t duration_ms = 0;
  uint64_t times = 0;
  uint64_t longest_ms = 0;
  line >> cause >> duration_ms >> times;
  if (!(line >> longest_ms)) longest_ms = duration_ms;
  const auto found = kCauses.find(cause);
  if (found == kCauses.end()) return "{\"error\": \"no such cause\"}";
  uint64_t planted_ns = 0;
  for (uint64_t i = 0; i < times; ++i) {
    const uint64_t length_ms = i == times / 2 ? longest_ms : duration_ms;
    planted_step(found->second, length_ms * kMsNs, &planted_ns);
  }
  FakeWork last;  // that ends the last gap
  last.name = "planted_kernel";
  (void)fake_launch(last, kMsNs, true);
  (void)fake_synchronise();
  return "{\"planted_ns\": " + std::to_string(planted_ns) + "}";
}
