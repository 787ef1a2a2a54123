// Makes calls that are slow for a known reason and measures itself where the time of each went, by
// the scheduler's own accounts of its thread (/proc/thread-self/schedstat), the clock and its
// cgroup. Prints one JSON line a call:
//   {"cause":"futex","pid":71,"tid":71,"duration_ns":20100000,"run_ns":90000,"runnable_ns":12000,
//    "throttled_ns":0,"reading_ns":41000,"preemptions":2,"minor_faults":0,"system_ns":0,"waker_tid":72,"user_ns":0,
//    "child_calls":0,"child_ns":0}
// reading_ns: how long reading these accounts took beside the call. user_ns: of run_ns, at most;
// only where most of it is something else (page faults).

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>

#include "options.h"
#include "truth.h"

using namespace workload;

namespace {

constexpr uint64_t kMsNs = 1'000'000;
constexpr size_t kPageBytes = 4096;

pthread_mutex_t contended = PTHREAD_MUTEX_INITIALIZER;
int pipe_ends[2];
std::string throttle_stat_path;  // cpu.stat of the cgroup, v1 or v2

uint64_t cpu_now_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

void spin_ns(uint64_t duration_ns) {
  const uint64_t end_ns = now_mono_ns() + duration_ns;
  while (now_mono_ns() < end_ns) {
  }
}

// Until the thread has used that much CPU, however long that takes.
void burn_ns(uint64_t cpu_ns) {
  const uint64_t end_ns = cpu_now_ns() + cpu_ns;
  while (cpu_now_ns() < end_ns) {
  }
}

struct Account {
  uint64_t mono_ns = 0;
  uint64_t run_ns = 0;
  uint64_t runnable_ns = 0;
  uint64_t throttled_ns = 0;
  uint64_t minor_faults = 0;
  uint64_t preemptions = 0;
  uint64_t system_ns = 0;   // in the kernel, as it books it by its own ticks
  uint64_t reading_ns = 0;  // what reading all this took
};

uint64_t read_throttled_ns() {
  char text[512] = "";
  const int fd = open(throttle_stat_path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 || read(fd, text, sizeof text - 1) < 0) return 0;
  close(fd);
  if (const char* v2 = strstr(text, "throttled_usec "))
    return strtoull(v2 + 15, nullptr, 10) * 1000;
  const char* v1 = strstr(text, "throttled_time ");
  return v1 == nullptr ? 0 : strtoull(v1 + 15, nullptr, 10);
}

uint64_t read_runnable_ns() {
  char text[128] = "";
  const int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  if (fd < 0 || read(fd, text, sizeof text - 1) <= 0) {
    perror("/proc/thread-self/schedstat");
    exit(1);
  }
  close(fd);
  char* rest = nullptr;
  (void)strtoull(text, &rest, 10);
  return strtoull(rest, nullptr, 10);
}

void read_usage(Account& account) {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  account.minor_faults = static_cast<uint64_t>(usage.ru_minflt);
  account.preemptions = static_cast<uint64_t>(usage.ru_nivcsw);
  account.system_ns = (static_cast<uint64_t>(usage.ru_stime.tv_sec) * 1'000'000 +
                       static_cast<uint64_t>(usage.ru_stime.tv_usec)) *
                      1000;
}

// The clocks stand next to the call on both sides: what happens while the rest is read is not its.
Account begin_account() {
  const uint64_t start_ns = now_mono_ns();
  Account account;
  if (!throttle_stat_path.empty()) account.throttled_ns = read_throttled_ns();
  account.runnable_ns = read_runnable_ns();
  read_usage(account);
  account.run_ns = cpu_now_ns();
  account.mono_ns = now_mono_ns();
  account.reading_ns = account.mono_ns - start_ns;
  return account;
}

Account end_account() {
  Account account{.mono_ns = now_mono_ns(), .run_ns = cpu_now_ns()};
  read_usage(account);
  account.runnable_ns = read_runnable_ns();
  if (!throttle_stat_path.empty()) account.throttled_ns = read_throttled_ns();
  account.reading_ns = now_mono_ns() - account.mono_ns;
  return account;
}

struct Call {
  const char* cause;
  uint64_t waker_tid = 0;
  uint64_t user_ns = 0;
  uint64_t child_calls = 0;
  uint64_t child_ns = 0;
};

void report(const Call& call, const Account& before, const Account& after) {
  const auto field = [](const char* name, uint64_t value) {
    return std::string(",\"") + name + "\":" + std::to_string(value);
  };
  print_line("{\"cause\":\"" + std::string(call.cause) + "\"" +
             field("pid", static_cast<uint64_t>(getpid())) +
             field("tid", static_cast<uint64_t>(gettid())) +
             field("duration_ns", after.mono_ns - before.mono_ns) +
             field("run_ns", after.run_ns - before.run_ns) +
             field("runnable_ns", after.runnable_ns - before.runnable_ns) +
             field("throttled_ns", after.throttled_ns - before.throttled_ns) +
             field("reading_ns", before.reading_ns + after.reading_ns) +
             field("preemptions", after.preemptions - before.preemptions) +
             field("minor_faults", after.minor_faults - before.minor_faults) +
             field("system_ns", after.system_ns - before.system_ns) +
             field("waker_tid", call.waker_tid) + field("user_ns", call.user_ns) +
             field("child_calls", call.child_calls) + field("child_ns", call.child_ns) + "}");
}

void touch(char* memory, size_t bytes) {
  for (size_t i = 0; i < bytes; i += kPageBytes) memory[i] = 1;
}

void pin_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) perror("sched_setaffinity");
}

}  // namespace

