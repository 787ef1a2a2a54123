#pragma once

// Names and sizes of the element types that CUDA, cuBLAS and NCCL calls are told.

#include <cstdint>
#include <span>
#include <string_view>

#include "daemon/model/argument_plan.h"

namespace gpuperf {

// "f32", "bf16", "complex_f64", "f8_e4m3" of a cudaDataType; empty = no such type is known.
std::string_view get_data_type_name(uint16_t code);

// "f32", "f32_fast_tf32" of a cublasComputeType_t; before CUDA 11 calls gave a cudaDataType there,
// and those names are given too. Empty = no such type is known.
std::string_view get_compute_type_name(uint16_t code);

// The same as rows, for argument fields.
std::span<const CodeName> data_type_codes();
std::span<const CodeName> compute_type_codes();

// ncclDataType_t: its name, and what one element takes.
std::span<const CodeName> nccl_type_codes();
struct NcclTypeBytes {
  uint8_t code;
  uint8_t element_bytes;
};
std::span<const NcclTypeBytes> nccl_type_bytes();

}  // namespace gpuperf
