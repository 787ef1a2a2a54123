#include "daemon/session/cubin_image.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "daemon/base/demangle.h"
#include "daemon/session/line_program.h"
#include "daemon/session/session_bytes.h"

namespace gpuperf {
namespace {

using Bytes = std::span<const std::byte>;

constexpr uint16_t kMachineCuda = 190;  // EM_CUDA
constexpr std::string_view kCode = ".text.";
// Of one name; of all that are kept, so that names that overlap do not multiply an image's size.
constexpr size_t kNameBytesMax = 4'096, kTextBytesMax = size_t{4} << 20;
constexpr size_t kSymbolsMax = 65'536;

// Empty where there is nothing.
Bytes cut(Bytes bytes, uint64_t offset, uint64_t size) {
  if (offset > bytes.size() || size > bytes.size() - offset) return {};
  return bytes.subspan(offset, size);
}

// Empty also where it is longer than any name.
std::string_view get_text(Bytes texts, uint64_t offset) {
  if (offset >= texts.size()) return {};
  const auto rest = texts.subspan(offset, std::min(texts.size() - offset, kNameBytesMax));
  const void* const end = std::memchr(rest.data(), 0, rest.size());
  if (end == nullptr) return {};
  return {reinterpret_cast<const char*>(rest.data()),
          static_cast<size_t>(static_cast<const std::byte*>(end) - rest.data())};
}

template <class Entry>
Entry get_entry(Bytes table, size_t index) {
  return copy_as<Entry>(table.subspan(index * sizeof(Entry)));
}

// Sections and symbols.
class Image {
 public:
  // False = it is no cubin.
  bool open(Bytes bytes) {
    bytes_ = bytes;
    if (bytes.size() < sizeof(Elf64_Ehdr)) return false;
    const auto head = copy_as<Elf64_Ehdr>(bytes);
    if (std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
        head.e_machine != kMachineCuda || head.e_shentsize != sizeof(Elf64_Shdr)) {
      return false;
    }
    const Bytes table = cut(bytes, head.e_shoff, uint64_t{head.e_shnum} * sizeof(Elf64_Shdr));
    for (size_t i = 0; i < table.size() / sizeof(Elf64_Shdr); ++i) {
      sections_.push_back(get_entry<Elf64_Shdr>(table, i));
    }
    if (head.e_shstrndx >= sections_.size()) return false;
    names_ = get_bytes(sections_[head.e_shstrndx]);
    for (const Elf64_Shdr& section : sections_) {
      if (section.sh_type != SHT_SYMTAB || section.sh_link >= sections_.size()) continue;
      symbols_ = get_bytes(section);
      symbol_names_ = get_bytes(sections_[section.sh_link]);
    }
    return true;
  }

  Bytes find_bytes(std::string_view name) const {
    const Elf64_Shdr* const section = find(name);
    return section != nullptr ? get_bytes(*section) : Bytes{};
  }
  // Offset in the section -> symbol and addend.
  std::map<uint64_t, std::pair<uint32_t, int64_t>> read_relocations(std::string_view of) const {
    std::map<uint64_t, std::pair<uint32_t, int64_t>> found;
    const Bytes with = find_bytes(".rela" + std::string(of));
    for (size_t i = 0; i < with.size() / sizeof(Elf64_Rela); ++i) {
      const auto one = get_entry<Elf64_Rela>(with, i);
      found[one.r_offset] = {static_cast<uint32_t>(ELF64_R_SYM(one.r_info)), one.r_addend};
    }
    const Bytes without = find_bytes(".rel" + std::string(of));
    for (size_t i = 0; i < without.size() / sizeof(Elf64_Rel); ++i) {
      const auto one = get_entry<Elf64_Rel>(without, i);
      found[one.r_offset] = {static_cast<uint32_t>(ELF64_R_SYM(one.r_info)), 0};
    }
    return found;
  }

