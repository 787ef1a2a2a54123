#include "daemon/resolve/address_table.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

namespace gpuperf {
namespace {

// Functions that begin inside others (hand-written assembly, cold parts) are few and near.
constexpr size_t kMaxNesting = 16;
// Names of more bytes than this, and than may be kept, are not read to see whether those of
// functions can be kept: of a library of PyTorch's they would take most of the memory, for a
// moment.
constexpr uint64_t kManyNameBytes = uint64_t{16} << 20;
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

AddressTable AddressTable::refer(const std::vector<SortedSymbol>& functions,
                                 std::vector<LoadSegment> segments) {
  AddressTable table;
  table.segments_ = std::move(segments);
  table.entries_.reserve(functions.size());
  table.names_offset_bytes_ =
      std::ranges::min_element(functions, {}, &SortedSymbol::name_offset_bytes)->name_offset_bytes;
  for (const SortedSymbol& function : functions) {
    const uint64_t name_offset = function.name_offset_bytes - table.names_offset_bytes_;
    if (name_offset > kMaxU32) continue;  // nobody's two tables of names lie that far apart
    table.entries_.push_back(
        {.vaddr = function.vaddr,
         .size_bytes = static_cast<uint32_t>(std::min(function.size_bytes, kMaxU32)),
         .name_offset = static_cast<uint32_t>(name_offset)});
  }
  return table;
}

AddressTable AddressTable::load(int fd, size_t max_bytes) {
  return load(fd, max_bytes, max_bytes / kKeptPart);
}

AddressTable AddressTable::load(int fd, size_t max_bytes, size_t max_kept_bytes) {
  max_bytes = std::min<size_t>(max_bytes, kMaxU32);  // offsets of names
  for (const auto tables : {ElfSymbols::Tables::kBoth, ElfSymbols::Tables::kDynamic}) {
    // As read, symbols that are no functions come on top.
    Result<ElfSymbols> symbols =
        ElfSymbols::load(fd, tables, 2 * max_bytes, ElfSymbols::Names::kLeft);
    const bool is_small =
        symbols.ok() && symbols->name_bytes() <= std::max<uint64_t>(kManyNameBytes, max_kept_bytes);
    if (is_small) symbols = ElfSymbols::load(fd, tables, 2 * max_bytes);
    // Stripped, damaged or too large: the next try, or no names.
    if (!symbols.ok()) continue;
    const std::vector<SortedSymbol> functions = symbols->sort_functions();
    if (is_small && count_bytes(functions, sizeof(Entry)) <= max_kept_bytes) {
      return make(functions, symbols->segments());
    }
    if (functions.empty() || functions.size() * sizeof(Entry) > max_bytes) continue;
    return refer(functions, symbols->segments());
  }
  const Result<ElfFile> file = ElfFile::open(fd);
  return make({}, file.ok() ? file->segments() : std::vector<LoadSegment>());
}

AddressTable AddressTable::load(int fd, std::span<const int> debug_fds, size_t max_bytes) {
  if (debug_fds.empty()) return load(fd, max_bytes);
  max_bytes = std::min<size_t>(max_bytes, kMaxU32);
  AddressTable own = load(fd, max_bytes, max_bytes);
  if (own.has_names_in_file()) return own;
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

std::string AddressTable::read_name(const Entry& entry, int fd) const {
  if (!has_names_in_file()) return names_.c_str() + entry.name_offset;
  std::array<char, ElfSymbols::kMaxNameBytes> bytes;
  const ssize_t length = ::pread(fd, bytes.data(), bytes.size(),
                                 static_cast<off_t>(names_offset_bytes_ + entry.name_offset));
  if (length <= 0) return "";
  const std::string_view rest(bytes.data(), static_cast<size_t>(length));
  const std::string_view name = rest.substr(0, rest.find('\0'));
  return std::string(name.substr(0, name.find('@', 1)));  // without its version
}

std::optional<AddressTable::Match> AddressTable::find_function(uint64_t vaddr, int fd) const {
  const auto next = std::ranges::upper_bound(entries_, vaddr, {}, &Entry::vaddr);
  auto entry = next;
  for (size_t steps = 0; entry != entries_.begin() && steps < kMaxNesting; ++steps) {
    --entry;
    const bool reaches_next = entry->size_bytes == 0 && std::next(entry) == next;
    if (!reaches_next && vaddr - entry->vaddr >= entry->size_bytes) continue;
    return Match{.name = read_name(*entry, fd), .vaddr = entry->vaddr};
  }
  return std::nullopt;
}

size_t AddressTable::size_bytes() const {
  return sizeof(*this) + entries_.capacity() * sizeof(Entry) + names_.capacity() +
         segments_.capacity() * sizeof(LoadSegment);
}

}  // namespace gpuperf
