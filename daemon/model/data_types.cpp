#include "daemon/model/data_types.h"

#include <algorithm>

namespace gpuperf {
namespace {

// cudaDataType_t of library_types.h, CUDA 13.0. Ordered by code.
constexpr CodeName kDataTypes[] = {
    {0, "f32"},         {1, "f64"},          {2, "f16"},         {3, "i8"},
    {4, "complex_f32"}, {5, "complex_f64"},  {6, "complex_f16"}, {7, "complex_i8"},
    {8, "u8"},          {9, "complex_u8"},   {10, "i32"},        {11, "complex_i32"},
    {12, "u32"},        {13, "complex_u32"}, {14, "bf16"},       {15, "complex_bf16"},
    {16, "i4"},         {17, "complex_i4"},  {18, "u4"},         {19, "complex_u4"},
    {20, "i16"},        {21, "complex_i16"}, {22, "u16"},        {23, "complex_u16"},
    {24, "i64"},        {25, "complex_i64"}, {26, "u64"},        {27, "complex_u64"},
    {28, "f8_e4m3"},    {29, "f8_e5m2"},     {30, "f8_ue8m0"},   {31, "f6_e2m3"},
    {32, "f6_e3m2"},    {33, "f4_e2m1"},
};

// cublasComputeType_t of cublas_api.h, CUDA 13.0, behind the types of cudaDataType_t that took its
// place before CUDA 11.
constexpr CodeName kComputeTypes[] = {
    {0, "f32"},
    {1, "f64"},
    {2, "f16"},
    {4, "complex_f32"},
    {5, "complex_f64"},
    {10, "i32"},
    {64, "f16"},
    {65, "f16_pedantic"},
    {68, "f32"},
    {69, "f32_pedantic"},
    {70, "f64"},
    {71, "f64_pedantic"},
    {72, "i32"},
    {73, "i32_pedantic"},
    {74, "f32_fast_f16"},
    {75, "f32_fast_bf16"},
    {77, "f32_fast_tf32"},
    {78, "f32_emulated_bf16x9"},
    {79, "f64_emulated_fixed_point"},
};

// ncclDataType_t of nccl.h, NCCL 2.28.
constexpr CodeName kNcclTypes[] = {
    {0, "i8"},  {1, "u8"},  {2, "i32"}, {3, "u32"},  {4, "i64"},      {5, "u64"},
    {6, "f16"}, {7, "f32"}, {8, "f64"}, {9, "bf16"}, {10, "f8_e4m3"}, {11, "f8_e5m2"},
};
constexpr NcclTypeBytes kNcclTypeBytes[] = {
    {0, 1}, {1, 1}, {2, 4}, {3, 4}, {4, 8},  {5, 8},
    {6, 2}, {7, 4}, {8, 8}, {9, 2}, {10, 1}, {11, 1},
};

std::string_view find_name(std::span<const CodeName> names, int64_t code) {
  const auto row = std::ranges::find(names, code, &CodeName::code);
  return row == names.end() ? std::string_view{} : row->name;
}

}  // namespace

std::string_view get_data_type_name(uint16_t code) { return find_name(kDataTypes, code); }
std::string_view get_compute_type_name(uint16_t code) { return find_name(kComputeTypes, code); }
std::span<const CodeName> data_type_codes() { return kDataTypes; }
std::span<const CodeName> compute_type_codes() { return kComputeTypes; }
std::span<const CodeName> nccl_type_codes() { return kNcclTypes; }
std::span<const NcclTypeBytes> nccl_type_bytes() { return kNcclTypeBytes; }

}  // namespace gpuperf
