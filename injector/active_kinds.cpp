#include "injector/active_kinds.h"

#include <cstring>

namespace gpuperf::injector {
namespace {

struct KindRow {
  uint32_t bit;
  CUpti_ActivityKind kind;
};
// In the order of switching on.
constexpr KindRow kKinds[] = {
    {kKindGraphs, CUPTI_ACTIVITY_KIND_GRAPH_TRACE},
    {kKindKernels, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL},
    {kKindCopies, CUPTI_ACTIVITY_KIND_MEMCPY},
    {kKindPeerCopies, CUPTI_ACTIVITY_KIND_MEMCPY2},
    {kKindSets, CUPTI_ACTIVITY_KIND_MEMSET},
    {kKindMemory, CUPTI_ACTIVITY_KIND_MEMORY2},
    {kKindRuntime, CUPTI_ACTIVITY_KIND_RUNTIME},
    {kKindDriver, CUPTI_ACTIVITY_KIND_DRIVER},
};

// Where the hooks log calls of this name, they are of this id.
void note_entry(const char* name, uint32_t id, uint16_t* of_entry) {
  for (uint32_t entry = 0; entry < kLoggedEntries; ++entry) {
    if (std::strcmp(name, get_entry_name(entry)) == 0) of_entry[entry] = static_cast<uint16_t>(id);
  }
}

// Returns past the last id. The list ends where names do. `of_entry`: of the driver's domain.
uint32_t classify_domain(const CuptiApi& api, CUpti_CallbackDomain domain, CallClass* classes,
                         uint16_t* of_entry) {
  uint32_t id = 1;  // 0 is no call
  for (uint32_t misses = 0; id < CallClasses::kCountMax && misses < 64; ++id) {
    const char* name = nullptr;
    if (api.cuptiGetCallbackName(domain, id, &name) != CUPTI_SUCCESS || name == nullptr) {
      ++misses;
      continue;
    }
    misses = 0;
    classes[id] = classify_call(name);
    if (of_entry != nullptr && classes[id] != CallClass::kOther) note_entry(name, id, of_entry);
  }
  return id;
}

}  // namespace

void ActiveKinds::classify_calls() {
  calls_.runtime_count =
      classify_domain(api_, CUPTI_CB_DOMAIN_RUNTIME_API, calls_.runtime, nullptr);
  calls_.driver_count =
      classify_domain(api_, CUPTI_CB_DOMAIN_DRIVER_API, calls_.driver, calls_.of_entry);
}

// Calls by their callback ids. From within cuInit single ones can be switched on, and all others
// stay as fast as ever. Later that has no effect (13.0): the whole kind goes on and what is not
// wanted off again, and then every call of the API pays, recorded or not (0.5 us; PyTorch makes
// eight for a kernel).
void ActiveKinds::enable_calls(bool is_driver, bool all, bool in_initialisation) {
  const auto enable_one =
      is_driver ? api_.cuptiActivityEnableDriverApi : api_.cuptiActivityEnableRuntimeApi;
  const CUpti_ActivityKind kind =
      is_driver ? CUPTI_ACTIVITY_KIND_DRIVER : CUPTI_ACTIVITY_KIND_RUNTIME;
  // Versions before 12.5 know only all or nothing; all is dear (10 records a launch).
  if (enable_one == nullptr && !all) return;
  if (in_initialisation && !all) calls_by_id_ = true;
  if (all) calls_by_id_ = false;
  if (!calls_by_id_ && api_.cuptiActivityEnable(kind) != CUPTI_SUCCESS) return;
  active_ |= is_driver ? kKindDriver : kKindRuntime;
  if (all) return;
  for_each_wanted_call(is_driver, calls_by_id_, [enable_one, this](uint32_t id) {
    (void)enable_one(id, calls_by_id_ ? 1 : 0);
  });
}

void ActiveKinds::disable_calls(bool is_driver) {
  const auto enable_one =
      is_driver ? api_.cuptiActivityEnableDriverApi : api_.cuptiActivityEnableRuntimeApi;
  if (calls_by_id_) {
    for_each_wanted_call(is_driver, true, [enable_one](uint32_t id) { (void)enable_one(id, 0); });
  } else {
    (void)api_.cuptiActivityDisable(is_driver ? CUPTI_ACTIVITY_KIND_DRIVER
                                              : CUPTI_ACTIVITY_KIND_RUNTIME);
  }
}

ActiveKinds::Refusal ActiveKinds::switch_on(uint32_t kinds, bool all_apis, bool in_initialisation) {
  for (const KindRow& row : kKinds) {
    if ((kinds & ~active_ & row.bit) == 0) continue;
    if (row.bit == kKindRuntime || row.bit == kKindDriver) {
      enable_calls(row.bit == kKindDriver, all_apis, in_initialisation);
      continue;
    }
    const CUptiResult result = api_.cuptiActivityEnable(row.kind);
    if (result == CUPTI_SUCCESS) {
      active_ |= row.bit;
    } else if (row.bit == kKindKernels || row.bit == kKindGraphs) {
      return {result, row.kind};
    }
  }
  all_apis_ = all_apis;
  return {};
}

void ActiveKinds::switch_off(uint32_t kinds) {
  for (size_t i = sizeof(kKinds) / sizeof(kKinds[0]); i-- > 0;) {
    const KindRow& row = kKinds[i];
    if ((active_ & kinds & row.bit) == 0) continue;
    if (row.bit == kKindRuntime || row.bit == kKindDriver) {
      disable_calls(row.bit == kKindDriver);
    } else {
      (void)api_.cuptiActivityDisable(row.kind);
    }
  }
  active_ &= ~kinds;
}

void ActiveKinds::fill_level(gpuperf_status& status, bool has_graphs) const {
  const auto add = [&status](bool is_on, uint32_t level, uint64_t kinds) {
    if (!is_on) return;
    status.level |= level;
    status.enabled_kinds |= kinds;
  };
  const auto bit = [](uint32_t kind) { return GPUPERF_SESSION_BIT(kind); };
  add(has_graphs, GPUPERF_SESSION_LEVEL_GRAPHS, bit(GPUPERF_SESSION_GRAPH));
  add(has(kKindKernels), GPUPERF_SESSION_LEVEL_KERNELS, bit(GPUPERF_SESSION_KERNEL));
  add(has(kKindKernels) && !has_graphs, GPUPERF_SESSION_LEVEL_NODES, 0);
  add(has(kKindRuntime), GPUPERF_SESSION_LEVEL_APIS | GPUPERF_SESSION_LEVEL_SYNCS,
      bit(GPUPERF_SESSION_API) | bit(GPUPERF_SESSION_SYNC));
  add(all_apis_, GPUPERF_SESSION_LEVEL_ALL_APIS, 0);
  add(has(kKindCopies), GPUPERF_SESSION_LEVEL_COPIES,
      bit(GPUPERF_SESSION_MEMCPY) | bit(GPUPERF_SESSION_MEMSET));
  add(has(kKindMemory), GPUPERF_SESSION_LEVEL_MEMORY, bit(GPUPERF_SESSION_MEMORY));
}

}  // namespace gpuperf::injector
