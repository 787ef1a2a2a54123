#pragma once

#include <cstring>
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

struct FakeGpu {
  std::string uuid = "GPU-0123abcd-0000-1111-2222-000000000001";
  std::map<unsigned, FakeField> fields;
  unsigned long long limit_bits = 0;
  unsigned sm_mhz = 1755;
  bool is_lost = false;
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

  static NvmlDevice make_device(size_t index) {
    return reinterpret_cast<NvmlDevice>(static_cast<uintptr_t>(index + 1));
  }
  FakeGpu& get(NvmlDevice device) { return gpus[reinterpret_cast<uintptr_t>(device) - 1]; }

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
