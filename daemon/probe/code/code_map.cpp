#include "daemon/probe/code/code_map.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "daemon/probe/code/code_decoder.h"
#include "daemon/probe/elf/elf_symbols.h"

namespace gpuperf {
namespace {

constexpr std::string_view kPltSections[] = {".plt", ".plt.sec", ".plt.got", ".iplt"};
constexpr size_t kRelocationsAtOnce = 4096;

// GCC and LLVM name what they split off a function after it: foo.cold, foo.cold.1, foo.part.0.
bool is_split_off(std::string_view name) {
  return name.find(".cold") != std::string_view::npos ||
         name.find(".part.") != std::string_view::npos;
}

}  // namespace

CodeMap::CodeMap(int fd, CodeFile file) : fd_(fd), file_(std::move(file)) {
  for (const std::string_view name : kPltSections) {
    if (const NamedSection* section = file_.find_section(name)) plts_.push_back(*section);
  }
}

Result<CodeMap> CodeMap::open(int fd) {
  ASSIGN_OR_RETURN(CodeFile file, CodeFile::open(fd));
  return CodeMap(fd, std::move(file));
}

Status CodeMap::load_function_starts() {
  if (function_starts_) return absl::OkStatus();
  Result<ElfSymbols> symbols = ElfSymbols::load(fd_, ElfSymbols::Tables::kBoth);
  // What the file exports is often all there is, and enough.
  if (!symbols.ok()) symbols = ElfSymbols::load(fd_, ElfSymbols::Tables::kDynamic);
  if (!symbols.ok() && !absl::IsNotFound(symbols.status())) return symbols.status();
  std::vector<uint64_t> starts;
  if (symbols.ok()) {
    for (const SortedSymbol& symbol : symbols->sort_functions()) {
      if (!is_split_off(symbol.name)) starts.push_back(symbol.vaddr);
    }
  }
  starts.shrink_to_fit();
  function_starts_ = std::move(starts);
  return absl::OkStatus();
}

Result<bool> CodeMap::begins_function(uint64_t vaddr) {
  RETURN_IF_ERROR(load_function_starts());
  return std::ranges::binary_search(*function_starts_, vaddr);
}

bool CodeMap::is_plt(uint64_t vaddr) const {
  return std::ranges::any_of(plts_,
                             [&](const NamedSection& section) { return section.contains(vaddr); });
}

Status CodeMap::take_relocations(const NamedSection& section, std::vector<Slot>& slots) {
  const NamedSection* got = file_.find_section(".got");
  const NamedSection* plt_got = file_.find_section(".got.plt");
  const uint64_t symbols_offset =
      section.link < file_.sections().size() ? file_.sections()[section.link].offset_bytes : 0;
  std::vector<Elf64_Rela> rows;
  const uint64_t count = section.size_bytes / sizeof(Elf64_Rela);
  for (uint64_t done = 0; done < count; done += rows.size()) {
    rows.resize(std::min<uint64_t>(count - done, kRelocationsAtOnce));
    RETURN_IF_ERROR(file_.elf().read(section.offset_bytes + done * sizeof(Elf64_Rela),
                                     std::as_writable_bytes(std::span(rows))));
    for (const Elf64_Rela& row : rows) {
      const bool in_got = (got != nullptr && got->contains(row.r_offset)) ||
                          (plt_got != nullptr && plt_got->contains(row.r_offset));
      const auto type = ELF64_R_TYPE(row.r_info);
      const bool by_symbol = type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT;
      if (!in_got || (!by_symbol && type != R_X86_64_RELATIVE)) continue;
      if (slots.size() == kMaxSlots) {
        return absl::ResourceExhaustedError("too large: its global offset table");
      }
      const uint64_t symbol =
          by_symbol ? symbols_offset + ELF64_R_SYM(row.r_info) * sizeof(Elf64_Sym) : 0;
      slots.push_back({.vaddr = row.r_offset,
                       .symbol_offset_bytes = symbol,
                       .target = static_cast<uint64_t>(row.r_addend)});
    }
  }
  return absl::OkStatus();
}

Status CodeMap::load_slots() {
  if (slots_) return absl::OkStatus();
  std::vector<Slot> slots;
  uint64_t budget_bytes = kMaxRelocationBytes;
  for (const NamedSection& section : file_.sections()) {
    if (section.type != SHT_RELA) continue;
    if (section.size_bytes > budget_bytes) {
      return absl::ResourceExhaustedError("too large: its relocations");
    }
    budget_bytes -= section.size_bytes;
    RETURN_IF_ERROR(take_relocations(section, slots));
  }
  std::ranges::sort(slots, {}, &Slot::vaddr);
  slots.shrink_to_fit();
  slots_ = std::move(slots);
  return absl::OkStatus();
}

Result<std::optional<uint64_t>> CodeMap::find_slot_target(uint64_t slot_vaddr) {
  RETURN_IF_ERROR(load_slots());
  const auto slot = std::ranges::lower_bound(*slots_, slot_vaddr, {}, &Slot::vaddr);
  if (slot == slots_->end() || slot->vaddr != slot_vaddr) return std::nullopt;
  uint64_t target = slot->target;
  if (slot->symbol_offset_bytes != 0) {
    Elf64_Sym symbol{};
    RETURN_IF_ERROR(
        file_.elf().read(slot->symbol_offset_bytes, std::as_writable_bytes(std::span(&symbol, 1))));
    // An indirect function's address is not where its calls go.
    if (ELF64_ST_TYPE(symbol.st_info) == STT_GNU_IFUNC || symbol.st_shndx == SHN_UNDEF) {
      return std::nullopt;
    }
    target = symbol.st_value;
  }
  if (!file_.is_code(target)) return std::nullopt;
  return target;
}

// An entry is, after an endbr64 or not, a jump through its slot; the older kind goes on with the
// code that binds it lazily.
Result<std::optional<uint64_t>> CodeMap::find_plt_target(uint64_t vaddr) {
  ASSIGN_OR_RETURN(const std::vector<std::byte> code,
                   file_.read_up_to(vaddr, 2 * kMaxInstructionBytes));
  std::span<const std::byte> rest(code);
  while (const auto instruction = decode_instruction(rest, vaddr)) {
    if (instruction->form == Form::kJumpMemory) {
      if (instruction->base >= 0 || instruction->index >= 0) return std::nullopt;
      return find_slot_target(static_cast<uint64_t>(instruction->value));
    }
    if (!instruction->is_endbr64) return std::nullopt;
    rest = rest.subspan(instruction->length_bytes);
    vaddr += instruction->length_bytes;
  }
  return std::nullopt;
}

}  // namespace gpuperf