  size_t count_symbols() const {
    return std::min(symbols_.size() / sizeof(Elf64_Sym), kSymbolsMax);
  }
  Elf64_Sym get_symbol(size_t index) const { return get_entry<Elf64_Sym>(symbols_, index); }
  std::string_view get_name(const Elf64_Sym& symbol) const {
    return get_text(symbol_names_, symbol.st_name);
  }
  // Of a section with code: the kernel that it is of; else empty.
  std::string_view get_kernel(uint16_t section) const {
    if (section >= sections_.size()) return {};
    const std::string_view name = get_text(names_, sections_[section].sh_name);
    return name.starts_with(kCode) ? name.substr(kCode.size()) : std::string_view{};
  }

 private:
  Bytes get_bytes(const Elf64_Shdr& section) const {
    if (section.sh_type == SHT_NOBITS) return {};
    return cut(bytes_, section.sh_offset, section.sh_size);
  }
  const Elf64_Shdr* find(std::string_view name) const {
    const auto found = std::ranges::find_if(sections_, [&](const Elf64_Shdr& section) {
      const Bytes own = cut(names_, section.sh_name, name.size() + 1);
      return !own.empty() && std::memcmp(own.data(), name.data(), name.size()) == 0 &&
             own.back() == std::byte{0};
    });
    return found == sections_.end() ? nullptr : &*found;
  }

  Bytes bytes_;
  std::vector<Elf64_Shdr> sections_;
  Bytes names_;
  Bytes symbols_;
  Bytes symbol_names_;
};

// Gathers the rows of each kernel, with each text and place once.
class LineGatherer {
 public:
  LineGatherer(Bytes function_names, CubinLines& lines)
      : function_names_(function_names), lines_(lines) {}

  // `start`: where in its section the sequence begins.
  void add(std::string_view kernel, uint64_t start, const LineUnit& unit,
           const LineSequence& sequence) {
    const auto [known, is_new] = rows_.try_emplace(std::string(kernel));
    if (is_new && !find_room(kernel)) {
      rows_.erase(known);
      return;
    }
    std::vector<CubinLines::Row>& rows = known->second;
    std::vector<size_t> outer(sequence.rows.size());  // the row of the kernel's own code
    for (size_t i = 0; i < sequence.rows.size(); ++i) {
      const LineRow& row = sequence.rows[i];
      const size_t into = row.context;  // from 1
      outer[i] = into == 0 || into > i ? i : outer[into - 1];
      const LineRow& own = sequence.rows[outer[i]];
      rows.push_back(
          {.offset_bytes = static_cast<uint32_t>(start + row.address),
           .place = find_place({.file = find_file(unit, row.file),
                                .line = row.line,
                                .function = outer[i] == i ? CubinLines::kNone : find_function(row),
                                .outer_file = find_file(unit, own.file),
                                .outer_line = own.line})});
    }
    rows.push_back({.offset_bytes = static_cast<uint32_t>(start + sequence.end_address)});
  }

  void finish(const Image& image) {
    std::map<std::string, CubinLines::Function> functions;
    for (auto& [kernel, rows] : rows_) {
      // Of rows at one place the last counts, and an end only where nothing else begins.
      std::ranges::stable_sort(rows, {}, [](const CubinLines::Row& row) {
        return std::make_tuple(row.offset_bytes, row.place != CubinLines::kNone);
      });
      functions[kernel] = {.name = kernel,
                           .first_row = static_cast<uint32_t>(lines_.rows.size()),
                           .row_count = static_cast<uint32_t>(rows.size())};
      lines_.rows.insert(lines_.rows.end(), rows.begin(), rows.end());
    }
    // Functions that were not inlined stand in the section of a kernel that calls them.
    for (size_t i = 0; i < image.count_symbols(); ++i) {
      const Elf64_Sym symbol = image.get_symbol(i);
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_value == 0) continue;
      const auto kernel = functions.find(std::string(image.get_kernel(symbol.st_shndx)));
      const std::string name(image.get_name(symbol));
      if (kernel == functions.end() || name.empty() || functions.contains(name) ||
          !find_room(name)) {
        continue;
      }
      CubinLines::Function function = kernel->second;
      function.name = name;
      function.offset_bytes = static_cast<uint32_t>(symbol.st_value);
      functions.emplace(name, std::move(function));
    }
    for (auto& [name, function] : functions) lines_.functions.push_back(std::move(function));
  }

