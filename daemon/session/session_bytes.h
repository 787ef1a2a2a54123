#pragma once

// Structs out of bytes that may stand at any address.

#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

namespace gpuperf {

// The caller has seen that `bytes` holds a T; more may follow.
template <class T>
T copy_as(std::span<const std::byte> bytes) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

// The text in a field of fixed size, up to its first zero byte.
template <size_t size>
std::string copy_text(const char (&field)[size]) {
  return std::string(field, ::strnlen(field, size));
}

}  // namespace gpuperf
