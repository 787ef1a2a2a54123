#include "daemon/slow/explain_text.h"

#include <spdlog/fmt/fmt.h>

namespace gpuperf {

std::string format_explained_time(uint64_t time_ns) {
  const auto value = static_cast<double>(time_ns);
  if (time_ns >= 10'000'000'000) return fmt::format("{:.1f} s", value / 1e9);
  if (time_ns >= 1'000'000'000) return fmt::format("{:.2f} s", value / 1e9);
  if (time_ns >= 10'000'000) return fmt::format("{:.0f} ms", value / 1e6);
  if (time_ns >= 1'000'000) return fmt::format("{:.1f} ms", value / 1e6);
  return fmt::format("{:.0f} us", value / 1e3);
}

std::string shorten_explained(std::string text, size_t bytes) {
  const auto is_continuation = [&](size_t i) {
    return (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80;
  };
  if (text.size() <= bytes) return text;
  while (bytes > 0 && is_continuation(bytes)) --bytes;
  return text.substr(0, bytes) + "…";
}

}  // namespace gpuperf
