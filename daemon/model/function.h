#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/mutex.h"
#include "daemon/model/argument_plan.h"

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

// One probed function: an entry of the configuration, or one match of an entry with a wildcard.
// `id` is the cookie of its probes and its index everywhere.
struct Function {
  uint32_t id = 0;
  std::string category;
  std::string name;  // display name
  std::string symbol;
  StatusKind status = StatusKind::kNone;
  uint64_t slow_threshold_ns = 0;                 // 0 = never slow
  std::shared_ptr<const ArgumentPlan> arguments;  // null = the argument registers, raw
  bool operator==(const Function&) const = default;
};
using FunctionList = std::vector<Function>;  // by id

// Every function there ever was in this run. An id is never given to another function, so totals
// of functions that left the configuration stay readable, and a function that returns goes on
// counting.
//
// Thread: any. Bounds: `capacity` functions; then add_all says kFull.
class FunctionRegistry {
 public:
  static constexpr uint32_t kFull = UINT32_MAX;

  explicit FunctionRegistry(uint32_t capacity) : capacity_(capacity) {}

  // The ids of these by (category, name); new ones are added, known ones take on the rest. Their
  // own `id` is ignored. One call for many: each copies the list.
  std::vector<uint32_t> add_all(std::vector<Function> functions);
  std::shared_ptr<const FunctionList> get() const;
  uint32_t capacity() const { return capacity_; }

 private:
  const uint32_t capacity_;
  mutable Mutex mutex_;
  std::shared_ptr<const FunctionList> functions_ ABSL_GUARDED_BY(mutex_) =
      std::make_shared<const FunctionList>();
  std::map<std::pair<std::string, std::string>, uint32_t> ids_ ABSL_GUARDED_BY(mutex_);
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
  std::string slurm_job;      // SLURM_JOB_ID; empty = not in a Slurm job
  std::string slurm_rank;     // SLURM_PROCID; likewise
  auto operator<=>(const Owner&) const = default;
};

// Of what is kept for processes that no longer have rows of their own.
const Owner& other_owner();

}  // namespace gpuperf
