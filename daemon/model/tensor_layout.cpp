#include "daemon/model/tensor_layout.h"

#include <algorithm>
#include <cstring>

namespace gpuperf {

bool operator==(const TensorLayout& a, const TensorLayout& b) {
  return std::memcmp(&a.fields, &b.fields, sizeof(a.fields)) == 0 && a.operations == b.operations;
}

uint32_t TensorLayouts::find(const TensorLayout& layout) const {
  const MutexLock lock(mutex_);
  const auto known = std::ranges::find(layouts_, layout);
  return known == layouts_.end() ? 0 : static_cast<uint32_t>(known - layouts_.begin()) + 1;
}

uint32_t TensorLayouts::add(const TensorLayout& layout) {
  if (const uint32_t known = find(layout); known != 0) return known;
  const MutexLock lock(mutex_);
  if (layouts_.size() >= GPUPERF_TENSOR_LAYOUTS) return 0;
  layouts_.push_back(layout);
  return static_cast<uint32_t>(layouts_.size());
}

std::string TensorLayouts::get_operation(uint32_t layout, uint32_t operation) const {
  const MutexLock lock(mutex_);
  if (layout != 0 && layout <= layouts_.size()) {
    const auto& operations = layouts_[layout - 1].operations;
    if (operation < operations.size()) return operations[operation];
  }
  return "operation " + std::to_string(operation);
}

}  // namespace gpuperf
