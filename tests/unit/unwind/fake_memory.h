#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string_view>

#include "daemon/unwind/process_memory.h"

namespace gpuperf {

// A process's memory of the bytes that a test puts there; others cannot be read. It must outlive
// its readers.
class FakeMemory {
 public:
  template <typename T>
  void put(uint64_t address, const T& value) {
    put_bytes(address, std::string_view(reinterpret_cast<const char*>(&value), sizeof value));
  }
  void put_bytes(uint64_t address, std::string_view bytes) {
    for (const char byte : bytes) bytes_[address++] = static_cast<std::byte>(byte);
  }
  void clear() { bytes_.clear(); }

  ReadMemory reader() {
    return [this](uint64_t address, std::span<std::byte> into) {
      ++reads_;
      return std::ranges::all_of(into, [&](std::byte& byte) {
        const auto found = bytes_.find(address++);
        if (found != bytes_.end()) byte = found->second;
        return found != bytes_.end();
      });
    };
  }
  size_t reads() const { return reads_; }

 private:
  std::map<uint64_t, std::byte> bytes_;
  size_t reads_ = 0;
};

}  // namespace gpuperf
