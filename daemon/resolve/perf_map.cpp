#include "daemon/resolve/perf_map.h"

#include <algorithm>
#include <charconv>

namespace gpuperf {
namespace {

// Functions that lie inside others, or over parts of those thrown away, are few and near.
constexpr size_t kMaxSymbolOverlaps = 16;

// Takes a hexadecimal number and the blank behind it off the front of `line`.
bool take_number(std::string_view& line, uint64_t& value) {
  if (line.starts_with("0x")) line.remove_prefix(2);
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value, 16);
  const auto length = static_cast<size_t>(end - line.data());
  if (error != std::errc() || length == line.size() || *end != ' ') return false;
  line.remove_prefix(length + 1);
  return true;
}

}  // namespace

size_t PerfMap::append(std::string_view text) {
  const size_t whole_bytes = text.rfind('\n') + 1;  // 0 without a newline
  text = text.substr(0, whole_bytes);
  const auto known_count = static_cast<ptrdiff_t>(entries_.size());
  while (!text.empty()) {
    const size_t length = text.find('\n');
    std::string_view line = text.substr(0, length);
    text.remove_prefix(length + 1);
    Entry entry;
    if (!take_number(line, entry.start_address) || !take_number(line, entry.size_bytes)) continue;
    const std::string_view name = line.substr(0, kMaxNameBytes);
    if (name.empty()) continue;
    if (size_bytes() + sizeof entry + name.size() > max_bytes_) {
      is_full_ = true;
      break;
    }
    entry.name_offset = static_cast<uint32_t>(names_.size());
    entry.name_bytes = static_cast<uint32_t>(name.size());
    entries_.push_back(entry);
    names_ += name;
  }
  const auto added = entries_.begin() + known_count;
  std::ranges::stable_sort(added, entries_.end(), {}, &Entry::start_address);
  std::ranges::inplace_merge(entries_, added, {}, &Entry::start_address);
  // Of those with one address the last one stays: it was added last.
  const auto kept = std::unique(
      entries_.rbegin(), entries_.rend(),
      [](const Entry& a, const Entry& b) { return a.start_address == b.start_address; });
  entries_.erase(entries_.begin(), kept.base());
  return whole_bytes;
}

std::optional<PerfMap::Match> PerfMap::find(uint64_t address) const {
  auto entry = std::ranges::upper_bound(entries_, address, {}, &Entry::start_address);
  for (size_t steps = 0; entry != entries_.begin() && steps < kMaxSymbolOverlaps; ++steps) {
    --entry;
    if (address - entry->start_address >= entry->size_bytes) continue;
    return Match{.name = std::string_view(names_).substr(entry->name_offset, entry->name_bytes),
                 .start_address = entry->start_address};
  }
  return std::nullopt;
}

size_t PerfMap::size_bytes() const { return entries_.size() * sizeof(Entry) + names_.size(); }

}  // namespace gpuperf
