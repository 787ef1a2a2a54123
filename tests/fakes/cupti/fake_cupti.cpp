// The functions that clients of CUPTI call.

#include "tests/fakes/cupti/fake_cupti.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <utility>

namespace fake_cupti {
namespace {

#include "tests/fakes/cupti/callback_names.inc"

constexpr uint32_t kVersion = FAKE_CUPTI_MAJOR == 13 ? 130001 : 22;  // 13.0 update 1; 12.4

// CUPTI's only place for a subscriber.
struct Subscriber {
  CUpti_CallbackFunc call = nullptr;
  void* data = nullptr;
  std::atomic<bool> domains[CUPTI_CB_DOMAIN_SIZE] = {};
  std::set<std::pair<uint32_t, uint32_t>> calls;  // domain, callback id
};

std::mutex g_lock;                           // of the subscriber; never held in its callback
Subscriber& g_subscriber = *new Subscriber;  // outlives every thread of the process
std::atomic<bool> g_has_subscriber = false;
std::atomic<bool> g_is_attached = false;
std::atomic<CUresult (*)(unsigned)> g_driver_call =
    nullptr;  // found at the first use, as the real one does
std::atomic<uint64_t> g_finalised = 0;
std::atomic<uint64_t> g_subscriptions = 0;
// How long the first kind takes to go on: 15 to 40 ms on an H200.
std::atomic<int> g_setup_ms = std::getenv("FAKE_CUPTI_SETUP_MS") != nullptr
                                  ? std::atoi(std::getenv("FAKE_CUPTI_SETUP_MS"))
                                  : 0;
std::string& g_failing = *new std::string(
    std::getenv("FAKE_CUPTI_FAIL") != nullptr ? std::getenv("FAKE_CUPTI_FAIL") : "");

const char* find_name(bool is_driver, uint32_t id) {
  const auto find = [id](const auto& names) -> const char* {
    for (const FakeName& name : names) {
      if (name.id == id) return name.name;
    }
    return nullptr;
  };
  return is_driver ? find(k_driver_names) : find(k_runtime_names);
}

void call_back(const FakeCall& call, CUpti_ApiCallbackSite site) {
  if (!g_has_subscriber) return;
  const auto domain = call.is_driver ? CUPTI_CB_DOMAIN_DRIVER_API : CUPTI_CB_DOMAIN_RUNTIME_API;
  CUpti_CallbackFunc function = nullptr;
  void* data = nullptr;
  {
    const std::scoped_lock lock(g_lock);
    if (!g_has_subscriber) return;
    if (!g_subscriber.domains[domain] &&
        g_subscriber.calls.count({domain, call.callback_id}) == 0) {
      return;
    }
    function = g_subscriber.call;
    data = g_subscriber.data;
  }
  CUpti_CallbackData what = {};
  what.callbackSite = site;
  what.functionName = find_name(call.is_driver, call.callback_id);
  what.correlationId = call.correlation_id;
  function(data, domain, call.callback_id, &what);
}

constexpr FakeTools kTools = {
    .on_enter = [](const FakeCall& call) { call_back(call, CUPTI_API_ENTER); },
    .on_work =
        [](const FakeWork& work) {
          note_kernel(work);
          activities().on_work(work);
        },
    .on_exit =
        [](const FakeCall& call) {
          activities().on_exit(call);
          call_back(call, CUPTI_API_EXIT);
        },
    .traces_graphs = [] { return activities().is_on(CUPTI_ACTIVITY_KIND_GRAPH_TRACE); },
    .traces_nodes = [] { return activities().is_on(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL); },
    .records_any = [] { return activities().is_any_on(); },
};

}  // namespace

bool is_failing(const char* function) { return g_failing == function; }

Activities& activities() {
  static Activities& only = *new Activities;  // outlives every thread of the process
  return only;
}

void attach() {
  g_is_attached = true;
  g_driver_call = &cuInit;
  fake_cuda_set_tools(&kTools);
}

}  // namespace fake_cupti

using namespace fake_cupti;

// Fails where the test wants it to.
#define FAKE_CUPTI_BEGIN \
  if (is_failing(__func__)) return CUPTI_ERROR_UNKNOWN

extern "C" {

CUptiResult cuptiGetVersion(uint32_t* version) {
  const char* wanted = std::getenv("FAKE_CUPTI_VERSION");
  *version = wanted != nullptr ? static_cast<uint32_t>(std::atoi(wanted)) : kVersion;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetTimestamp(uint64_t* timestamp) {
  FAKE_CUPTI_BEGIN;
  *timestamp = activities().read_clock();
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc clock) {
  activities().register_clock(clock);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t id, const char** name) {
  if (domain != CUPTI_CB_DOMAIN_RUNTIME_API && domain != CUPTI_CB_DOMAIN_DRIVER_API) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  *name = find_name(domain == CUPTI_CB_DOMAIN_DRIVER_API, id);
  return *name != nullptr ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}

CUptiResult cuptiSetThreadIdType(CUpti_ActivityThreadIdType) { return CUPTI_SUCCESS; }

CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute attribute, size_t* size,
                                      void* value) {
  if (size == nullptr || value == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  const bool is_unknown =
      FAKE_CUPTI_MAJOR == 12 && attribute == CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER;
  return is_unknown ? CUPTI_ERROR_INVALID_PARAMETER : CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete) {
  FAKE_CUPTI_BEGIN;
  return activities().register_callbacks(request, complete);
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  FAKE_CUPTI_BEGIN;
  const bool is_kernels =
      kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL || kind == CUPTI_ACTIVITY_KIND_GRAPH_TRACE;
  // Seen on an H200: not while it samples; before it begins they may go on, and stay.
  if (is_sampling() && is_kernels && !activities().is_on(kind)) return CUPTI_ERROR_NOT_COMPATIBLE;
  std::this_thread::sleep_for(std::chrono::milliseconds(g_setup_ms.exchange(0)));
  return activities().enable(kind, true);
}

CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  return activities().enable(kind, false);
}

#if FAKE_CUPTI_MAJOR >= 13
CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId id, uint8_t enable) {
  activities().enable_call(false, id, enable != 0);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId id, uint8_t enable) {
  activities().enable_call(true, id, enable != 0);
  return CUPTI_SUCCESS;
}
#endif

