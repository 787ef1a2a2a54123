#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "daemon/base/result.h"
#include "daemon/gpu/leavable_thread.h"
#include "daemon/gpu/nvml_api.h"
#include "daemon/gpu/pci.h"
#include "daemon/model/gpu_health.h"
#include "daemon/model/snapshot.h"

namespace gpuperf {

// The GPU thread: keeps a session with NVIDIA's driver, reads every GPU each interval, and tells
// what it found. A second thread waits for the driver's own notices (GpuEvents).
//
// A driver that is missing, unloaded, loaded anew or that lost a GPU is tried again after
// `first_retry`, twice as long each time up to `max_retry`; it is said once, and in every report.
// A call that never comes back, as NVML's do when a GPU is lost, stops the reports: find_stall()
// says so, notices still come, and stop() leaves the thread behind after `stop_patience`, with all
// that it uses, so that the daemon always ends (docs/decisions/0013).
class GpuSource {
 public:
  struct Options {
    std::chrono::milliseconds interval{1000};
    bool counters = true;  // hardware counters are read, too
    std::function<Result<std::shared_ptr<const NvmlApi>>()> load = [] { return load_nvml(); };
    std::string pci_devices = kPciDevices;
    std::chrono::milliseconds first_retry{2'000};
    std::chrono::milliseconds max_retry{60'000};
    // Longer than any call that does come back: reading a GPU takes milliseconds, starting one up
    // to two seconds.
    std::chrono::milliseconds stop_patience{2'000};
    std::chrono::milliseconds stall_after{10'000};
  };
  // On either thread of the source, never after stop().
  using Listener = std::function<void(std::shared_ptr<const GpuHealthReport>)>;

  GpuSource(Options options, Listener listener);
  ~GpuSource();
  GpuSource(const GpuSource&) = delete;
  GpuSource& operator=(const GpuSource&) = delete;

  // False: a thread hangs in the driver and was left behind.
  bool stop();

  // What to tell while a call does not come back. Any thread.
  std::optional<Problem> find_stall() const;

 private:
  struct Shared;
  class Worker;

  // Set once in the constructor.
  const std::shared_ptr<Shared> shared_;
  LeavableThread thread_;
};

// What is wrong with the GPUs as of the report: for status.
std::vector<Problem> list_gpu_problems(const GpuHealthReport& report, int64_t now_mono_ns);

}  // namespace gpuperf
