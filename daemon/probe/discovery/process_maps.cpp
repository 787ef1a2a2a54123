#include "daemon/probe/discovery/process_maps.h"

#include <sys/sysmacros.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace gpuperf {
namespace {

constexpr std::string_view kDeleted = " (deleted)";
constexpr std::string_view kNewline = "\\012";

// Takes a number and the separator behind it off the front of `text`.
template <typename T>
bool take_number(std::string_view& text, int base, char separator, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  const auto length = static_cast<size_t>(end - text.data());
  if (error != std::errc() || length == text.size() || *end != separator) return false;
  text.remove_prefix(length + 1);
  return true;
}

// The kernel writes a newline as \012 and leaves everything else, backslashes included, as it is. A
// name that really holds "\012" is therefore misread; opening it by its address range still works.
std::string unescape(std::string_view path) {
  std::string plain;
  plain.reserve(path.size());
  while (true) {
    const size_t found = path.find(kNewline);
    plain += path.substr(0, found);
    if (found == std::string_view::npos) return plain;
    plain += '\n';
    path.remove_prefix(found + kNewline.size());
  }
}

enum class Lines { kAll, kExecutable };

// "7f01-7f02 r-xp 00002000 fe:01 1234      /usr/lib/libc.so.6"
std::optional<MemoryMap> parse_line(std::string_view line, Lines lines) {
  MemoryMap entry;
  if (!take_number(line, 16, '-', entry.start_address)) return std::nullopt;
  if (!take_number(line, 16, ' ', entry.end_address)) return std::nullopt;
  constexpr size_t kPermissions = 5;  // "r-xp "
  if (line.size() < kPermissions || line[4] != ' ') return std::nullopt;
  entry.can_write = line[1] == 'w';
  entry.can_execute = line[2] == 'x';
  entry.is_shared = line[3] == 's';
  if (lines == Lines::kExecutable && !entry.can_execute) return std::nullopt;
  line.remove_prefix(kPermissions);
  uint32_t major = 0;
  uint32_t minor = 0;
  if (!take_number(line, 16, ' ', entry.offset_bytes)) return std::nullopt;
  if (!take_number(line, 16, ':', major)) return std::nullopt;
  if (!take_number(line, 16, ' ', minor)) return std::nullopt;
  const auto [end, error] =
      std::from_chars(line.data(), line.data() + line.size(), entry.file.inode);
  if (error != std::errc() || entry.start_address >= entry.end_address) return std::nullopt;
  line.remove_prefix(static_cast<size_t>(end - line.data()));
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  entry.file.device = makedev(major, minor);
  entry.deleted = entry.file.inode != 0 && line.ends_with(kDeleted);
  if (entry.deleted) line.remove_suffix(kDeleted.size());
  entry.path = unescape(line);
  return entry;
}

template <typename Entry>
std::vector<Entry> parse_lines(std::string_view text, Lines lines) {
  std::vector<Entry> entries;
  while (!text.empty()) {
    const size_t length = std::min(text.find('\n'), text.size());
    if (std::optional<MemoryMap> entry = parse_line(text.substr(0, length), lines)) {
      entries.push_back(*std::move(entry));
    }
    text.remove_prefix(std::min(length + 1, text.size()));
  }
  return entries;
}

}  // namespace

std::vector<MemoryMap> parse_maps(std::string_view text) {
  return parse_lines<MemoryMap>(text, Lines::kAll);
}

std::vector<MapEntry> parse_executable_maps(std::string_view text) {
  return parse_lines<MapEntry>(text, Lines::kExecutable);
}

Result<ProcessMaps> read_executable_maps(const ProcFiles& files, uint32_t pid) {
  ASSIGN_OR_RETURN(const BoundedText maps, files.read_maps(pid, kMaxMapsBytes));
  return ProcessMaps{.entries = parse_executable_maps(maps.text), .truncated = maps.truncated};
}

}  // namespace gpuperf
