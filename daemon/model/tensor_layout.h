#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bpf/records.h"
#include "daemon/base/mutex.h"

namespace gpuperf {

// One build of ggml: where the fields of its tensors lie, and what its operations are called.
struct TensorLayout {
  gpuperf_tensor_layout fields{};
  std::vector<std::string> operations;  // by number
};
bool operator==(const TensorLayout& a, const TensorLayout& b);

// The layouts seen so far, numbered from 1 on. Never forgets one: what was reported by its number
// may still be on its way. Thread: any. Bounds: GPUPERF_TENSOR_LAYOUTS.
class TensorLayouts {
 public:
  // Its number; 0 = not seen yet.
  uint32_t find(const TensorLayout& layout) const;
  // Likewise; 0 = there is no room for another.
  uint32_t add(const TensorLayout& layout);
  // "operation 93" where it has no name.
  std::string get_operation(uint32_t layout, uint32_t operation) const;

 private:
  mutable Mutex mutex_;
  std::vector<TensorLayout> layouts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gpuperf
