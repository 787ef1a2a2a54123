#pragma once

// The CUDA functions cuda_calls uses: from the toolkit's headers, or from our own declarations of
// the same C interface when it is built against the stand-in libraries (GPUPERF_STANDIN).

#ifdef GPUPERF_STANDIN
#include "standin/cuda_standin.h"
inline constexpr const char* kLibraries = "stand-in";
#else
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
inline constexpr const char* kLibraries = "toolkit";
#endif
