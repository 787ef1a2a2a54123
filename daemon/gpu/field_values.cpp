#include "daemon/gpu/field_values.h"

#include <algorithm>

namespace gpuperf {
namespace {

bool has_durations(std::span<const NvmlFieldValue> batch, unsigned first) {
  int found = 0;
  for (const NvmlFieldValue& field : batch) {
    if (field.field_id < first || field.field_id >= first + 3) continue;
    found += field.result == kNvmlSuccess && field.value_type == kNvmlUnsignedLongLong;
  }
  return found == 3;
}

}  // namespace

std::optional<uint64_t> read_field(const NvmlFieldValue& field) {
  if (field.result != kNvmlSuccess) return std::nullopt;
  switch (field.value_type) {
    case kNvmlUnsignedInt:
      return field.value.as_unsigned;
    case kNvmlUnsignedLong:
      return field.value.as_unsigned_long;
    case kNvmlUnsignedLongLong:
      return field.value.as_unsigned_long_long;
    case kNvmlSignedInt:
      if (field.value.as_int < 0) return std::nullopt;
      return static_cast<uint64_t>(field.value.as_int);
    case kNvmlSignedLongLong:
      if (field.value.as_signed_long_long < 0) return std::nullopt;
      return static_cast<uint64_t>(field.value.as_signed_long_long);
    default:  // an open set: what is not known is not told
      return std::nullopt;
  }
}

std::optional<uint64_t> find_field(std::span<const NvmlFieldValue> batch, unsigned field_id) {
  const auto found = std::ranges::find(batch, field_id, &NvmlFieldValue::field_id);
  return found == batch.end() ? std::nullopt : read_field(*found);
}

unsigned find_thermal_fields(std::span<const NvmlFieldValue> batch) {
  const bool old_numbers = has_durations(batch, kFieldSwThermalNsOld);
  const bool new_numbers = has_durations(batch, kFieldSwThermalNsNew);
  if (old_numbers == new_numbers) return 0;
  return old_numbers ? kFieldSwThermalNsOld : kFieldSwThermalNsNew;
}

}  // namespace gpuperf
