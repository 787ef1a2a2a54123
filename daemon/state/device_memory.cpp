#include "daemon/state/device_memory.h"

#include <algorithm>

namespace gpuperf {

// The last row takes what finds no row of its own.
uint32_t DeviceMemory::find_row(const GpuUuid& uuid, uint32_t ordinal, uint8_t memory,
                                std::vector<GpuMemoryRow>& rows) {
  const auto found = std::ranges::find_if(rows, [&](const GpuMemoryRow& row) {
    return row.memory == memory && row.ordinal == ordinal && row.uuid == uuid;
  });
  if (found != rows.end()) return static_cast<uint32_t>(found - rows.begin());
  if (rows.size() < kMaxRows) {
    rows.push_back({.uuid = uuid, .ordinal = ordinal, .memory = memory});
  }
  return static_cast<uint32_t>(rows.size() - 1);
}

bool DeviceMemory::find_room() {
  if (allocations_.size() >= max_addresses_) return false;
  const size_t growth_bytes = allocations_.bytes_to_grow();
  return growth_bytes == 0 || account_ == nullptr || account_->take(growth_bytes);
}

bool DeviceMemory::apply(const MemoryRecord& record, const GpuUuid& uuid, uint32_t ordinal,
                         std::vector<GpuMemoryRow>& rows) {
  loop_thread_.check();
  const auto release = [&rows](const Allocation& allocation) {
    GpuMemoryRow& row = rows[allocation.row];
    row.used_bytes -= std::min(row.used_bytes, allocation.bytes);
  };
  Allocation* known = allocations_.find(record.address);
  if (record.is_release) {
    ++rows[known != nullptr ? known->row : find_row(uuid, ordinal, record.memory, rows)].releases;
    if (known == nullptr) return false;
    release(*known);
    allocations_.erase(record.address);
    return true;
  }
  const uint32_t index = find_row(uuid, ordinal, record.memory, rows);
  GpuMemoryRow& row = rows[index];
  ++row.allocations;
  row.allocated_bytes += record.bytes;
  const bool is_new = known == nullptr;
  if (!is_new) {
    release(*known);  // its release was missed
  } else if (!find_room()) {
    drops_.add(DropCause::kGpuAddressesFull);
    return false;
  }
  allocations_.get(record.address) = {.bytes = record.bytes, .row = index};
  row.used_bytes += record.bytes;
  row.peak_bytes = std::max(row.peak_bytes, row.used_bytes);
  return is_new;
}

void DeviceMemory::release_all(std::vector<GpuMemoryRow>& rows) {
  loop_thread_.check();
  if (account_ != nullptr) account_->give_back(allocations_.bytes());
  allocations_.clear();
  for (GpuMemoryRow& row : rows) row.used_bytes = 0;
}

}  // namespace gpuperf
