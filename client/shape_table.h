#pragma once

#include <string>
#include <vector>

#include "client/table.h"
#include "gpuperf/v1/model.pb.h"

namespace gpuperf::client {

// One row per GEMM shape, in the order given.
std::string render_shape_table(const std::vector<v1::Shape>& shapes, const TextStyle& style);

// "bf16 x bf16 -> f32 in f32": types of A, B, the result and the computation, said once where they
// are the same; "" where the calls say none.
std::string describe_types(const v1::Shape& shape);

}  // namespace gpuperf::client
