#pragma once

#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "daemon/gpu/nvml_api.h"

namespace gpuperf {

constexpr int64_t kSecondNs = 1'000'000'000;

}  // namespace gpuperf

namespace gpuperf::testing {

struct FakeField {
  uint64_t value = 0;
  unsigned type = kNvmlUnsignedLongLong;
};

// The GPM of one GPU, or of one GPU instance: answers of the next calls.
struct FakeGpm {
  bool is_supported = true;
  NvmlReturn sample_answer = kNvmlSuccess;
  std::map<unsigned, double> metrics = {{kGpmAnyTensor, 83.5}, {kGpmPcieReceive, 2}};
};

struct FakeGpu {
  std::string uuid = "GPU-0123abcd-0000-1111-2222-000000000001";
  std::map<unsigned, FakeField> fields;
  unsigned long long limit_bits = 0;
  unsigned sm_mhz = 1755;
  bool is_lost = false;
  FakeGpm gpm;
  std::map<unsigned, FakeGpm> gpm_of_instances;  // MIG mode is on where there are any
};

// GPUs behind a table of functions. Functions that a test does not need stay empty, as with a
// driver that lacks them. May be changed while another thread reads: lock `mutex`.
struct FakeGpus {
  std::mutex mutex;
  std::vector<FakeGpu> gpus{FakeGpu()};
  NvmlReturn init_answer = kNvmlSuccess;
  NvmlReturn fields_answer = kNvmlSuccess;
  int inits = 0;
  int shutdowns = 0;
  std::multiset<std::string> calls;
  std::deque<FakeGpm*> samples;  // what each was last taken of
  unsigned asked_instance = 0;

  static NvmlDevice make_device(size_t index) {
    return reinterpret_cast<NvmlDevice>(static_cast<uintptr_t>(index + 1));
  }
  FakeGpu& get(NvmlDevice device) { return gpus[reinterpret_cast<uintptr_t>(device) - 1]; }

  // Adds GPM and MIG to the table.
  void add_gpm(NvmlApi& api) {
    api.gpm_support = [this](NvmlDevice device, NvmlGpmSupport* support) {
      calls.insert("gpm_support");
      support->is_supported_device = get(device).gpm.is_supported;
      return kNvmlSuccess;
    };
    api.gpm_sample_alloc = [this](NvmlGpmSample* sample) {
      *sample = reinterpret_cast<NvmlGpmSample>(&samples.emplace_back(nullptr));
      calls.insert("gpm_alloc");
      return kNvmlSuccess;
    };
    api.gpm_sample_free = [this](NvmlGpmSample) {
      calls.insert("gpm_free");
      return kNvmlSuccess;
    };
    const auto take = [this](FakeGpm& gpm, NvmlGpmSample sample) {
      calls.insert("gpm_sample");
      *reinterpret_cast<FakeGpm**>(sample) = &gpm;
      return gpm.sample_answer;
    };
    api.gpm_sample = [this, take](NvmlDevice device, NvmlGpmSample sample) {
      return take(get(device).gpm, sample);
    };
    api.gpm_mig_sample = [this, take](NvmlDevice device, unsigned instance, NvmlGpmSample sample) {
      const auto gpm = get(device).gpm_of_instances.find(instance);
      if (gpm == get(device).gpm_of_instances.end()) return kNvmlInvalidArgument;
      return take(gpm->second, sample);
    };
    api.gpm_metrics = [this](NvmlGpmMetricsGet* request) {
      calls.insert("gpm_metrics");
      const FakeGpm& gpm = **reinterpret_cast<FakeGpm**>(request->sample2);
      for (unsigned i = 0; i < request->count; ++i) {
        const auto found = gpm.metrics.find(request->metrics[i].metric_id);
        request->metrics[i].result = found == gpm.metrics.end() ? kNvmlNotSupported : kNvmlSuccess;
        if (found != gpm.metrics.end()) request->metrics[i].value = found->second;
      }
      return kNvmlSuccess;
    };
  }
  // MIG instances, one compute instance in each GPU instance; their devices follow the GPUs'.
  void add_mig(NvmlApi& api) {
    api.mig_mode = [this](NvmlDevice device, unsigned* current, unsigned*) {
      *current = get(device).gpm_of_instances.empty() ? 0 : kNvmlFeatureEnabled;
      return kNvmlSuccess;
    };
    api.max_mig_count = [](NvmlDevice, unsigned* count) {
      *count = 7;
      return kNvmlSuccess;
    };
    api.mig_by_index = [this](NvmlDevice device, unsigned index, NvmlDevice* mig) {
      *mig = device;
      if (index >= get(device).gpm_of_instances.size()) return kNvmlInvalidArgument;
      asked_instance = std::next(get(device).gpm_of_instances.begin(), index)->first;
      return kNvmlSuccess;
    };
    api.gpu_instance = [this](NvmlDevice, unsigned* id) {
      *id = asked_instance;
      return kNvmlSuccess;
    };
  }

  // The fake must outlive the table.
  std::shared_ptr<NvmlApi> make_api() {
    auto api = std::make_shared<NvmlApi>();
    api->init = [this] {
      const std::lock_guard lock(mutex);
      ++inits;
      return init_answer;
    };
    api->shutdown = [this] {
      const std::lock_guard lock(mutex);
      ++shutdowns;
      return kNvmlSuccess;
    };
    api->device_count = [this](unsigned* count) {
      const std::lock_guard lock(mutex);
      *count = static_cast<unsigned>(gpus.size());
      return kNvmlSuccess;
    };
    api->device_by_index = [this](unsigned index, NvmlDevice* device) {
      const std::lock_guard lock(mutex);
      *device = make_device(index);
      return gpus[index].is_lost ? kNvmlGpuIsLost : kNvmlSuccess;
    };
    api->uuid = [this](NvmlDevice device, char* text, unsigned bytes) {
      const std::lock_guard lock(mutex);
      std::strncpy(text, get(device).uuid.c_str(), bytes);
      return kNvmlSuccess;
    };
    api->field_values = [this](NvmlDevice device, int count, NvmlFieldValue* values) {
      const std::lock_guard lock(mutex);
      calls.insert("fields");
      if (get(device).is_lost) return kNvmlGpuIsLost;
      if (fields_answer != kNvmlSuccess) return fields_answer;
      for (int i = 0; i < count; ++i) {
        const auto field = get(device).fields.find(values[i].field_id);
        values[i].result = field == get(device).fields.end() ? kNvmlNotSupported : kNvmlSuccess;
        if (values[i].result != kNvmlSuccess) continue;
        values[i].value_type = field->second.type;
        values[i].value.as_unsigned_long_long = field->second.value;
      }
      return kNvmlSuccess;
    };
    api->clock_limits = [this](NvmlDevice device, unsigned long long* bits) {
      const std::lock_guard lock(mutex);
      *bits = get(device).limit_bits;
      return get(device).is_lost ? kNvmlGpuIsLost : kNvmlSuccess;
    };
    api->clock_mhz = [this](NvmlDevice device, int, unsigned* mhz) {
      const std::lock_guard lock(mutex);
      calls.insert("clock");
      *mhz = get(device).sm_mhz;
      return get(device).is_lost ? kNvmlGpuIsLost : kNvmlSuccess;
    };
    return api;
  }
};

}  // namespace gpuperf::testing
