#pragma once

// What the trace formats say of a slice beside its name and time.

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/model/capture.h"

namespace gpuperf {

// "linear > cublasGemmEx m=512 n=1024 k=64", the outermost first, by index of an operation.
std::vector<std::string> make_operation_texts(const Capture& capture);

// "grid 64x1x1 block 256x1x1 shared 0 registers 32", by index of a shape.
std::vector<std::string> make_shape_texts(const Capture& capture);

// Of a copy or set: gigabytes (1e9) a second; 0 where it took no time.
double get_gigabytes_per_second(const CaptureWork& work);

}  // namespace gpuperf
