#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/model/function.h"

namespace gpuperf {

// The kind of status an exported C function of the known libraries returns, by its symbol
// ("cudaMalloc" -> kCudaRuntime). kNone for anything else, for mangled names, and for functions of
// those libraries whose return value is no status of their own (cudaGetLastError,
// ncclGetErrorString).
StatusKind find_status_kind(std::string_view symbol);

// Codes that only mean "not ready" and are no errors; at most two per kind.
std::vector<int32_t> get_benign_codes(StatusKind kind);

// "cudaErrorMemoryAllocation"; the number in decimal where the name is not known.
std::string get_status_name(StatusKind kind, int32_t code);

}  // namespace gpuperf
