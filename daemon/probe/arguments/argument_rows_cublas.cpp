// cuBLAS and cuBLASLt: signatures of cublas_api.h and cublasLt.h, CUDA 13.0.

#include "daemon/model/data_types.h"
#include "daemon/probe/arguments/argument_rows.h"

namespace gpuperf {
namespace {

constexpr CodeName kOperations[] = {{0, "n"}, {1, "t"}, {2, "c"}, {3, "conj"}};

// cudaDataType of the matrices and cublasComputeType_t of the computation.
using ShapeTypes = std::array<uint16_t, 4>;
constexpr ShapeTypes kF16Types = {2, 2, 2, 64};
constexpr ShapeTypes kF32Types = {0, 0, 0, 68};
constexpr ShapeTypes kF64Types = {1, 1, 1, 70};
constexpr ShapeTypes kComplexF32Types = {4, 4, 4, 68};
constexpr ShapeTypes kComplexF64Types = {5, 5, 5, 70};

FieldRow make_operation(std::string_view name, uint8_t source) {
  return make_code(name, source, kOperations);
}
FieldRow make_data_type(std::string_view name, uint8_t source) {
  return make_code(name, source, data_type_codes());
}
FieldRow make_compute_type(uint8_t source) {
  return make_code("compute", source, compute_type_codes());
}

// Dimensions are int, or int64_t in the functions ending in _64.
FieldRow make_dimension(std::string_view name, uint8_t source, bool is_64) {
  return is_64 ? make_i64(name, source) : make_i32(name, source);
}

// (handle, transa, transb, m, n, k, …): values 1-3, or 1-4 with a batch count on the stack. The
// fourth place of a GEMM without a batch is free for the first transposition.
FieldRows make_shape(bool is_64, std::optional<uint8_t> batch_source) {
  return {
      make_dimension("m", 3, is_64), make_dimension("n", 4, is_64), make_dimension("k", 5, is_64),
      batch_source ? make_dimension("batch", *batch_source, is_64) : make_operation("transa", 1)};
}

// A GEMM whose name says its types. Values 5-8 would be types: they hold nothing.
DecoderRow make_plain_gemm(std::vector<std::string_view> symbols, bool is_64,
                           const ShapeTypes& types,
                           std::optional<uint8_t> batch_source = std::nullopt) {
  FieldRows fields = make_shape(is_64, batch_source);
  for (int i = 0; i < 4; ++i) fields.push_back(make_nothing(0));
  if (batch_source) fields.push_back(make_operation("transa", 1));
  fields.push_back(make_operation("transb", 2));
  return {.symbols = std::move(symbols),
          .fields = std::move(fields),
          .shape_dimensions = static_cast<uint8_t>(batch_source ? 4 : 3),
          .shape_types = types};
}

// Where a GEMM with types among its arguments has them.
struct TypeSources {
  uint8_t a = 0;
  uint8_t b = 0;
  uint8_t c = 0;
  std::optional<uint8_t> compute;  // none: cublasSgemmEx computes in its own type
  std::optional<uint8_t> batch;
};
constexpr TypeSources kGemmEx = {8, 11, 15, 17, std::nullopt};
constexpr TypeSources kGemmOwnCompute = {8, 11, 15, std::nullopt, std::nullopt};
constexpr TypeSources kGemmBatchedEx = {8, 11, 15, 18, 17};
constexpr TypeSources kGemmStridedBatchedEx = {8, 12, 17, 21, 20};

DecoderRow make_typed_gemm(std::vector<std::string_view> symbols, bool is_64,
                           const TypeSources& sources) {
  FieldRows fields = make_shape(is_64, sources.batch);
  fields.push_back(make_data_type("a_type", sources.a));
  fields.push_back(make_data_type("b_type", sources.b));
  fields.push_back(make_data_type("c_type", sources.c));
  // Nothing reads as type 0, which is f32: what these functions compute in.
  fields.push_back(sources.compute ? make_compute_type(*sources.compute) : make_nothing(0));
  if (sources.batch) fields.push_back(make_operation("transa", 1));
  fields.push_back(make_operation("transb", 2));
  return {.symbols = std::move(symbols),
          .fields = std::move(fields),
          .shape_dimensions = static_cast<uint8_t>(sources.batch ? 4 : 3)};
}

// Fields of what cublasLtMatrixLayout_t and cublasLtMatmulDesc_t point to. No header tells them;
// found in cuBLASLt 13.0, and found again by tests/unit/probe in the library that is installed.
constexpr int32_t kLayoutType = 0;
constexpr int32_t kLayoutRows = 8;
constexpr int32_t kLayoutColumns = 16;
constexpr int32_t kLayoutBatch = 32;
constexpr int32_t kMatmulCompute = 8;
constexpr int32_t kMatmulTransA = 20;
constexpr int32_t kMatmulTransB = 24;

// cublasLtMatmul(handle, desc, alpha, A, Adesc, B, Bdesc, beta, C, Cdesc, D, Ddesc, …): D is m x n,
// and A lies there as m x k, or as k x m when it is taken transposed.
DecoderRow make_matmul() {
  constexpr uint8_t kDesc = 1, kA = 4, kB = 6, kD = 11;
  constexpr uint8_t kTransposedValue = 9;
  return {.symbols = {"cublasLtMatmul"},
          .fields = {in_memory(make_u64("m", kA), {kLayoutRows}),
                     in_memory(make_u64("n", kD), {kLayoutColumns}),
                     in_memory(make_u64("k", kA), {kLayoutColumns}),
                     in_memory(make_i32("batch", kD), {kLayoutBatch}),
                     in_memory(make_data_type("a_type", kA), {kLayoutType}),
                     in_memory(make_data_type("b_type", kB), {kLayoutType}),
                     in_memory(make_data_type("c_type", kD), {kLayoutType}),
                     in_memory(make_compute_type(kDesc), {kMatmulCompute}),
                     in_memory(make_operation("transa", kDesc), {kMatmulTransA}),
                     in_memory(make_operation("transb", kDesc), {kMatmulTransB})},
          .shape_dimensions = 4,
          .shape_swap = kTransposedValue};
}

}  // namespace

// Grouped GEMMs have a shape of their own per group, in arrays: their types are shown, and they are
// in no table of shapes.
std::vector<DecoderRow> make_cublas_rows() {
  constexpr bool k64 = true;
  constexpr bool k32 = false;
  constexpr uint8_t kBatched = 14;         // after handle … C, ldc
  constexpr uint8_t kStridedBatched = 17;  // and a stride for each matrix
  return {
      make_plain_gemm({"cublasSgemm_v2"}, k32, kF32Types),
      make_plain_gemm({"cublasSgemm_v2_64"}, k64, kF32Types),
      make_plain_gemm({"cublasDgemm_v2"}, k32, kF64Types),
      make_plain_gemm({"cublasDgemm_v2_64"}, k64, kF64Types),
      make_plain_gemm({"cublasCgemm_v2", "cublasCgemm3m"}, k32, kComplexF32Types),
      make_plain_gemm({"cublasCgemm_v2_64", "cublasCgemm3m_64"}, k64, kComplexF32Types),
      make_plain_gemm({"cublasZgemm_v2", "cublasZgemm3m"}, k32, kComplexF64Types),
      make_plain_gemm({"cublasZgemm_v2_64", "cublasZgemm3m_64"}, k64, kComplexF64Types),
      make_plain_gemm({"cublasHgemm"}, k32, kF16Types),
      make_plain_gemm({"cublasHgemm_64"}, k64, kF16Types),
      make_plain_gemm({"cublasSgemmBatched"}, k32, kF32Types, kBatched),
      make_plain_gemm({"cublasSgemmBatched_64"}, k64, kF32Types, kBatched),
      make_plain_gemm({"cublasDgemmBatched"}, k32, kF64Types, kBatched),
      make_plain_gemm({"cublasDgemmBatched_64"}, k64, kF64Types, kBatched),
      make_plain_gemm({"cublasCgemmBatched", "cublasCgemm3mBatched"}, k32, kComplexF32Types,
                      kBatched),
      make_plain_gemm({"cublasCgemmBatched_64", "cublasCgemm3mBatched_64"}, k64, kComplexF32Types,
                      kBatched),
      make_plain_gemm({"cublasZgemmBatched"}, k32, kComplexF64Types, kBatched),
      make_plain_gemm({"cublasZgemmBatched_64"}, k64, kComplexF64Types, kBatched),
      make_plain_gemm({"cublasHgemmBatched"}, k32, kF16Types, kBatched),
      make_plain_gemm({"cublasHgemmBatched_64"}, k64, kF16Types, kBatched),
      make_plain_gemm({"cublasSgemmStridedBatched"}, k32, kF32Types, kStridedBatched),
      make_plain_gemm({"cublasSgemmStridedBatched_64"}, k64, kF32Types, kStridedBatched),
      make_plain_gemm({"cublasDgemmStridedBatched"}, k32, kF64Types, kStridedBatched),
      make_plain_gemm({"cublasDgemmStridedBatched_64"}, k64, kF64Types, kStridedBatched),
      make_plain_gemm({"cublasCgemmStridedBatched", "cublasCgemm3mStridedBatched"}, k32,
                      kComplexF32Types, kStridedBatched),
      make_plain_gemm({"cublasCgemmStridedBatched_64", "cublasCgemm3mStridedBatched_64"}, k64,
                      kComplexF32Types, kStridedBatched),
      make_plain_gemm({"cublasZgemmStridedBatched"}, k32, kComplexF64Types, kStridedBatched),
      make_plain_gemm({"cublasZgemmStridedBatched_64"}, k64, kComplexF64Types, kStridedBatched),
      make_plain_gemm({"cublasHgemmStridedBatched"}, k32, kF16Types, kStridedBatched),
      make_plain_gemm({"cublasHgemmStridedBatched_64"}, k64, kF16Types, kStridedBatched),
      make_typed_gemm({"cublasGemmEx"}, k32, kGemmEx),
      make_typed_gemm({"cublasGemmEx_64"}, k64, kGemmEx),
      make_typed_gemm({"cublasSgemmEx", "cublasCgemmEx", "cublasCgemm3mEx"}, k32, kGemmOwnCompute),
      make_typed_gemm({"cublasSgemmEx_64", "cublasCgemmEx_64", "cublasCgemm3mEx_64"}, k64,
                      kGemmOwnCompute),
      make_typed_gemm({"cublasGemmBatchedEx"}, k32, kGemmBatchedEx),
      make_typed_gemm({"cublasGemmBatchedEx_64"}, k64, kGemmBatchedEx),
      make_typed_gemm({"cublasGemmStridedBatchedEx"}, k32, kGemmStridedBatchedEx),
      make_typed_gemm({"cublasGemmStridedBatchedEx_64"}, k64, kGemmStridedBatchedEx),
      {{"cublasGemmGroupedBatchedEx"},
       {make_i32("groups", 17), make_data_type("a_type", 8), make_data_type("b_type", 11),
        make_data_type("c_type", 15), make_compute_type(19)}},
      make_matmul(),
  };
}

}  // namespace gpuperf
