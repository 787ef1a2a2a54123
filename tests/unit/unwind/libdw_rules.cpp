#include "tests/unit/unwind/libdw_rules.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <gelf.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <utility>

#include "daemon/probe/code/code_file.h"
#include "daemon/unwind/frame_rules.h"
#include "tests/unit/unwind/rule_text.h"

namespace gpuperf {
namespace {

constexpr int kReturnAddress = 16;
constexpr size_t kKeptDifferences = 10;

struct Release {
  void operator()(Elf* elf) const { elf_end(elf); }
  void operator()(Dwarf_CFI* cfi) const { dwarf_cfi_end(cfi); }
  void operator()(Dwarf_Frame* frame) const { std::free(frame); }
};
using Frame = std::unique_ptr<Dwarf_Frame, Release>;

struct Operations {
  const Dwarf_Op* first = nullptr;
  size_t count = 0;
  std::array<Dwarf_Op, 3> store{};
  const Dwarf_Op& at(size_t index) const { return first[index]; }
  int64_t number(size_t index) const { return static_cast<int64_t>(first[index].number); }
  bool is(std::initializer_list<int> atoms) const {
    size_t index = 0;
    for (const int atom : atoms) {
      if (index >= count || first[index++].atom != atom) return false;
    }
    return index == count;
  }
};

// A rule, or why there is none.
struct Expected {
  gpuperf_unwind_rule rule{};
  std::string reason;
};

Expected make_unknown(std::string reason) { return {.reason = std::move(reason)}; }

std::string describe_atoms(const Operations& operations) {
  std::string text;
  for (size_t i = 0; i < operations.count; ++i) {
    text += " " + std::to_string(operations.at(i).atom);
  }
  return text;
}

// libdw puts the CFA first, then adds; "undefined" has no operations but their place, "same value"
// neither.
bool is_undefined(const Operations& operations) {
  return operations.count == 0 && operations.first != nullptr;
}
bool is_at_cfa(const Operations& operations) {
  return operations.is({DW_OP_call_frame_cfa}) ||
         operations.is({DW_OP_call_frame_cfa, DW_OP_plus_uconst});
}
int64_t offset_from_cfa(const Operations& operations) {
  return operations.count == 2 ? operations.number(1) : 0;
}

void read_register(Dwarf_Frame* frame, int number, Operations& out) {
  Dwarf_Op* first = nullptr;
  if (dwarf_frame_register(frame, number, out.store.data(), &first, &out.count) != 0) {
    throw std::runtime_error(dwarf_errmsg(-1));
  }
  out.first = first;
}

bool is_plt(const Operations& cfa) {
  return cfa.is({DW_OP_breg7, DW_OP_breg16, DW_OP_lit15, DW_OP_and, DW_OP_lit11, DW_OP_ge,
                 DW_OP_lit3, DW_OP_shl, DW_OP_plus}) ||
         cfa.is({DW_OP_breg7, DW_OP_breg16, DW_OP_lit15, DW_OP_and, DW_OP_lit10, DW_OP_ge,
                 DW_OP_lit3, DW_OP_shl, DW_OP_plus}) ||
         cfa.is({DW_OP_breg7, DW_OP_breg16, DW_OP_lit15, DW_OP_and, DW_OP_lit9, DW_OP_ge,
                 DW_OP_lit3, DW_OP_shl, DW_OP_plus});
}

Expected make_expected(Dwarf_Frame* frame, bool is_signal) {
  Operations cfa;
  Dwarf_Op* cfa_first = nullptr;
  if (dwarf_frame_cfa(frame, &cfa_first, &cfa.count) != 0) return make_unknown("no CFA");
  cfa.first = cfa_first;
  Operations bp;
  Operations pc;
  read_register(frame, kBp, bp);
  read_register(frame, kReturnAddress, pc);
  if (is_undefined(pc)) return {.rule = {.kind = GPUPERF_UNWIND_END}};
  if (is_signal) {
    const bool known = cfa.is({DW_OP_breg7, DW_OP_deref}) && cfa.number(0) == 160 &&
                       bp.is({DW_OP_call_frame_cfa, DW_OP_breg7}) && bp.number(1) == 120 &&
                       pc.is({DW_OP_call_frame_cfa, DW_OP_breg7}) && pc.number(1) == 168;
    return known ? Expected{.rule = {.kind = GPUPERF_UNWIND_SIGNAL}}
                 : make_unknown("signal frame of another form");
  }
  if (!is_at_cfa(pc)) return make_unknown("return address" + describe_atoms(pc));
  if (offset_from_cfa(pc) != -8) return make_unknown("return address elsewhere from CFA");
  Expected expected;
  if (cfa.is({DW_OP_bregx})) {
    const auto number = static_cast<int>(cfa.at(0).number);
    if (number != kSp && number != kBp) return make_unknown("CFA by r" + std::to_string(number));
    expected.rule.kind = number == kSp ? GPUPERF_UNWIND_SP : GPUPERF_UNWIND_BP;
    expected.rule.cfa_offset_bytes = static_cast<int32_t>(cfa.at(0).number2);
  } else if (cfa.is({DW_OP_breg6, DW_OP_deref})) {
    expected.rule.kind = GPUPERF_UNWIND_BP_MEMORY;
    expected.rule.cfa_offset_bytes = static_cast<int32_t>(cfa.number(0));
  } else if (is_plt(cfa)) {
    expected.rule.kind = GPUPERF_UNWIND_PLT;
    expected.rule.cfa_offset_bytes = cfa.at(4).atom - DW_OP_lit0;
  } else {
    return make_unknown("CFA" + describe_atoms(cfa));
  }
  if (is_undefined(bp)) return make_unknown("bp undefined");
  if (bp.is({DW_OP_call_frame_cfa, DW_OP_breg6})) {
    expected.rule.bp_at = GPUPERF_UNWIND_BP_AT_BP;
    expected.rule.bp_offset_bytes = static_cast<int16_t>(bp.number(1));
  } else if (is_at_cfa(bp) && offset_from_cfa(bp) != 0) {
    expected.rule.bp_offset_bytes = static_cast<int16_t>(offset_from_cfa(bp));
  } else if (bp.count != 0) {
    return make_unknown("bp" + describe_atoms(bp));
  }
  return expected;
}

class Comparer {
 public:
  Comparer(const CodeFile& file, Dwarf_CFI* cfi) : file_(file), cfi_(cfi) {}

