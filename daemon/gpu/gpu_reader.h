#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/gpu/call_pace.h"
#include "daemon/gpu/call_watch.h"
#include "daemon/gpu/gpu_counter_reader.h"
#include "daemon/gpu/limit_window.h"
#include "daemon/gpu/nvml_api.h"
#include "daemon/model/gpu_health.h"

namespace gpuperf {

// A GPU of the running session with the driver.
struct GpuHandle {
  NvmlDevice device = nullptr;
  GpuUuid uuid{};
};

// Reads every GPU of the host through NVML, each value at its own pace.
//
// Thread: one, which may hang in any call. Owns the session with the driver between open and close;
// what is known of a GPU outlives sessions, so that counts go on after a driver was loaded anew.
// Bounds: kMaxGpus GPUs, kMaxProcesses processes and kMaxMigInstances MIG instances of each.
// A value that the GPU or driver does not tell is left empty, without a word: that is normal.
class GpuReader {
 public:
  static constexpr unsigned kMaxGpus = 64;
  static constexpr unsigned kMaxProcesses = 256;
  static constexpr unsigned kMaxMigInstances = 16;

  // `watch` sees every call. `reads_counters`: hardware counters, too.
  GpuReader(std::chrono::nanoseconds interval, std::shared_ptr<CallWatch> watch,
            bool reads_counters = true);

  // UNAVAILABLE with the driver's words where the driver cannot be reached. No GPU is no error.
  Status open(std::shared_ptr<const NvmlApi> api);
  void close();
  // Without a word to the driver: another thread hangs in it.
  void leave();
  bool is_open() const { return api_ != nullptr; }
  std::vector<GpuHandle> handles() const;
  std::shared_ptr<const NvmlApi> api() const { return api_; }

  // Reads what is due. An error: the session is of no use any more, close it.
  Status read(int64_t now_mono_ns);
  bool is_any_lost() const;

  // Without problem, reason and errors, which are not known here.
  GpuHealthReport make_report() const;

 private:
  struct Gpu {
    NvmlDevice device = nullptr;  // null = not in this session
    GpuHealth health;
    LimitWindow limits;
    LimitWindow::Look look;
    unsigned thermal_field = 0;  // first of the three: see find_thermal_fields; 0 = none
    bool knows_thermal_field = false;
    // Of this session: by GPU instance; empty = the whole GPU.
    std::map<std::optional<uint32_t>, GpuCounterReader> counters;
  };

  // Without a kind it says nothing of the pace.
  template <typename... Parameters, typename... Arguments>
  NvmlReturn call(std::optional<GpuCall> kind, const char* name,
                  const std::function<NvmlReturn(Parameters...)>& function, Arguments... arguments);
  std::optional<uint64_t> ask(GpuCall kind, const char* name,
                              const std::function<NvmlReturn(NvmlDevice, int, unsigned*)>& function,
                              NvmlDevice device, int which);
  std::optional<uint64_t> ask(GpuCall kind, const char* name,
                              const std::function<NvmlReturn(NvmlDevice, unsigned*)>& function,
                              NvmlDevice device);
  Status open_devices();
  void open_device(unsigned index);
  void read_gpu(Gpu& gpu, int64_t now_mono_ns);
  bool read_fields(GpuCall kind, Gpu& gpu, std::span<NvmlFieldValue> fields);
  void read_power(Gpu& gpu);
  void read_memory(NvmlDevice device, std::optional<uint64_t>& used_bytes,
                   std::optional<uint64_t>& total_bytes);
  void read_clocks(Gpu& gpu);
  void read_ecc(Gpu& gpu);
  void read_processes(Gpu& gpu);
  void read_pcie(Gpu& gpu);
  void read_repair(Gpu& gpu);
  void read_inventory(Gpu& gpu);
  void read_mig(Gpu& gpu);
  void read_counters(Gpu& gpu, int64_t now_mono_ns);
  void free_counters();

  CallPace pace_;
  const std::shared_ptr<CallWatch> watch_;
  const bool reads_counters_;
  std::shared_ptr<const NvmlApi> api_;
  std::string driver_version_;
  std::map<GpuUuid, Gpu> gpus_;
  // Of the round that runs.
  bool is_lost_ = false;              // the GPU that is read does not answer
  NvmlReturn broken_ = kNvmlSuccess;  // why the session is of no use
};

}  // namespace gpuperf
