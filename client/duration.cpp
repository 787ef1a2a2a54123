#include "client/duration.h"

#include <absl/strings/ascii.h>
#include <absl/time/time.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>

namespace gpuperf::client {
namespace {

constexpr const char* kDurationForm = "write a number with a unit, like 500ms, 10m, 1h30m or 2d";

struct Unit {
  std::string_view name;
  uint64_t ns;
};

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kHourNs = 3600 * kSecondNs;
constexpr std::array<Unit, 9> kUnits = {{{"ns", 1},
                                         {"us", 1000},
                                         {"µs", 1000},
                                         {"ms", 1'000'000},
                                         {"s", kSecondNs},
                                         {"m", 60 * kSecondNs},
                                         {"h", kHourNs},
                                         {"d", 24 * kHourNs},
                                         {"w", 168 * kHourNs}}};

std::string_view take_while(std::string_view& text, bool (*wanted)(unsigned char)) {
  const auto* end = std::find_if_not(text.begin(), text.end(), wanted);
  const std::string_view taken = text.substr(0, static_cast<size_t>(end - text.begin()));
  text.remove_prefix(taken.size());
  return taken;
}

bool is_digit(unsigned char c) { return absl::ascii_isdigit(c); }
bool is_unit_letter(unsigned char c) { return !absl::ascii_isdigit(c) && c != '.'; }

// Empty on overflow.
std::optional<uint64_t> scale(std::string_view whole, std::string_view fraction, uint64_t unit_ns) {
  uint64_t count = 0;
  for (const char digit : whole) {
    if (__builtin_mul_overflow(count, uint64_t{10}, &count) ||
        __builtin_add_overflow(count, static_cast<uint64_t>(digit - '0'), &count)) {
      return std::nullopt;
    }
  }
  double part = 0;
  double place = 0.1;
  for (const char digit : fraction) {
    part += place * (digit - '0');
    place /= 10;
  }
  const auto part_ns = static_cast<uint64_t>(std::llround(part * static_cast<double>(unit_ns)));
  uint64_t total_ns = 0;
  if (__builtin_mul_overflow(count, unit_ns, &total_ns) ||
      __builtin_add_overflow(total_ns, part_ns, &total_ns)) {
    return std::nullopt;
  }
  return total_ns;
}

Status make_error(std::string_view text, std::string_view why) {
  return absl::InvalidArgumentError(fmt::format("\"{}\": {}", text, why));
}

// Years come first in RFC 3339; a duration never has a dash.
bool looks_like_a_date(std::string_view text) { return text.find('-') != std::string_view::npos; }

}  // namespace

Result<uint64_t> parse_duration_ns(std::string_view text) {
  std::string_view rest = text;
  uint64_t total_ns = 0;
  if (text.empty()) return make_error(text, fmt::format("empty; {}", kDurationForm));
  while (!rest.empty()) {
    const std::string_view whole = take_while(rest, is_digit);
    std::string_view fraction;
    if (!whole.empty() && rest.size() > 1 && rest[0] == '.' && is_digit(rest[1])) {
      rest.remove_prefix(1);
      fraction = take_while(rest, is_digit);
    }
    const std::string_view name = take_while(rest, is_unit_letter);
    const auto* unit = std::find_if(kUnits.begin(), kUnits.end(),
                                    [&](const Unit& row) { return row.name == name; });
    if (whole.empty()) return make_error(text, fmt::format("not a duration; {}", kDurationForm));
    if (name.empty()) return make_error(text, fmt::format("no unit; {}", kDurationForm));
    if (unit == kUnits.end()) {
      return make_error(text, fmt::format("unknown unit \"{}\"; {}", name, kDurationForm));
    }
    const std::optional<uint64_t> part_ns = scale(whole, fraction, unit->ns);
    if (!part_ns.has_value() || __builtin_add_overflow(total_ns, *part_ns, &total_ns)) {
      return make_error(text, "longer than 584 years");
    }
  }
  return total_ns;
}

Result<uint64_t> parse_since_unix_ns(std::string_view text, uint64_t now_unix_ns) {
  if (looks_like_a_date(text)) {
    absl::Time moment;
    std::string why;
    if (!absl::ParseTime(absl::RFC3339_full, std::string(text), &moment, &why)) {
      return make_error(text,
                        "not a time; write it like 2026-05-01T10:00:00Z or "
                        "2026-05-01T12:00:00+02:00, or as a duration like 10m");
    }
    const int64_t unix_ns = absl::ToUnixNanos(moment);
    if (unix_ns <= 0 || unix_ns == INT64_MAX) return make_error(text, "outside 1970 to 2262");
    return static_cast<uint64_t>(unix_ns);
  }
  ASSIGN_OR_RETURN(const uint64_t ago_ns, parse_duration_ns(text));
  if (ago_ns >= now_unix_ns) return make_error(text, "reaches back before 1970");
  return now_unix_ns - ago_ns;
}

}  // namespace gpuperf::client
