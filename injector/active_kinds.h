#pragma once

// The kinds of CUPTI's records that we have on, and the single calls of the API among them.
//
// Thread: under the collector's lock. Decides nothing: choosing kinds is the collector's.

#include <cstdint>

#include "injector/cupti_api.h"
#include "injector/cupti_records.h"
#include "injector/session_abi.h"

namespace gpuperf::injector {

// A bit per kind of CUPTI that we may switch on.
constexpr uint32_t kKindGraphs = 1;
constexpr uint32_t kKindKernels = 2;
constexpr uint32_t kKindCopies = 4;
constexpr uint32_t kKindPeerCopies = 8;
constexpr uint32_t kKindSets = 16;
constexpr uint32_t kKindMemory = 32;
constexpr uint32_t kKindOverhead = 64;
constexpr uint32_t kKindRuntime = 128;
constexpr uint32_t kKindDriver = 256;

class ActiveKinds {
 public:
  explicit ActiveKinds(const CuptiApi& api) : api_(api) {}

  // Classifies the calls of the API by the names that CUPTI has for them.
  void classify_calls();
  const CallClasses& calls() const { return calls_; }

  uint32_t all() const { return active_; }
  bool has(uint32_t kind) const { return (active_ & kind) != 0; }
  // All calls of the API are recorded, not only those of a class.
  bool all_apis() const { return all_apis_; }
  // Single calls are on, not the whole kind without the others.
  bool calls_by_id() const { return calls_by_id_; }

  // CUPTI would not give kernels or graphs; without any of the others collection goes on.
  struct Refusal {
    CUptiResult result = CUPTI_SUCCESS;
    CUpti_ActivityKind kind = CUPTI_ACTIVITY_KIND_INVALID;
  };
  // What is on already stays so. GRAPH_TRACE goes on before CONCURRENT_KERNEL and off after it, so
  // that no graph ever comes by node in between.
  Refusal switch_on(uint32_t kinds, bool all_apis, bool in_initialisation);
  void switch_off(uint32_t kinds);
  // Whole kinds of calls from now on, for single ones do not work or others use CUPTI.
  void forget_calls_by_id() { calls_by_id_ = false; }
  // The level and the kinds of records of the session that come from what is on. `has_graphs`:
  // graphs are seen, or will be once there are any.
  void fill_level(gpuperf_status& status, bool has_graphs) const;

 private:
  void enable_calls(bool is_driver, bool all, bool in_initialisation);
  void disable_calls(bool is_driver);
  // Calls f(id) for those that are recorded, or for those that are not.
  template <typename Function>
  void for_each_wanted_call(bool is_driver, bool wanted, Function f) const {
    const CallClass* classes = is_driver ? calls_.driver : calls_.runtime;
    const uint32_t count = is_driver ? calls_.driver_count : calls_.runtime_count;
    for (uint32_t id = 1; id < count; ++id) {
      if ((classes[id] != CallClass::kOther) == wanted) f(id);
    }
  }

  const CuptiApi& api_;
  CallClasses calls_;
  uint32_t active_ = 0;  // kKind* bits
  bool all_apis_ = false;
  bool calls_by_id_ = false;
};

}  // namespace gpuperf::injector