// What is probed. Exported; each is a frame of its own.
extern "C" {

void cause_spin(uint64_t ms) { spin_ns(ms * kMsNs); }

void cause_sleep(uint64_t ms) { sleep_ns(ms * kMsNs); }

void cause_futex() {
  pthread_mutex_lock(&contended);
  pthread_mutex_unlock(&contended);
}

void cause_faults(char* memory, size_t bytes) { touch(memory, bytes); }

void cause_runnable(uint64_t ms) { burn_ns(ms * kMsNs); }

void cause_throttled(uint64_t ms) { burn_ns(ms * kMsNs); }

void cause_pipe() {
  char byte = 0;
  if (read(pipe_ends[0], &byte, 1) != 1) perror("read");
}

void cause_child(uint64_t ms) { sleep_ns(ms * kMsNs); }

uint64_t cause_nested(uint64_t ms) {
  spin_ns(ms * kMsNs / 10);
  uint64_t child_ns = 0;
  for (int child = 0; child < 2; ++child) {
    const uint64_t start_ns = now_mono_ns();
    cause_child(ms);
    child_ns += now_mono_ns() - start_ns;
  }
  return child_ns;
}

}  // extern "C"

namespace {

// Calls with an account before and after.
template <typename Body>
void measure(Call call, Body body) {
  const Account before = begin_account();
  body(call);
  report(call, before, end_account());
}

void run_futex(uint64_t ms) {
  std::atomic<pid_t> holder = 0;
  std::thread thread([&] {
    pthread_mutex_lock(&contended);
    holder = gettid();
    sleep_ns(ms * kMsNs);
    pthread_mutex_unlock(&contended);
  });
  while (holder == 0) sched_yield();
  measure({.cause = "futex", .waker_tid = static_cast<uint64_t>(holder)},
          [](Call&) { cause_futex(); });
  thread.join();
}

void run_pipe(uint64_t ms) {
  std::atomic<pid_t> writer = 0;
  std::thread thread([&] {
    writer = gettid();
    sleep_ns(ms * kMsNs);
    if (write(pipe_ends[1], "x", 1) != 1) perror("write");
  });
  while (writer == 0) sched_yield();
  measure({.cause = "pipe", .waker_tid = static_cast<uint64_t>(writer)},
          [](Call&) { cause_pipe(); });
  thread.join();
}

// A hog and the caller on one CPU.
void run_runnable(uint64_t ms) {
  cpu_set_t all;
  sched_getaffinity(0, sizeof all, &all);
  std::atomic<bool> stop = false;
  std::thread hog([&] {
    pin_to(0);
    while (!stop) {
    }
  });
  pin_to(0);
  measure({.cause = "runnable"}, [ms](Call&) { cause_runnable(ms); });
  stop = true;
  hog.join();
  sched_setaffinity(0, sizeof all, &all);
}

void run_faults(uint64_t mib, bool huge) {
  const size_t bytes = mib << 20;
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    perror("mmap");
    exit(1);
  }
  madvise(mapped, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  auto* memory = static_cast<char*>(mapped);
  const Account before = begin_account();
  cause_faults(memory, bytes);
  const Account after = end_account();
  uint64_t user_ns = UINT64_MAX;  // the part in user space: the same without faults
  for (int attempt = 0; attempt < 3; ++attempt) {
    const uint64_t start_ns = cpu_now_ns();
    touch(memory, bytes);
    user_ns = std::min(user_ns, cpu_now_ns() - start_ns);
  }
  report({.cause = "faults", .user_ns = user_ns}, before, after);
  munmap(mapped, bytes);
}

}  // namespace

int main(int argc, char** argv) {
  const Options options(argc, argv,
                        {{"--cause", "spin"},
                         {"--runs", "1"},
                         {"--ms", "20"},    // how long, or how much CPU
                         {"--mib", "256"},  // faults: memory touched
                         {"--huge", "no"},  // faults: of 2 MiB pages
                         {"--throttle-stat", ""},
                         {"--wait-for-file", ""}});
  const std::string& cause = options.get_text("--cause");
  const uint64_t ms = options.get_count("--ms");
  throttle_stat_path = options.get_text("--throttle-stat");
  if (pipe(pipe_ends) != 0) perror("pipe");
  wait_for_file(options.get_text("--wait-for-file"));
  for (uint64_t run = 0; run < options.get_count("--runs"); ++run) {
    if (cause == "spin") measure({.cause = "spin"}, [ms](Call&) { cause_spin(ms); });
    if (cause == "sleep") measure({.cause = "sleep"}, [ms](Call&) { cause_sleep(ms); });
    if (cause == "futex") run_futex(ms);
    if (cause == "faults") run_faults(options.get_count("--mib"), options.is_set("--huge"));
    if (cause == "runnable") run_runnable(ms);
    if (cause == "throttled") measure({.cause = "throttled"}, [ms](Call&) { cause_throttled(ms); });
    if (cause == "pipe") run_pipe(ms);
    if (cause == "nested") {
      measure({.cause = "nested", .child_calls = 2},
              [ms](Call& call) { call.child_ns = cause_nested(ms); });
    }
  }
  return 0;
}
