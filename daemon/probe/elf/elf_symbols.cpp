#include "daemon/probe/elf/elf_symbols.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>

namespace gpuperf {
namespace {

// Of the names that are left in the file, at once. The symbols are passed over once for each piece,
// 2 ms for a million of them.
constexpr uint64_t kPieceBytes = uint64_t{8} << 20;

constexpr Elf64_Half kHiddenVersion = 0x8000;  // VERSYM_HIDDEN: not the default version

bool is_typed(const Elf64_Sym& symbol) {
  const unsigned type = ELF64_ST_TYPE(symbol.st_info);
  return type == STT_FUNC || type == STT_GNU_IFUNC;
}

int rank_of_binding(const Elf64_Sym& symbol) {
  switch (ELF64_ST_BIND(symbol.st_info)) {
    case STB_GLOBAL:
    case STB_GNU_UNIQUE:
      return 2;
    case STB_WEAK:
      return 1;
    default:
      return 0;
  }
}

// "foo@@V2" and "foo@V1" are how .symtab spells versions; .dynsym has them in a table of its own.
struct SplitName {
  std::string_view name;
  bool is_default_version = true;
};

SplitName split_version(std::string_view text) {
  const size_t at = text.find('@');
  if (at == std::string_view::npos || at == 0) return {.name = text};
  return {.name = text.substr(0, at), .is_default_version = text.substr(at).starts_with("@@")};
}

}  // namespace

// Reads tables out of the sections, within one budget of bytes.
class ElfSymbols::Sections {
 public:
  static Result<Sections> read(const ElfFile& file, uint64_t max_bytes, Names names) {
    ASSIGN_OR_RETURN(std::vector<Elf64_Shdr> headers, file.read_sections());
    return Sections(file, std::move(headers), max_bytes, names);
  }

  // Appends the table of `type`, if there is one.
  Status add_table(Elf64_Word type, std::vector<Table>& tables) {
    const auto header = std::ranges::find(headers_, type, &Elf64_Shdr::sh_type);
    if (header == headers_.end()) return absl::OkStatus();
    if (header->sh_link >= headers_.size() || headers_[header->sh_link].sh_type != SHT_STRTAB) {
      return absl::DataLossError("damaged ELF file: symbol table without its string table");
    }
    if (header->sh_size / sizeof(Elf64_Sym) > kMaxSymbols) {
      return absl::ResourceExhaustedError("too large: more than " + std::to_string(kMaxSymbols) +
                                          " symbols");
    }
    const Elf64_Shdr& strings = headers_[header->sh_link];
    Table table{.strings_offset_bytes = strings.sh_offset,
                .strings_bytes = strings.sh_size,
                .is_dynamic = type == SHT_DYNSYM};
    RETURN_IF_ERROR(read_section(*header, table.symbols));
    if (names_ == Names::kRead) {
      RETURN_IF_ERROR(read_section(strings, table.strings));
    } else {
      RETURN_IF_ERROR(take_section<char>(strings));
    }
    const auto versions = std::ranges::find(headers_, SHT_GNU_versym, &Elf64_Shdr::sh_type);
    if (table.is_dynamic && versions != headers_.end()) {
      RETURN_IF_ERROR(read_section(*versions, table.versions));
      // Entries belong to symbols one to one; a table of another length says nothing.
      if (table.versions.size() != table.symbols.size()) table.versions.clear();
    }
    tables.push_back(std::move(table));
    return absl::OkStatus();
  }

 private:
  Sections(const ElfFile& file, std::vector<Elf64_Shdr> headers, uint64_t max_bytes, Names names)
      : file_(file), headers_(std::move(headers)), budget_bytes_(max_bytes), names_(names) {}

  // Whether it can be read, within the budget.
  template <typename T>
  Status take_section(const Elf64_Shdr& header) {
    if ((header.sh_flags & SHF_COMPRESSED) != 0) {
      return absl::UnimplementedError("compressed symbol table");
    }
    if (sizeof(T) > 1 && header.sh_entsize != sizeof(T)) {
      return absl::DataLossError("damaged ELF file: size of a symbol");
    }
    if (!file_.holds(header.sh_offset, header.sh_size)) {
      return absl::DataLossError("truncated or damaged ELF file: symbols lie beyond its end");
    }
    if (header.sh_size > budget_bytes_) {
      return absl::ResourceExhaustedError("too large: its symbol tables");
    }
    budget_bytes_ -= header.sh_size;
    return absl::OkStatus();
  }

  template <typename T>
  Status read_section(const Elf64_Shdr& header, std::vector<T>& values) {
    RETURN_IF_ERROR(take_section<T>(header));
    values.resize(header.sh_size / sizeof(T));
    return file_.read(header.sh_offset, std::as_writable_bytes(std::span(values)));
  }

