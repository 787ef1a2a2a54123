#include "client/shape_table.h"

#include <gtest/gtest.h>

namespace gpuperf::client {
namespace {

v1::Shape make_shape(const char* a, const char* b, const char* c, const char* compute) {
  v1::Shape shape;
  shape.set_a_type(a);
  shape.set_b_type(b);
  shape.set_c_type(c);
  shape.set_compute_type(compute);
  return shape;
}

TEST(ShapeTableTest, SaysEveryTypeOnce) {
  EXPECT_EQ(describe_types(make_shape("f32", "f32", "f32", "f32")), "f32");
  EXPECT_EQ(describe_types(make_shape("bf16", "bf16", "bf16", "f32")), "bf16 in f32");
  EXPECT_EQ(describe_types(make_shape("bf16", "bf16", "f32", "f32")), "bf16 -> f32");
  EXPECT_EQ(describe_types(make_shape("f8_e4m3", "f8_e5m2", "bf16", "f32")),
            "f8_e4m3 x f8_e5m2 -> bf16 in f32");
  EXPECT_EQ(describe_types(make_shape("", "", "", "")), "");
}

TEST(ShapeTableTest, ShowsOperationsOfAllCallsAndOfOne) {
  v1::Shape shape = make_shape("bf16", "bf16", "bf16", "f32");
  shape.set_category("cublas");
  shape.set_function("cublasGemmEx");
  shape.set_m(4096);
  shape.set_n(16);
  shape.set_k(1024);
  shape.set_batch(1);
  shape.set_calls(28'000);
  shape.set_total_ns(280'000'000);
  shape.set_flops(28'000.0 * 2 * 4096 * 16 * 1024);

  EXPECT_EQ(render_shape_table({shape}, {}),
            "CATEGORY  FUNCTION         M   N     K  BATCH  TYPES         CALLS   TOTAL  GFLOP  "
            "GFLOP/CALL\n"
            "cublas    cublasGemmEx  4096  16  1024      1  bf16 in f32  28,000  280 ms  3,758  "
            "     0.134\n");
}

}  // namespace
}  // namespace gpuperf::client
