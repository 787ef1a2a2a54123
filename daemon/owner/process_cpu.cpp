#include "daemon/owner/process_cpu.h"

#include <time.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace gpuperf {
namespace {

// The first line of /proc/stat: "cpu" user nice system idle iowait irq softirq steal, in ticks.
uint64_t read_host_cpu_ns() {
  std::ifstream stat("/proc/stat");
  std::string label;
  uint64_t user = 0, nice = 0, system = 0;
  stat >> label >> user >> nice >> system;
  const auto ticks_per_second = static_cast<uint64_t>(sysconf(_SC_CLK_TCK));
  return (user + nice + system) * (1'000'000'000 / ticks_per_second);
}

uint64_t to_ns(const timespec& time) {
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

}  // namespace

uint64_t read_process_cpu_ns(const ProcessKey& process) {
  if (process.pid == 0) return read_host_cpu_ns();
  clockid_t clock{};
  timespec time{};
  if (clock_getcpuclockid(static_cast<pid_t>(process.pid), &clock) != 0) return 0;
  if (clock_gettime(clock, &time) != 0) return 0;
  return to_ns(time);
}

}  // namespace gpuperf
