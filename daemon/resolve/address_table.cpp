#include "daemon/resolve/address_table.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace gpuperf {
namespace {

// Functions that begin inside others (hand-written assembly, cold parts) are few and near.
constexpr size_t kMaxNesting = 16;
constexpr uint64_t kMaxU32 = UINT32_MAX;

size_t count_bytes(const std::vector<SortedSymbol>& functions, size_t entry_bytes) {
  size_t bytes = functions.size() * entry_bytes;
  for (const SortedSymbol& function : functions) bytes += function.name.size() + 1;
  return bytes;
}

// By address; of two at one address the first list's.
std::vector<SortedSymbol> merge_functions(const std::vector<SortedSymbol>& first,
                                          const std::vector<SortedSymbol>& second) {
  std::vector<SortedSymbol> merged;
  merged.reserve(first.size() + second.size());
  std::ranges::merge(first, second, std::back_inserter(merged), {}, &SortedSymbol::vaddr,
                     &SortedSymbol::vaddr);
  const auto end =
      std::unique(merged.begin(), merged.end(),
                  [](const SortedSymbol& a, const SortedSymbol& b) { return a.vaddr == b.vaddr; });
  merged.erase(end, merged.end());
  return merged;
}

}  // namespace

AddressTable AddressTable::make(const std::vector<SortedSymbol>& functions,
                                std::vector<LoadSegment> segments) {
  AddressTable table;
  table.segments_ = std::move(segments);
  table.entries_.reserve(functions.size());
  table.names_.reserve(count_bytes(functions, 0));
  for (const SortedSymbol& function : functions) {
    const auto name_offset = static_cast<uint32_t>(table.names_.size());
    table.entries_.push_back(
        {.vaddr = function.vaddr,
         .size_bytes = static_cast<uint32_t>(std::min(function.size_bytes, kMaxU32)),
         .name_offset = name_offset});
    table.names_ += function.name;
    table.names_ += '\0';
  }
  return table;
}

AddressTable AddressTable::load(int fd, size_t max_bytes) {
  max_bytes = std::min<size_t>(max_bytes, kMaxU32);  // offsets of names
  for (const auto tables : {ElfSymbols::Tables::kBoth, ElfSymbols::Tables::kDynamic}) {
    // As read, symbols that are no functions come on top.
    const Result<ElfSymbols> symbols = ElfSymbols::load(fd, tables, 2 * max_bytes);
    // Stripped, damaged or too large: the next try, or no names.
    if (!symbols.ok()) continue;
    const std::vector<SortedSymbol> functions = symbols->sort_functions();
    if (count_bytes(functions, sizeof(Entry)) > max_bytes) continue;
    return make(functions, symbols->segments());
  }
  const Result<ElfFile> file = ElfFile::open(fd);
  return make({}, file.ok() ? file->segments() : std::vector<LoadSegment>());
}

AddressTable AddressTable::load(int fd, std::span<const int> debug_fds, size_t max_bytes) {
  AddressTable own = load(fd, max_bytes);
  max_bytes = std::min<size_t>(max_bytes, kMaxU32);
  for (const int debug_fd : debug_fds) {
    const Result<ElfSymbols> symbols =
        ElfSymbols::load_debug(debug_fd, own.segments_, 2 * max_bytes);
    if (!symbols.ok()) continue;  // damaged or too large: the next, or what the file itself has
    const std::vector<SortedSymbol> all =
        merge_functions(own.list_functions(), symbols->sort_functions());
    if (count_bytes(all, sizeof(Entry)) <= max_bytes) return make(all, own.segments_);
  }
  return own;
}

// The names live as long as the table.
std::vector<SortedSymbol> AddressTable::list_functions() const {
  std::vector<SortedSymbol> functions;
  functions.reserve(entries_.size());
  for (const Entry& entry : entries_) {
    functions.push_back({.vaddr = entry.vaddr,
                         .size_bytes = entry.size_bytes,
                         .name = names_.c_str() + entry.name_offset});
  }
  return functions;
}

std::optional<uint64_t> AddressTable::find_vaddr(uint64_t file_offset_bytes) const {
  for (const LoadSegment& segment : segments_) {
    if (!segment.executable || file_offset_bytes < segment.offset_bytes) continue;
    const uint64_t distance = file_offset_bytes - segment.offset_bytes;
    if (distance < segment.file_bytes) return segment.vaddr + distance;
  }
  return std::nullopt;
}

std::optional<AddressTable::Match> AddressTable::find_function(uint64_t vaddr) const {
  const auto next = std::ranges::upper_bound(entries_, vaddr, {}, &Entry::vaddr);
  auto entry = next;
  for (size_t steps = 0; entry != entries_.begin() && steps < kMaxNesting; ++steps) {
    --entry;
    const bool reaches_next = entry->size_bytes == 0 && std::next(entry) == next;
    if (!reaches_next && vaddr - entry->vaddr >= entry->size_bytes) continue;
    return Match{.name = names_.c_str() + entry->name_offset, .vaddr = entry->vaddr};
  }
  return std::nullopt;
}

size_t AddressTable::size_bytes() const {
  return sizeof(*this) + entries_.capacity() * sizeof(Entry) + names_.capacity() +
         segments_.capacity() * sizeof(LoadSegment);
}

}  // namespace gpuperf