  const ElfFile& file_;
  std::vector<Elf64_Shdr> headers_;
  uint64_t budget_bytes_;
  const Names names_;
};

Result<ElfSymbols> ElfSymbols::load(int fd, Tables tables, uint64_t max_table_bytes, Names names) {
  ASSIGN_OR_RETURN(const ElfFile file, ElfFile::open(fd));
  ASSIGN_OR_RETURN(Sections sections, Sections::read(file, max_table_bytes, names));
  ElfSymbols symbols;
  if (tables != Tables::kStatic) {
    RETURN_IF_ERROR(sections.add_table(SHT_DYNSYM, symbols.tables_));
  }
  if (tables != Tables::kDynamic) {
    RETURN_IF_ERROR(sections.add_table(SHT_SYMTAB, symbols.tables_));
  }
  if (symbols.tables_.empty()) return absl::NotFoundError("stripped: no symbol table");
  symbols.segments_ = file.segments();
  if (names == Names::kLeft) symbols.file_ = file;
  return symbols;
}

Result<ElfSymbols> ElfSymbols::load_debug(int fd, std::vector<LoadSegment> segments,
                                          uint64_t max_table_bytes) {
  ASSIGN_OR_RETURN(const ElfFile file, ElfFile::open(fd, ElfFile::Kind::kDebug));
  ASSIGN_OR_RETURN(Sections sections, Sections::read(file, max_table_bytes, Names::kRead));
  ElfSymbols symbols;
  RETURN_IF_ERROR(sections.add_table(SHT_SYMTAB, symbols.tables_));
  if (symbols.tables_.empty()) return absl::NotFoundError("debug file without symbol table");
  symbols.segments_ = std::move(segments);
  return symbols;
}

uint64_t ElfSymbols::name_bytes() const {
  uint64_t bytes = 0;
  for (const Table& table : tables_) bytes += table.strings_bytes;
  return bytes;
}

// Calls `visit` with names that begin at `begin` to `end` of the table's strings, at least
// `longest_bytes` of each, until all were there. A file that was cut meanwhile has no more.
void ElfSymbols::visit_names(const Table& table, size_t longest_bytes,
                             const VisitNames& visit) const {
  if (!file_) return visit({table.strings.data(), table.strings.size()}, 0, table.strings.size());
  std::vector<char> piece;
  for (uint64_t begin = 0; begin < table.strings_bytes; begin += kPieceBytes) {
    const uint64_t left = table.strings_bytes - begin;
    piece.resize(std::min(left, kPieceBytes + longest_bytes));
    const Status read =
        file_->read(table.strings_offset_bytes + begin, std::as_writable_bytes(std::span(piece)));
    if (!read.ok()) return;
    visit({piece.data(), piece.size()}, begin, begin + std::min(left, kPieceBytes));
  }
}

bool ElfSymbols::has_name(const Table& table, const Elf64_Sym& symbol) const {
  if (file_) return symbol.st_name != 0 && symbol.st_name < table.strings_bytes;
  return !get_name(table, symbol, 1).empty();
}

// At most `max_bytes` of the name; empty when it lies outside the strings.
std::string_view ElfSymbols::get_name(const Table& table, const Elf64_Sym& symbol,
                                      size_t max_bytes) {
  if (symbol.st_name >= table.strings.size()) return {};
  const std::string_view rest(table.strings.data() + symbol.st_name,
                              std::min(table.strings.size() - symbol.st_name, max_bytes));
  return rest.substr(0, rest.find('\0'));
}

std::optional<FunctionSymbol> ElfSymbols::find_code(const Elf64_Sym& symbol) const {
  const unsigned type = ELF64_ST_TYPE(symbol.st_info);
  if (!is_typed(symbol) && type != STT_NOTYPE) return std::nullopt;
  if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx == SHN_ABS) return std::nullopt;
  for (const LoadSegment& segment : segments_) {
    if (!segment.executable || symbol.st_value < segment.vaddr) continue;
    const uint64_t distance = symbol.st_value - segment.vaddr;
    if (distance >= segment.file_bytes) continue;
    return FunctionSymbol{.file_offset_bytes = segment.offset_bytes + distance,
                          .size_bytes = symbol.st_size,
                          .is_ifunc = type == STT_GNU_IFUNC};
  }
  return std::nullopt;
}

int ElfSymbols::get_preference(const Table& table, size_t index, bool is_default_version) {
  const Elf64_Sym& symbol = table.symbols[index];
  const bool hidden = !table.versions.empty() && (table.versions[index] & kHiddenVersion) != 0;
  return (table.is_dynamic ? 32 : 0) + (is_typed(symbol) ? 16 : 0) +
         (is_default_version && !hidden ? 8 : 0) + rank_of_binding(symbol);
}

void ElfSymbols::visit_functions(const std::function<bool(const NamedFunction&)>& visit) const {
  for (const Table& table : tables_) {
    for (size_t i = 0; i < table.symbols.size(); ++i) {
      const Elf64_Sym& symbol = table.symbols[i];
      if (!is_typed(symbol)) continue;
      const std::optional<FunctionSymbol> function = find_code(symbol);
      if (!function) continue;
      const SplitName split = split_version(get_name(table, symbol, kMaxNameBytes));
      if (split.name.empty()) continue;
      const int preference = get_preference(table, i, split.is_default_version);
      if (!visit({.name = split.name, .preference = preference, .where = *function})) return;
    }
  }
}

