#include "client/text.h"

#include <absl/strings/str_split.h>
#include <fmt/format.h>
#include <locale.h>
#include <time.h>
#include <wchar.h>

#include <array>
#include <cmath>
#include <vector>

namespace gpuperf::client {
namespace {

constexpr uint64_t kNsPerSecond = 1'000'000'000;
constexpr std::string_view kEllipsis = "…";

struct CodePoint {
  char32_t value = 0;
  size_t size_bytes = 1;
  bool valid = false;
};

// Strict: no overlong forms, no surrogates, nothing past U+10FFFF. `text` is not empty.
CodePoint decode_first(std::string_view text) {
  const auto byte = [&](size_t index) { return static_cast<unsigned char>(text[index]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  const size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < size) return {};
  char32_t value = lead & (0x7F >> size);
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    value = (value << 6) | (byte(i) & 0x3F);
  }
  constexpr std::array<char32_t, 5> kSmallest = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (value < kSmallest[size] || value > 0x10FFFF || surrogate) return {};
  return {value, size, true};
}

// Columns of one character, negative when it is not printable. glibc's own tables, by way of the
// built-in C.UTF-8 locale: the user's locale may know nothing beyond ASCII.
int find_columns(char32_t value) {
  static const locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  if (value < 0x7F) return value < 0x20 ? -1 : 1;
  if (utf8 == nullptr) return 1;
  const locale_t before = uselocale(utf8);
  const int columns = wcwidth(static_cast<wchar_t>(value));
  uselocale(before);
  return columns;
}

// Characters that print nothing themselves but reorder or hide their neighbours.
bool is_deceptive(char32_t value) {
  return value == 0x061C || (value >= 0x200B && value <= 0x200F) ||
         (value >= 0x2028 && value <= 0x202E) || (value >= 0x2060 && value <= 0x206F) ||
         value == 0xFEFF;
}

bool is_control(char32_t value) { return value < 0x20 || (value >= 0x7F && value < 0xA0); }

std::string escape(char32_t value) {
  if (value == '\n') return "\\n";
  if (value == '\t') return "\\t";
  if (value == '\r') return "\\r";
  if (value < 0x80) return fmt::format("\\x{:02x}", static_cast<uint32_t>(value));
  return fmt::format("\\u{{{:x}}}", static_cast<uint32_t>(value));
}

// Bytes of the colour that `text` begins with; 0 = none.
size_t measure_colour(std::string_view text) {
  if (!text.starts_with("\x1b[")) return 0;
  const size_t end = text.find('m');
  return end == std::string_view::npos ? 0 : end + 1;
}

std::string cut_line(std::string_view line, int columns) {
  int used = 0;
  bool coloured = false;
  size_t cut = 0;  // where "…" would go
  for (size_t position = 0; position < line.size();) {
    const std::string_view rest = line.substr(position);
    if (const size_t colour = measure_colour(rest); colour > 0) {
      coloured = true;
      position += colour;
      continue;
    }
    const CodePoint point = decode_first(rest);
    used += std::max(0, find_columns(point.value));
    if (used > columns) {
      return fmt::format("{}{}{}", line.substr(0, cut), kEllipsis, coloured ? "\x1b[0m" : "");
    }
    position += point.size_bytes;
    if (used < columns) cut = position;
  }
  return std::string(line);
}

struct tm read_local_time(uint64_t unix_ns) {
  const time_t seconds = static_cast<time_t>(unix_ns / kNsPerSecond);
  struct tm local = {};
  localtime_r(&seconds, &local);
  return local;
}

// Three significant digits.
std::string format_scaled(double value, std::string_view unit) {
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, decimals, unit);
}

std::string format_long_duration(uint64_t seconds) {
  constexpr uint64_t kMinute = 60;
  constexpr uint64_t kHour = 60 * kMinute;
  constexpr uint64_t kDay = 24 * kHour;
  if (seconds < kHour) return fmt::format("{}m{:02}s", seconds / kMinute, seconds % kMinute);
  if (seconds < kDay) {
    return fmt::format("{}h{:02}m", seconds / kHour, seconds % kHour / kMinute);
  }
  return fmt::format("{}d{:02}h", seconds / kDay, seconds % kDay / kHour);
}

}  // namespace

std::string make_printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint point = decode_first(text);
    if (!point.valid) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
    } else if (is_control(point.value) || is_deceptive(point.value) ||
               find_columns(point.value) < 0) {
      out += escape(point.value);
    } else {
      out += text.substr(0, point.size_bytes);
    }
    text.remove_prefix(point.size_bytes);
  }
  return out;
}

int measure_width(std::string_view printable) {
  int columns = 0;
  while (!printable.empty()) {
    const CodePoint point = decode_first(printable);
    columns += point.valid ? std::max(0, find_columns(point.value)) : 1;
    printable.remove_prefix(point.size_bytes);
  }
  return columns;
}

