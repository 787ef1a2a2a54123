#pragma once

// What elfutils' libdw says of every row of a file's .eh_frame, against find_unwind_rule.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace gpuperf {

// Registers by their number in DWARF.
constexpr int kBp = 6;
constexpr int kSp = 7;

struct RuleComparison {
  uint64_t rows = 0;                                // asked at their first and last address
  uint64_t gaps = 0;                                // addresses of code without description
  std::map<std::string, uint64_t> kinds;            // rows by the kind found
  std::map<std::string, uint64_t> unknown_reasons;  // by what libdw says of rows of unknown kind
  uint64_t difference_count = 0;
  std::vector<std::string> differences;  // the first of them, as text
};

// Compares all executable sections of an ELF file. Throws where libelf or libdw cannot begin.
RuleComparison compare_with_libdw(int fd);

}  // namespace gpuperf
