#pragma once

// Rules as tests compare and print them.

#include <array>
#include <cstdint>
#include <ostream>
#include <string>

#include "bpf/stack_records.h"

namespace gpuperf::rule_text {

inline const char* name_kind(uint8_t kind) {
  constexpr std::array<const char*, GPUPERF_UNWIND_KINDS> kNames = {
      "unknown", "sp", "bp", "bp memory", "plt", "signal", "end", "guess"};
  return kind < kNames.size() ? kNames[kind] : "?";
}

inline std::string describe(const gpuperf_unwind_rule& rule) {
  return std::string(name_kind(rule.kind)) + ", cfa " + std::to_string(rule.cfa_offset_bytes) +
         ", bp " + std::to_string(rule.bp_offset_bytes) +
         (rule.bp_at == GPUPERF_UNWIND_BP_AT_BP ? " at bp" : "");
}

}  // namespace gpuperf::rule_text

// Where nothing is known of the code.
constexpr gpuperf_unwind_rule kGuess{.kind = GPUPERF_UNWIND_GUESS, .bp_offset_bytes = -16};

// At global scope, as the type is: found by its arguments.
inline bool operator==(const gpuperf_unwind_rule& a, const gpuperf_unwind_rule& b) {
  return a.kind == b.kind && a.bp_at == b.bp_at && a.bp_offset_bytes == b.bp_offset_bytes &&
         a.cfa_offset_bytes == b.cfa_offset_bytes;
}
inline void PrintTo(const gpuperf_unwind_rule& rule, std::ostream* out) {
  *out << gpuperf::rule_text::describe(rule);
}