std::string truncate(std::string_view printable, int columns, Cut cut) {
  int left_columns = measure_width(printable);
  if (left_columns <= columns) return std::string(printable);
  const int room = std::max(0, columns - 1);  // one column is the ellipsis
  size_t position = 0;
  if (cut == Cut::kStart) {
    while (left_columns > room) {
      const CodePoint point = decode_first(printable.substr(position));
      left_columns -= std::max(0, find_columns(point.value));
      position += point.size_bytes;
    }
    return std::string(kEllipsis) + std::string(printable.substr(position));
  }
  if (cut == Cut::kMiddle) {
    const int end_columns = columns / 2;
    return truncate(printable, columns - end_columns, Cut::kEnd) +
           truncate(printable, end_columns + 1, Cut::kStart).substr(kEllipsis.size());
  }
  int used_columns = 0;
  while (position < printable.size()) {
    const CodePoint point = decode_first(printable.substr(position));
    const int next = std::max(0, find_columns(point.value));
    if (used_columns + next > room) break;
    used_columns += next;
    position += point.size_bytes;
  }
  return std::string(printable.substr(0, position)) + std::string(kEllipsis);
}

std::string cut_to_width(std::string_view text, int columns) {
  if (columns <= 0) return std::string(text);
  std::string out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    out += cut_line(text.substr(0, end), columns);
    if (end < text.size()) out += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::string wrap(std::string_view printable, int columns, std::string_view indent) {
  const std::vector<std::string> words =
      absl::StrSplit(std::string(printable), ' ', absl::SkipEmpty());
  std::string out;
  int used = 0;  // columns of the line that is being filled
  for (const std::string& word : words) {
    const int width = measure_width(word);
    const bool full = columns > 0 && used + 1 + width > columns;
    if (out.empty() || full) {
      out += out.empty() ? "" : "\n";
      out += indent;
      used = measure_width(indent);
    } else {
      out += ' ';
      ++used;
    }
    out += word;
    used += width;
  }
  return out.empty() ? out : out + "\n";
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const CodePoint point = decode_first(text);
    if (!point.valid) return false;
    text.remove_prefix(point.size_bytes);
  }
  return true;
}

std::string escape_json_controls(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  while (!json.empty()) {
    const CodePoint point = decode_first(json);
    // Below U+0020 only the line breaks and blanks between values are left raw by a JSON writer.
    const bool obeyed = point.valid && point.value >= 0x20 &&
                        (is_control(point.value) || is_deceptive(point.value));
    if (obeyed) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(point.value));
    } else {
      out += json.substr(0, point.size_bytes);
    }
    json.remove_prefix(point.size_bytes);
  }
  return out;
}

std::string format_duration(uint64_t duration_ns) {
  struct Unit {
    double ns;
    std::string_view name;
  };
  constexpr std::array<Unit, 3> kUnits = {{{1e3, "µs"}, {1e6, "ms"}, {1e9, "s"}}};
  constexpr uint64_t kLongest = 120 * kNsPerSecond;  // beyond, minutes read better
  if (duration_ns < 1000) return fmt::format("{} ns", duration_ns);
  if (duration_ns >= kLongest) {
    return format_long_duration(duration_ns / kNsPerSecond +
                                (duration_ns % kNsPerSecond) / (kNsPerSecond / 2));
  }
  for (const Unit& unit : kUnits) {
    const double value = static_cast<double>(duration_ns) / unit.ns;
    if (value < 999.5 || unit.name == "s") return format_scaled(value, unit.name);
  }
  return {};  // the last unit always returns
}

std::string format_count(uint64_t count) {
  std::string digits = std::to_string(count);
  for (size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

std::string format_bytes(uint64_t bytes) {
  constexpr std::array<std::string_view, 5> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  for (const std::string_view unit : kUnits) {
    value /= 1024;
    if (value < 999.5 || unit == kUnits.back()) return format_scaled(value, unit);
  }
  return {};  // the last unit always returns
}

std::string format_ratio(double ratio) {
  const double percent = ratio * 100;
  if (percent > 0 && percent < 0.005) return "< 0.01 %";  // some, which is not none
  return format_scaled(percent, "%");
}

std::string format_local_time(uint64_t unix_ns) {
  if (unix_ns == 0) return "-";
  const struct tm local = read_local_time(unix_ns);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:03}", local.tm_year + 1900,
                     local.tm_mon + 1, local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec,
                     unix_ns % kNsPerSecond / 1'000'000);
}

std::string format_utc_offset(uint64_t unix_ns) {
  const long minutes = read_local_time(unix_ns).tm_gmtoff / 60;
  const long magnitude = std::labs(minutes);
  return fmt::format("{}{:02}:{:02}", minutes < 0 ? '-' : '+', magnitude / 60, magnitude % 60);
}

uint64_t read_wall_clock_ns() {
  struct timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * kNsPerSecond + static_cast<uint64_t>(now.tv_nsec);
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string_view strip_blanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n\r";
  const size_t begin = std::min(text.find_first_not_of(kBlanks), text.size());
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

}  // namespace gpuperf::client