  void compare(uint64_t begin, uint64_t end) {
    for (uint64_t vaddr = begin; vaddr < end;) vaddr = compare_at(vaddr);
  }
  const RuleComparison& found() const { return found_; }

 private:
  // The address at which another row, or a gap's next byte, begins.
  uint64_t compare_at(uint64_t vaddr) {
    Dwarf_Frame* made = nullptr;
    const bool described = dwarf_cfi_addrframe(cfi_, vaddr, &made) == 0;
    const Frame frame(made);
    if (!described) {
      ++found_.gaps;
      expect(vaddr, {.rule = kGuessRule, .reason = dwarf_errmsg(-1)});
      return vaddr + 1;
    }
    Dwarf_Addr begin = 0;
    Dwarf_Addr end = 0;
    bool is_signal = false;
    (void)dwarf_frame_info(frame.get(), &begin, &end, &is_signal);
    const Expected expected = make_expected(frame.get(), is_signal);
    ++found_.rows;
    ++found_.kinds[rule_text::name_kind(expected.rule.kind)];
    if (!expected.reason.empty()) ++found_.unknown_reasons[expected.reason];
    expect(vaddr, expected);
    if (end <= vaddr) throw std::runtime_error("libdw's row ends before its address");
    expect(end - 1, expected);
    return end;
  }

  void expect(uint64_t vaddr, const Expected& expected) {
    const auto rule = find_unwind_rule(file_, vaddr);
    if (rule.ok() && *rule == expected.rule) return;
    if (++found_.difference_count > kKeptDifferences) return;
    char address[32];
    std::snprintf(address, sizeof address, "%#lx", static_cast<unsigned long>(vaddr));
    found_.differences.push_back(
        std::string(address) + ": " +
        (rule.ok() ? rule_text::describe(*rule) : rule.status().ToString()) +
        ", libdw: " + rule_text::describe(expected.rule) + "; " + expected.reason);
  }

  const CodeFile& file_;
  Dwarf_CFI* cfi_;
  RuleComparison found_;
};

}  // namespace

RuleComparison compare_with_libdw(int fd) {
  (void)elf_version(EV_CURRENT);
  const std::unique_ptr<Elf, Release> elf(elf_begin(fd, ELF_C_READ, nullptr));
  const std::unique_ptr<Dwarf_CFI, Release> cfi(dwarf_getcfi_elf(elf.get()));
  const auto file = CodeFile::open(fd);
  if (!cfi || !file.ok()) {
    throw std::runtime_error(std::string("no unwind information; ") + dwarf_errmsg(-1));
  }
  // In a CIE libdw refuses DW_CFA_restore, as linkers of NVIDIA's libraries have put there: what it
  // then calls "invalid CFI section" counts as a difference.
  Comparer comparer(*file, cfi.get());
  for (Elf_Scn* section = nullptr; (section = elf_nextscn(elf.get(), section)) != nullptr;) {
    GElf_Shdr header{};
    if (gelf_getshdr(section, &header) == nullptr || (header.sh_flags & SHF_EXECINSTR) == 0) {
      continue;
    }
    comparer.compare(header.sh_addr, header.sh_addr + header.sh_size);
  }
  return comparer.found();
}

}  // namespace gpuperf
