// The structs behind cuBLASLt's handles have no header: the decoder's offsets into them were found
// by filling them and looking. This test looks again, in the library that is installed. No GPU
// needed.

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "daemon/probe/arguments/argument_decoders.h"

namespace gpuperf {
namespace {

// Of cublasLt.h; the same since CUDA 11.
constexpr int kLayoutBatchCount = 5;
constexpr int kDescTransA = 3;
constexpr int kDescTransB = 4;
using Create = int (*)(void**, int type, uint64_t rows, uint64_t columns, int64_t leading);
using CreateDesc = int (*)(void**, int compute, int scale);
using Destroy = int (*)(void*);
using Set = int (*)(void*, int attribute, const void* value, size_t size_bytes);

class CublasLtTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string folder = GPUPERF_CUDA_LIBRARY_DIR;
    for (const std::string name : {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"}) {
      for (const std::string& path : {folder + "/" + name, name}) {
        if (!library_) library_ = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
      }
    }
    if (!library_) GTEST_SKIP() << "skipped: no libcublasLt.so.11 to .13 is installed";
  }

  void TearDown() override {
    for (void* layout : layouts_) find<Destroy>("cublasLtMatrixLayoutDestroy")(layout);
    for (void* desc : descs_) find<Destroy>("cublasLtMatmulDescDestroy")(desc);
  }

  template <class Function>
  Function find(const char* name) {
    auto* function = reinterpret_cast<Function>(::dlsym(library_, name));
    EXPECT_NE(function, nullptr) << name;
    return function;
  }

  void* make_layout(int type, uint64_t rows, uint64_t columns) {
    void* layout = nullptr;
    EXPECT_EQ(find<Create>("cublasLtMatrixLayoutCreate")(&layout, type, rows, columns, 0x10000000),
              0);
    layouts_.push_back(layout);
    return layout;
  }

  void* make_desc(int compute) {
    void* desc = nullptr;
    EXPECT_EQ(find<CreateDesc>("cublasLtMatmulDescCreate")(&desc, compute, /*scale=*/1), 0);
    descs_.push_back(desc);
    return desc;
  }

 private:
  void* library_ = nullptr;  // stays loaded: it is not made to be unloaded
  std::vector<void*> layouts_;
  std::vector<void*> descs_;
};

// What the kernel would keep: the field's value, read through `pointer` in place of the argument.
uint64_t capture(const char* name, const void* pointer) {
  const auto plan = find_argument_decoder("cublasLtMatmul");
  const auto field = std::ranges::find(plan->fields, name, &ArgumentField::name);
  EXPECT_NE(field, plan->fields.end()) << name;
  EXPECT_EQ(field->capture.loads, 1);
  uint64_t value = 0;
  std::memcpy(&value, static_cast<const char*>(pointer) + field->capture.offset_bytes[0],
              field->capture.size_bytes);
  return value;
}

TEST_F(CublasLtTest, LayoutsHoldWhatTheDecoderReads) {
  void* layout = make_layout(/*type=*/14, /*rows=*/0x1234567, /*columns=*/0x7654321);
  const int32_t batch = 0x777;
  ASSERT_EQ(find<Set>("cublasLtMatrixLayoutSetAttribute")(layout, kLayoutBatchCount, &batch,
                                                          sizeof(batch)),
            0);

  for (const char* name : {"a_type", "b_type", "c_type"}) EXPECT_EQ(capture(name, layout), 14u);
  EXPECT_EQ(capture("m", layout), 0x1234567u);
  EXPECT_EQ(capture("n", layout), 0x7654321u);
  EXPECT_EQ(capture("k", layout), 0x7654321u);
  EXPECT_EQ(capture("batch", layout), 0x777u);
}

TEST_F(CublasLtTest, ALayoutIsOneBatchUntilToldOtherwise) {
  EXPECT_EQ(capture("batch", make_layout(0, 3, 5)), 1u);
}

TEST_F(CublasLtTest, DescriptorsHoldWhatTheDecoderReads) {
  void* desc = make_desc(/*compute=*/77);
  EXPECT_EQ(capture("transa", desc), 0u);
  EXPECT_EQ(capture("transb", desc), 0u);
  const int32_t transposed = 1;
  const int32_t conjugated = 2;
  const Set set = find<Set>("cublasLtMatmulDescSetAttribute");
  ASSERT_EQ(set(desc, kDescTransA, &transposed, sizeof(transposed)), 0);
  ASSERT_EQ(set(desc, kDescTransB, &conjugated, sizeof(conjugated)), 0);

  EXPECT_EQ(capture("compute", desc), 77u);
  EXPECT_EQ(capture("transa", desc), 1u);
  EXPECT_EQ(capture("transb", desc), 2u);
}

}  // namespace
}  // namespace gpuperf