// Further on than the driver's numbers, as seen on an H100.
CUptiResult cuptiGetStreamIdEx(CUcontext context, CUstream stream, uint8_t, uint32_t* id) {
  FAKE_CUPTI_BEGIN;
  if (context == nullptr && stream == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (!g_is_attached) {
    std::fprintf(stderr, "fake CUPTI: asked for a stream while it is not attached\n");
    std::abort();
  }
  *id = fake_cuda_get_stream(stream);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityFlushAll(uint32_t flag) {
  FAKE_CUPTI_BEGIN;
  return activities().flush((flag & CUPTI_ACTIVITY_FLAG_FLUSH_FORCED) != 0);
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t* dropped) {
  *dropped = activities().take_dropped();
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid_bytes,
                                       CUpti_Activity** record) {
  if (buffer == nullptr || record == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  uint8_t* next = buffer;
  if (*record != nullptr) {
    next = reinterpret_cast<uint8_t*>(*record) + record_bytes((*record)->kind);
  }
  if (next >= buffer + valid_bytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return record_bytes((*record)->kind) != 0 ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_KIND;
}

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc call, void* data) {
  FAKE_CUPTI_BEGIN;
  ++g_subscriptions;
  const std::scoped_lock lock(g_lock);
  if (g_has_subscriber) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  g_subscriber.call = call;
  g_subscriber.data = data;
  for (auto& domain : g_subscriber.domains) domain = false;
  g_subscriber.calls.clear();
  g_has_subscriber = true;
  *handle = reinterpret_cast<CUpti_SubscriberHandle>(&g_subscriber);
  attach();
  return CUPTI_SUCCESS;
}

CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle) {
  const std::scoped_lock lock(g_lock);
  if (!g_has_subscriber) return CUPTI_ERROR_INVALID_PARAMETER;
  g_has_subscriber = false;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiEnableDomain(uint32_t enable, CUpti_SubscriberHandle,
                              CUpti_CallbackDomain domain) {
  const std::scoped_lock lock(g_lock);
  if (!g_has_subscriber || domain >= CUPTI_CB_DOMAIN_SIZE) return CUPTI_ERROR_INVALID_PARAMETER;
  g_subscriber.domains[domain] = enable != 0;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle,
                                CUpti_CallbackDomain domain, CUpti_CallbackId id) {
  const std::scoped_lock lock(g_lock);
  if (!g_has_subscriber || find_name(domain == CUPTI_CB_DOMAIN_DRIVER_API, id) == nullptr) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  if (enable != 0) {
    g_subscriber.calls.insert({domain, id});
  } else {
    g_subscriber.calls.erase({domain, id});
  }
  return CUPTI_SUCCESS;
}

CUptiResult cuptiFinalize() {
  // Seen on an H200: the heap is corrupt afterwards. From a hook, before the driver is entered, it
  // is safe.
  if (fake_cuda_others_in_calls() > 0 && !fake_cuda_is_before_driver()) {
    std::fprintf(stderr,
                 "fake CUPTI: cuptiFinalize while threads are inside calls of CUDA, by one that is "
                 "not about to call the driver\n");
    std::abort();
  }
  // Likewise in 13 of 40 runs after records of calls, and in none of 76 without (H200, CUPTI 13.0).
  if (activities().has_recorded_calls()) {
    std::fprintf(stderr, "fake CUPTI: cuptiFinalize after calls of the API were recorded\n");
    std::abort();
  }
  // Likewise in 13 of 20 runs while threads allocated, and in none of 15 without (H100,
  // CUPTI 13.0).
  if (activities().has_recorded_allocations()) {
    std::fprintf(stderr, "fake CUPTI: cuptiFinalize after allocations were recorded\n");
    std::abort();
  }
  if (is_sampling()) {
    std::fprintf(stderr, "fake CUPTI: cuptiFinalize while it samples\n");
    std::abort();
  }
  FAKE_CUPTI_BEGIN;
  fake_cuda_note_finalize(activities().is_on(CUPTI_ACTIVITY_KIND_GRAPH_TRACE));
  activities().forget_all();
  const std::scoped_lock lock(g_lock);
  g_has_subscriber = false;
  g_is_attached = false;
  ++g_finalised;
  fake_cuda_set_tools(nullptr);
  return CUPTI_SUCCESS;
}

void fake_cupti_read_state(FakeCuptiState* state) {
  activities().read_state(*state);
  read_sampling(*state);
  state->is_attached = g_is_attached;
  state->has_subscriber = g_has_subscriber;
  state->finalised = g_finalised;
  state->subscriptions = g_subscriptions;
}
void fake_cupti_set_untimed(uint64_t count) { activities().untimed = count; }
void fake_cupti_set_reversed(uint64_t count) { activities().reversed = count; }
void fake_cupti_set_failing(const char* function) {
  g_failing = function != nullptr ? function : "";
}

}  // extern "C"
