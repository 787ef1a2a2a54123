#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "daemon/base/result.h"

namespace gpuperf {

// Memory of a mmapable BPF array, shared with the kernel. Move-only.
class MappedArray {
 public:
  MappedArray() = default;
  static Result<MappedArray> map(int map_fd, std::string_view name, size_t value_bytes,
                                 size_t entry_count);
  // Only its addresses, where it is large: an entry is there once map_entry() said so. Mapped pages
  // count as resident memory, touched or not.
  static Result<MappedArray> reserve(int map_fd, std::string_view name, size_t value_bytes,
                                     size_t entry_count);
  MappedArray(MappedArray&& other) noexcept;
  MappedArray& operator=(MappedArray&& other) noexcept;
  ~MappedArray();

  Status map_entry(size_t index);

  template <typename T>
  std::span<T> as() const {
    return {static_cast<T*>(memory_), entry_count_};
  }

 private:
  Status map_piece(size_t piece);

  void* memory_ = nullptr;
  size_t length_bytes_ = 0;
  size_t entry_count_ = 0;
  // Of one that is reserved.
  int map_fd_ = -1;
  size_t value_bytes_ = 0;
  std::vector<bool> is_piece_mapped_;
};

}  // namespace gpuperf