std::vector<std::optional<FunctionSymbol>> ElfSymbols::find_all(
    std::span<const std::string> names) const {
  struct Best {
    int rank = -1;
    FunctionSymbol function;
  };
  std::unordered_map<std::string_view, Best> wanted;
  size_t longest = 0;
  for (const std::string& name : names) {
    wanted.try_emplace(name);
    longest = std::max(longest, name.size());
  }
  wanted.erase("");
  const auto look_at = [&](const Table& table, std::string_view strings, uint64_t begin,
                           uint64_t end) {
    for (size_t i = 0; i < table.symbols.size(); ++i) {
      const Elf64_Sym& symbol = table.symbols[i];
      if (symbol.st_name < begin || symbol.st_name >= end) continue;
      // Two bytes more than the longest: for the "@@" of its version, and so that a longer name
      // does not match by its beginning.
      const std::string_view rest = strings.substr(symbol.st_name - begin, longest + 2);
      const SplitName split = split_version(rest.substr(0, rest.find('\0')));
      const auto entry = wanted.find(split.name);
      if (entry == wanted.end()) continue;
      const int rank = get_preference(table, i, split.is_default_version);
      if (rank <= entry->second.rank) continue;
      const std::optional<FunctionSymbol> function = find_code(symbol);
      if (function) entry->second = {.rank = rank, .function = *function};
    }
  };
  for (const Table& table : tables_) {
    visit_names(table, longest + 2, [&](std::string_view strings, uint64_t begin, uint64_t end) {
      look_at(table, strings, begin, end);
    });
  }
  std::vector<std::optional<FunctionSymbol>> found(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    const auto entry = wanted.find(names[i]);
    if (entry != wanted.end() && entry->second.rank >= 0) found[i] = entry->second.function;
  }
  return found;
}

std::optional<FunctionSymbol> ElfSymbols::find_function(const std::string& name) const {
  return find_all(std::span(&name, 1)).front();
}

std::optional<SymbolPlace> ElfSymbols::find_symbol(std::string_view name) const {
  for (const Table& table : tables_) {
    for (const Elf64_Sym& symbol : table.symbols) {
      if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx == SHN_ABS) continue;
      if (get_name(table, symbol, name.size() + 1) != name) continue;
      return SymbolPlace{.vaddr = symbol.st_value, .size_bytes = symbol.st_size};
    }
  }
  return std::nullopt;
}

// A function on its way to being sorted; small, because there may be millions.
struct ElfSymbols::SortKey {
  uint64_t vaddr = 0;
  uint32_t symbol = 0;  // in its table
  uint8_t table = 0;
  bool typed = false;
  uint8_t binding = 0;
};

std::vector<ElfSymbols::SortKey> ElfSymbols::make_sort_keys() const {
  std::vector<SortKey> keys;
  for (size_t t = 0; t < tables_.size(); ++t) {
    for (size_t i = 0; i < tables_[t].symbols.size(); ++i) {
      const Elf64_Sym& symbol = tables_[t].symbols[i];
      if (!find_code(symbol) || !has_name(tables_[t], symbol)) continue;
      keys.push_back({.vaddr = symbol.st_value,
                      .symbol = static_cast<uint32_t>(i),
                      .table = static_cast<uint8_t>(t),
                      .typed = is_typed(symbol),
                      .binding = static_cast<uint8_t>(rank_of_binding(symbol))});
    }
  }
  const auto rank = [](const SortKey& key) {
    return std::tuple(key.vaddr, !key.typed, -int{key.binding}, key.table, key.symbol);
  };
  std::ranges::sort(keys, {}, rank);
  return keys;
}

std::vector<SortedSymbol> ElfSymbols::sort_functions() const {
  std::vector<SortedSymbol> sorted;
  uint64_t typed_end = 0;  // of the typed functions so far
  for (const SortKey& key : make_sort_keys()) {
    if (!sorted.empty() && sorted.back().vaddr == key.vaddr) continue;
    if (!key.typed && key.vaddr < typed_end) continue;
    const Table& table = tables_[key.table];
    const Elf64_Sym& symbol = table.symbols[key.symbol];
    uint64_t end = 0;
    if (__builtin_add_overflow(key.vaddr, symbol.st_size, &end)) end = UINT64_MAX;
    if (key.typed) typed_end = std::max(typed_end, end);
    const std::string_view name = get_name(table, symbol, kMaxNameBytes);
    sorted.push_back({.vaddr = key.vaddr,
                      .size_bytes = symbol.st_size,
                      .name = split_version(name).name,
                      .name_offset_bytes = table.strings_offset_bytes + symbol.st_name});
  }
  return sorted;
}

}  // namespace gpuperf