 private:
  // And takes it.
  bool find_room(std::string_view text) {
    if (text.size() > kTextBytesMax - text_bytes_) return false;
    text_bytes_ += text.size();
    return true;
  }
  // kNone = there is no room for it.
  uint32_t find_text(std::string_view text) {
    if (const auto found = texts_.find(text); found != texts_.end()) return found->second;
    if (!find_room(text)) return CubinLines::kNone;
    const auto number = static_cast<uint32_t>(lines_.texts.size());
    texts_.emplace(text, number);
    lines_.texts.emplace_back(text);
    return number;
  }
  uint32_t find_file(const LineUnit& unit, uint32_t file) {
    return file < unit.files.size() ? find_text(unit.files[file]) : CubinLines::kNone;
  }
  // Empty: it was inlined, and its name is not known.
  uint32_t find_function(const LineRow& row) {
    const auto [found, is_new] = functions_.try_emplace(row.function_offset);
    if (!is_new) return found->second;
    const std::string_view name = get_text(function_names_, row.function_offset);
    const bool has_room = name.size() <= kTextBytesMax - text_bytes_;
    return found->second = find_text(has_room ? demangle(name) : std::string());
  }
  uint32_t find_place(const CubinLines::Place& place) {
    const auto key =
        std::make_tuple(place.file, place.line, place.function, place.outer_file, place.outer_line);
    const auto [found, is_new] = places_.try_emplace(key, lines_.places.size());
    if (is_new) lines_.places.push_back(place);
    return found->second;
  }

  const Bytes function_names_;
  CubinLines& lines_;
  std::map<std::string, std::vector<CubinLines::Row>> rows_;  // by kernel
  std::map<std::string, uint32_t, std::less<>> texts_;
  size_t text_bytes_ = 0;
  std::map<uint64_t, uint32_t> functions_;  // by offset of the name: of `texts`
  std::map<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t, uint32_t>, uint32_t> places_;
};

}  // namespace

CubinLines read_cubin_lines(Bytes bytes, uint64_t cubin_crc) {
  constexpr std::string_view kLines = ".debug_line";
  CubinLines lines{.cubin_crc = cubin_crc};
  const auto fail = [&](LineFate fate) {
    lines.fate = fate;
    return lines;
  };
  Image image;
  if (!image.open(bytes)) return fail(LineFate::kUnreadable);
  const Bytes table = image.find_bytes(kLines);
  if (table.empty()) return fail(LineFate::kNoLines);
  const auto units = read_line_units(table, kCubinRowsMax);
  if (!units) return fail(LineFate::kUnreadable);
  const auto relocations = image.read_relocations(kLines);
  LineGatherer gatherer(image.find_bytes(".debug_str"), lines);
  for (const LineUnit& unit : *units) {
    for (const LineSequence& sequence : unit.sequences) {
      const auto relocation = relocations.find(sequence.address_at);
      if (relocation == relocations.end()) continue;
      const auto& [number, addend] = relocation->second;
      if (number >= image.count_symbols()) continue;
      const Elf64_Sym symbol = image.get_symbol(number);
      const std::string_view kernel = image.get_kernel(symbol.st_shndx);
      if (kernel.empty()) continue;
      gatherer.add(kernel, symbol.st_value + static_cast<uint64_t>(addend), unit, sequence);
    }
  }
  gatherer.finish(image);
  if (lines.functions.empty()) lines.fate = LineFate::kNoLines;
  return lines;
}

}  // namespace gpuperf
