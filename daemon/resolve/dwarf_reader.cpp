#include "daemon/resolve/dwarf_reader.h"

#include <dwarf.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

namespace gpuperf {
namespace {

// Against damaged files that never end: far beyond what a compiler makes of one program, and what
// the worker's memory and time allow.
constexpr size_t kMaxRanges = 4'000'000;
constexpr size_t kMaxEntries = 16'000'000;
constexpr size_t kMaxNamespaces = 64;  // inside one another, classes included
constexpr int kMaxReferences = 8;      // from an inlined function to its definition: 2 or 3
constexpr int kMaxOverlaps = 16;       // of ranges, which sound files do not have

Status make_dwarf_status(std::string_view action) {
  return absl::DataLossError(std::string(action) + ": " + dwarf_errmsg(-1));
}

std::string copy_text(const char* text) {
  if (text == nullptr) return {};
  return std::string(text, ::strnlen(text, DwarfReader::kMaxTextBytes));
}

std::string get_text(Dwarf_Die& entry, unsigned name) {
  Dwarf_Attribute attribute;
  if (dwarf_attr(&entry, name, &attribute) == nullptr) return {};
  return copy_text(dwarf_formstring(&attribute));
}

// The entry that one of an inlined function, or of a definition outside its class, refers to.
bool follow_reference(Dwarf_Die& entry) {
  for (const unsigned name : {DW_AT_abstract_origin, DW_AT_specification}) {
    Dwarf_Attribute attribute;
    if (dwarf_attr(&entry, name, &attribute) == nullptr) continue;
    Dwarf_Die target;
    if (dwarf_formref_die(&attribute, &target) == nullptr) return false;
    entry = target;
    return true;
  }
  return false;
}

uint64_t get_number(Dwarf_Die& entry, unsigned name) {
  Dwarf_Attribute attribute;
  Dwarf_Word value = 0;
  if (dwarf_attr(&entry, name, &attribute) == nullptr) return 0;
  return dwarf_formudata(&attribute, &value) == 0 ? value : 0;
}

uint64_t get_begin(Dwarf_Die& function) {
  Dwarf_Addr begin = 0;
  return dwarf_entrypc(&function, &begin) == 0 ? begin : 0;
}

void set_place_of_code(Dwarf_Die& unit, uint64_t vaddr, SourceFrame& frame) {
  Dwarf_Line* const row = dwarf_getsrc_die(&unit, vaddr);
  int line = 0;
  if (row == nullptr || dwarf_lineno(row, &line) != 0 || line <= 0) return;
  frame.file = copy_text(dwarf_linesrc(row, nullptr, nullptr));
  frame.line = static_cast<uint32_t>(line);
}

// Where `inlined` was called, which is the place in the function around it.
void set_place_of_call(Dwarf_Die& unit, Dwarf_Die& inlined, SourceFrame& caller) {
  Dwarf_Files* files = nullptr;
  size_t count = 0;
  const uint64_t file = get_number(inlined, DW_AT_call_file);
  const uint64_t line = get_number(inlined, DW_AT_call_line);
  if (line == 0 || line > UINT32_MAX) return;
  if (dwarf_getsrcfiles(&unit, &files, &count) != 0 || file >= count) return;
  caller.file = copy_text(dwarf_filesrc(files, file, nullptr, nullptr));
  caller.line = static_cast<uint32_t>(line);
}

// The next smaller piece of `scope` that has the code: a block, or an inlined function.
std::optional<Dwarf_Die> find_piece(Dwarf_Die& scope, uint64_t vaddr) {
  Dwarf_Die piece;
  if (dwarf_child(&scope, &piece) != 0) return std::nullopt;
  for (size_t count = 0; count < kMaxEntries; ++count) {
    switch (dwarf_tag(&piece)) {
      case DW_TAG_inlined_subroutine:
      case DW_TAG_lexical_block:
      case DW_TAG_try_block:
      case DW_TAG_catch_block:
        if (dwarf_haspc(&piece, vaddr) == 1) return piece;
        break;
      default:
        break;
    }
    if (dwarf_siblingof(&piece, &piece) != 0) break;
  }
  return std::nullopt;
}

// Whether functions may stand inside an entry. Not inside functions: theirs stand beside them.
bool holds_functions(int tag) {
  switch (tag) {
    case DW_TAG_namespace:
    case DW_TAG_module:
    case DW_TAG_class_type:
    case DW_TAG_structure_type:
    case DW_TAG_union_type:
      return true;
    default:
      return false;
  }
}

}  // namespace

Result<std::unique_ptr<DwarfReader>> DwarfReader::open(int fd, int alternate_fd) {
  (void)elf_version(EV_CURRENT);  // fails for versions from the future only
  std::unique_ptr<DwarfReader> reader(new DwarfReader);
  const auto begin = [](int file, auto& elf, auto& dwarf) {
    elf.reset(elf_begin(file, ELF_C_READ_MMAP, nullptr));
    // An archive, too, would be taken.
    if (elf == nullptr || elf_kind(elf.get()) != ELF_K_ELF) return false;
    dwarf.reset(dwarf_begin_elf(elf.get(), DWARF_C_READ, nullptr));
    return dwarf != nullptr;
  };
  if (!begin(fd, reader->elf_, reader->dwarf_)) return make_dwarf_status("open DWARF");
  if (alternate_fd >= 0 && begin(alternate_fd, reader->alternate_elf_, reader->alternate_)) {
    dwarf_setalt(reader->dwarf_.get(), reader->alternate_.get());
  }
  reader->index_units();
  return reader;
}

DwarfReader::~DwarfReader() = default;

void DwarfReader::add_ranges(Dwarf_Die& entry, Ranges& ranges) {
  Dwarf_Addr base = 0;
  Dwarf_Addr begin = 0;
  Dwarf_Addr end = 0;
  ptrdiff_t place = 0;
  while (ranges.size() < kMaxRanges &&
         (place = dwarf_ranges(&entry, place, &base, &begin, &end)) > 0) {
    // Functions that the linker left out begin at 0.
    if (begin == 0 || begin >= end) continue;
    ranges.push_back({.begin_vaddr = begin, .end_vaddr = end, .entry = dwarf_dieoffset(&entry)});
  }
}

const DwarfReader::Range* DwarfReader::find_range(const Ranges& ranges, uint64_t vaddr) {
  auto range = std::ranges::upper_bound(ranges, vaddr, {}, &Range::begin_vaddr);
  for (int i = 0; i < kMaxOverlaps && range != ranges.begin(); ++i) {
    --range;
    if (vaddr < range->end_vaddr) return &*range;
  }
  return nullptr;
}

void DwarfReader::index_units() {
  Dwarf_CU* unit = nullptr;
  Dwarf_Die entry;
  uint8_t type = 0;
  while (units_.size() < kMaxRanges &&
         dwarf_get_units(dwarf_.get(), unit, &unit, nullptr, &type, &entry, nullptr) == 0) {
    if (type == DW_UT_compile || type == DW_UT_skeleton) add_ranges(entry, units_);
  }
  std::ranges::sort(units_, {}, &Range::begin_vaddr);
}

// Walks namespaces and classes without recursion: how deep they are is the file's word.
const DwarfReader::UnitIndex& DwarfReader::index_functions(Dwarf_Die& unit) {
  const auto [known, is_new] = indices_.try_emplace(dwarf_dieoffset(&unit));
  UnitIndex& index = known->second;
  struct Level {
    Dwarf_Die next;
    Dwarf_Off around = 0;  // the entry that holds this level; 0 = the unit
    bool is_at_end = false;
  };
  std::vector<Level> levels(1);
  if (!is_new || dwarf_child(&unit, &levels.back().next) != 0) return index;
  for (size_t count = 0; !levels.empty() && count < kMaxEntries; ++count) {
    Level& level = levels.back();
    if (level.is_at_end) {
      levels.pop_back();
      continue;
    }
    Dwarf_Die entry = level.next;
    level.is_at_end = dwarf_siblingof(&entry, &level.next) != 0;
    const int tag = dwarf_tag(&entry);
    if (tag != DW_TAG_subprogram && !holds_functions(tag)) continue;
    const Dwarf_Off offset = dwarf_dieoffset(&entry);
    if (level.around != 0) index.enclosing.emplace(offset, level.around);
    if (tag == DW_TAG_subprogram) {
      add_ranges(entry, index.functions);
    } else if (Dwarf_Die child;
               levels.size() < kMaxNamespaces && dwarf_child(&entry, &child) == 0) {
      levels.push_back({.next = child, .around = offset});
    }
  }
  std::ranges::sort(index.functions, {}, &Range::begin_vaddr);
  return index;
}

// "space::Class::" of a function in them; "" of others.
std::string DwarfReader::get_scope_name(const UnitIndex& index, Dwarf_Off entry) {
  std::string name;
  for (size_t depth = 0; depth < kMaxNamespaces; ++depth) {
    const auto around = index.enclosing.find(entry);
    Dwarf_Die scope;
    if (around == index.enclosing.end()) break;
    entry = around->second;
    if (dwarf_offdie(dwarf_.get(), entry, &scope) == nullptr) break;
    const std::string own = get_text(scope, DW_AT_name);
    const char* const unnamed =
        dwarf_tag(&scope) == DW_TAG_namespace ? "(anonymous namespace)" : "{unnamed type}";
    name.insert(0, (own.empty() ? unnamed : own) + "::");
  }
  return name;
}

std::string DwarfReader::get_function_name(const UnitIndex& index, const Dwarf_Die& unit,
                                           Dwarf_Die function) {
  std::string name;
  for (int hops = 0; hops < kMaxReferences; ++hops) {
    for (const unsigned attribute : {DW_AT_linkage_name, DW_AT_MIPS_linkage_name}) {
      std::string linkage_name = get_text(function, attribute);
      if (!linkage_name.empty()) return linkage_name;
    }
    if (name.empty()) name = get_text(function, DW_AT_name);
    if (!follow_reference(function)) break;
  }
  // A function local to its file has no linkage name. The last reference led into its scope.
  if (name.empty() || function.cu != unit.cu) return name;
  return (get_scope_name(index, dwarf_dieoffset(&function)) + name).substr(0, kMaxTextBytes);
}

std::vector<SourceFrame> DwarfReader::list_frames(const UnitIndex& index, Dwarf_Die& unit,
                                                  Dwarf_Die& function, uint64_t vaddr) {
  std::vector<Dwarf_Die> scopes{function};  // outermost first
  Dwarf_Die scope = function;
  for (size_t depth = 0; depth < 2 * kMaxDepth && scopes.size() < kMaxDepth; ++depth) {
    const std::optional<Dwarf_Die> piece = find_piece(scope, vaddr);
    if (!piece) break;
    scope = *piece;
    if (dwarf_tag(&scope) == DW_TAG_inlined_subroutine) scopes.push_back(scope);
  }
  std::vector<SourceFrame> frames(scopes.size());
  set_place_of_code(unit, vaddr, frames.front());
  for (size_t i = 0; i < frames.size(); ++i) {
    Dwarf_Die& own = scopes[scopes.size() - 1 - i];
    frames[i].symbol = get_function_name(index, unit, own);
    if (i + 1 < frames.size()) set_place_of_call(unit, own, frames[i + 1]);
  }
  frames.back().begin_vaddr = get_begin(function);
  return frames;
}

std::vector<SourceFrame> DwarfReader::find_frames(uint64_t vaddr) {
  const Range* const unit_range = find_range(units_, vaddr);
  Dwarf_Die unit;
  if (unit_range == nullptr) return {};
  if (dwarf_offdie(dwarf_.get(), unit_range->entry, &unit) == nullptr) return {};
  const UnitIndex& index = index_functions(unit);
  const Range* const function_range = find_range(index.functions, vaddr);
  Dwarf_Die function;
  if (function_range != nullptr &&
      dwarf_offdie(dwarf_.get(), function_range->entry, &function) != nullptr) {
    return list_frames(index, unit, function, vaddr);
  }
  std::vector<SourceFrame> place(1);  // of assembly, which has lines and no functions
  set_place_of_code(unit, vaddr, place.front());
  return place;
}

}  // namespace gpuperf
