#pragma once

// The CUPTI record kinds that we have enabled, including individual API calls.
//
// Thread: under the collector's lock. Makes no decisions: the collector chooses the kinds.

#include <cstdint>

#include "injector/cupti_api.h"
#include "injector/cupti_records.h"
#include "injector/session_abi.h"

namespace gpuperf::injector {

// One bit per CUPTI kind that we may enable.
constexpr uint32_t kKindGraphs = 1;
constexpr uint32_t kKindKernels = 2;
constexpr uint32_t kKindCopies = 4;
constexpr uint32_t kKindPeerCopies = 8;
constexpr uint32_t kKindSets = 16;
constexpr uint32_t kKindMemory = 32;
constexpr uint32_t kKindRuntime = 64;
constexpr uint32_t kKindDriver = 128;

class ActiveKinds {
 public:
  explicit ActiveKinds(const CuptiApi& api) : api_(api) {}

  // Classifies API calls by the names that CUPTI reports.
  void classify_calls();
  const CallClasses& calls() const { return calls_; }

  uint32_t all() const { return active_; }
  bool has(uint32_t kind) const { return (active_ & kind) != 0; }
  // All API calls are recorded, not only those of a class.
  bool all_apis() const { return all_apis_; }
  // Wanted calls are enabled one by one, rather than the whole kind minus the others.
  bool calls_by_id() const { return calls_by_id_; }

  // CUPTI refused kernels or graphs. If it refuses any other kind, collection goes on without it.
  struct Refusal {
    CUptiResult result = CUPTI_SUCCESS;
    CUpti_ActivityKind kind = CUPTI_ACTIVITY_KIND_INVALID;
  };
  // Kinds already on stay on. GRAPH_TRACE goes on before CONCURRENT_KERNEL and off after it, so
  // that no graph is recorded by node in between.
  Refusal switch_on(uint32_t kinds, bool all_apis, bool in_initialisation);
  void switch_off(uint32_t kinds);
  // From now on, enables whole kinds of calls: individual ones do not work, or others use CUPTI.
  void forget_calls_by_id() { calls_by_id_ = false; }
  // Fills in the session level and record kinds from what is on. `has_graphs`: graphs are recorded,
  // or will be once there are any.
  void fill_level(gpuperf_status& status, bool has_graphs) const;

 private:
  void enable_calls(bool is_driver, bool all, bool in_initialisation);
  void disable_calls(bool is_driver);
  // Calls f(id) for each call that is recorded, or for each that is not.
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
