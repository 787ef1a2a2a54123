#pragma once

// What the installed headers say about the functions that have a built-in argument decoder.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace gpuperf {

enum class ParameterKind { kPointer, kEnum, kSigned, kUnsigned, kFloat, kStruct };

struct Parameter {
  ParameterKind kind;
  size_t size_bytes;
  int source;        // as in gpuperf_capture; -1 = in a floating-point register
  std::string name;  // as the header spells it
};

// A field of a struct that a decoder reads through a pointer. `name` as the decoder shows it;
// "grid 2" is the second value of the group.
struct MemoryField {
  std::string symbol;
  std::string name;
  size_t offset_bytes;
  size_t size_bytes;
};

// Symbol -> its parameters, each placed as the System V ABI places it. Empty without headers.
std::map<std::string, std::vector<Parameter>> read_signatures();
std::vector<MemoryField> memory_fields();

// An enumerator, and what it is shown as in a field of a function's decoder.
struct NamedValue {
  std::string symbol;
  std::string field;
  int64_t code;
  std::string name;
};
std::vector<NamedValue> named_codes();

// Empty when the headers are installed.
std::string why_no_headers();

}  // namespace gpuperf
