#pragma once

// How the rows of the built-in argument decoders are written. Private to argument_decoders and its
// tables.
//
// An argument is named by its source: 0 to 5 the integer registers in order, from 6 on the stack in
// units of 8 bytes. A struct passed by value takes two of them up to 16 bytes, and lies on the
// stack when it is larger (System V ABI). tests/unit/probe compares every source, size and offset
// with the headers.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/model/argument_plan.h"

namespace gpuperf {

// What a kept value is for, beside being shown.
enum class ValueUse {
  kNone,
  kByteFactor,    // bytes of the call = product of these
  kElementType,   // an ncclDataType_t: times the bytes of one element
  kCopyKind,      // a cudaMemcpyKind: direction of the bytes
  kHandle,        // address where the call leaves a handle
  kHandleName,    // address of that handle's name
  kHandleSource,  // the handle whose name it takes over
  kResult,        // address where the call leaves what it made
};

struct FieldRow {
  ArgumentField field;
  ValueUse use = ValueUse::kNone;
};
using FieldRows = std::vector<FieldRow>;

struct DecoderRow {
  std::vector<std::string_view> symbols;
  FieldRows fields;
  uint8_t byte_slot = GPUPERF_BYTES_PLAIN;  // of the bytes, when no value is a copy kind
  uint8_t element_bytes = 1;
  uint8_t shape_dimensions = 0;  // as in gpuperf_plan
  std::optional<std::array<uint16_t, 4>> shape_types{};
  uint8_t shape_swap = 0;
  CallReport report = CallReport::kNone;
};

// Fields by type. `name` is what is shown; empty continues the field before.
FieldRow make_u32(std::string_view name, uint8_t source);
FieldRow make_u64(std::string_view name, uint8_t source);
FieldRow make_i32(std::string_view name, uint8_t source);
FieldRow make_i64(std::string_view name, uint8_t source);
FieldRow make_pointer(std::string_view name, uint8_t source);
FieldRow make_code(std::string_view name, uint8_t source, std::span<const CodeName> codes);
FieldRow make_stream(uint8_t source);
FieldRow make_bytes(uint8_t source);  // size_t, a factor of the call's bytes
FieldRow make_kernel_function(std::string_view name, uint8_t source);
FieldRow make_kernel_handle(std::string_view name, uint8_t source);
FieldRow as_handle_source(FieldRow row);
FieldRow make_string(std::string_view name, uint8_t source);  // a char*; the first blob
FieldRow make_hidden_pointer(uint8_t source, ValueUse use);
// Always zero: the top bit of a pointer. Keeps a place among the values that must stay empty.
FieldRow make_nothing(uint8_t pointer_source);

// The field as it lies in memory: each offset but the last leads on to the next pointer.
FieldRow in_memory(FieldRow row, std::initializer_list<int32_t> offsets_bytes);
FieldRow as_factor(FieldRow row);
// The upper half of a register that holds two 32-bit fields of a struct.
FieldRow in_upper_half(FieldRow row);

std::vector<DecoderRow> make_runtime_rows();
std::vector<DecoderRow> make_driver_rows();
std::vector<DecoderRow> make_cublas_rows();
std::vector<DecoderRow> make_nccl_rows();

}  // namespace gpuperf
