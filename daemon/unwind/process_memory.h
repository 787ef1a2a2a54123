#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <type_traits>

#include "daemon/model/stack.h"

namespace gpuperf {

// Fills `bytes` from an address of another process, or of a copy of its memory. False: not all of
// it could be read, and `bytes` holds anything.
using ReadMemory = std::function<bool(uint64_t address, std::span<std::byte> bytes)>;

template <typename T>
std::optional<T> read_value(const ReadMemory& read, uint64_t address) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value{};
  if (!read(address, std::as_writable_bytes(std::span(&value, 1)))) return std::nullopt;
  return value;
}

// Of a living process, by its pid; needs the right to ptrace it. A hostile one can make the caller
// wait for ever: for the worker that ProcessReader asks, and for tests.
ReadMemory make_direct_reader(uint32_t pid);

// Of a copy, which must outlive it.
ReadMemory make_copy_reader(const StackCopy& copy);

}  // namespace gpuperf
