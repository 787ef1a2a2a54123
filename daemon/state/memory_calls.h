#pragma once

#include <cstdint>
#include <optional>

#include "daemon/model/event.h"
#include "daemon/model/memory.h"

namespace gpuperf {

// What a reported call did to its process's memory.
struct MemoryCall {
  enum class Operation : uint8_t {
    kAllocate,
    kRelease,
    kMap,     // a handle's memory to an address
    kUnmap,   // everything in a range
    kRetain,  // one more handle of what is mapped at an address
    kContextBegins,
    kContextEnds,
  };
  // Addresses and handles of each are numbers of their own.
  enum class Space : uint8_t { kAddress, kArray, kHandle };

  Operation operation{};
  Space space{};
  MemoryKind kind{};            // of what is allocated
  bool is_ended_whole = false;  // kContextEnds: even if others still hold the context
  bool is_primary = false;      // kContextBegins, kContextEnds: `place` is a device's number
  uint64_t place = 0;           // address or handle; 0 = could not be read
  uint64_t bytes = 0;           // kAllocate, kUnmap
  uint64_t handle = 0;          // kMap; kRetain: the new one
  bool is_unreadable = false;   // something of the above is missing
  uint64_t start_mono_ns = 0;
  uint64_t end_mono_ns = 0;
  int32_t status = 0;  // a CUresult
};

inline constexpr int32_t kCudaOutOfMemory = 2;  // CUDA_ERROR_OUT_OF_MEMORY

// Empty: a function that has nothing to do with memory.
std::optional<MemoryCall> read_memory_call(const Function& function, const ReportedCall& call);

}  // namespace gpuperf
