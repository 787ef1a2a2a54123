#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace gpuperf {

// What a function's integer return value means.
enum class StatusKind {
  kNone,         // not a status: never an error
  kCudaRuntime,  // cudaError_t
  kCudaDriver,   // CUresult
  kCublas,       // cublasStatus_t
  kCudnn,        // cudnnStatus_t
  kNccl,         // ncclResult_t
};

// One configured function. `id` is the cookie of its probes and its index everywhere.
struct Function {
  uint32_t id = 0;
  std::string category;
  std::string name;  // display name
  std::string symbol;
  StatusKind status = StatusKind::kNone;
  uint64_t slow_threshold_ns = 0;  // 0 = never slow
  bool entry_only = false;         // counted without durations
  bool operator==(const Function&) const = default;
};

// A process for good: the start time tells two users of one pid apart. pid 0 stands for
// processes that could not be kept apart because a bound was full.
struct ProcessKey {
  uint32_t pid = 0;
  uint64_t start_boot_ns = 0;
  auto operator<=>(const ProcessKey&) const = default;
};

// Who a process belongs to.
struct Owner {
  std::string comm;           // of the thread-group leader; "other" for folded processes
  std::string container;      // id, 12 characters; empty = not in a container
  std::string pod;            // name, or uid where the name is not known; empty = not in a pod
  std::string pod_namespace;  // Kubernetes namespace; empty = not in a pod, or not known
  auto operator<=>(const Owner&) const = default;
};

}  // namespace gpuperf
