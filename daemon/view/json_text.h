#pragma once

// Appends JSON to a text that may become hundreds of megabytes: no document in between.

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

namespace gpuperf {

// As a JSON string, quotes included: invalid UTF-8 replaced, control characters escaped.
std::string to_json_text(std::string_view text);

inline void append_number(uint64_t number, std::string& out) {
  char digits[20];
  out.append(digits, std::to_chars(digits, digits + sizeof(digits), number).ptr);
}

// Microseconds with three decimals.
inline void append_us(uint64_t duration_ns, std::string& out) {
  append_number(duration_ns / 1'000, out);
  const auto rest = static_cast<unsigned>(duration_ns % 1'000);
  const char decimals[] = {'.', static_cast<char>('0' + rest / 100),
                           static_cast<char>('0' + rest / 10 % 10),
                           static_cast<char>('0' + rest % 10)};
  out.append(decimals, sizeof(decimals));
}

}  // namespace gpuperf
