#pragma once

// What NVML's batch of field values answers.

#include <cstdint>
#include <optional>
#include <span>

#include "daemon/gpu/nvml_types.h"

namespace gpuperf {

// The value as a whole number; empty where the GPU does not tell it.
std::optional<uint64_t> read_field(const NvmlFieldValue& field);
// Likewise of the field with that number in a batch.
std::optional<uint64_t> find_field(std::span<const NvmlFieldValue> batch, unsigned field_id);

// The first of the three numbers under which this driver has its durations of thermal slowdown and
// power brake; 0 = none. NVIDIA numbered them 251 to 253, and later 269 to 271, because power
// smoothing had 251 and on, or 256 to 273, in other releases: whoever asks by the wrong number gets
// switches and percentages for nanoseconds. Durations are the only ones of those that are
// `unsigned long long`, and a driver has all three or none; both rows at once would be a numbering
// not known here, and neither is believed.
unsigned find_thermal_fields(std::span<const NvmlFieldValue> batch);

}  // namespace gpuperf
