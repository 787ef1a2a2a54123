// What torch.profiler of PyTorch 2.11 does with CUPTI, call by call, as traced on an H200.

#include <cupti.h>
#include <x86intrin.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>

#include "tests/fakes/cupti/fake_profiler.h"

namespace {

constexpr size_t kBufferBytes = 4 << 20;
constexpr CUpti_ActivityKind kKinds[] = {
    CUPTI_ACTIVITY_KIND_MEMCPY,
    CUPTI_ACTIVITY_KIND_MEMSET,
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
    CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
    CUPTI_ACTIVITY_KIND_RUNTIME,
    CUPTI_ACTIVITY_KIND_DRIVER,
    CUPTI_ACTIVITY_KIND_OVERHEAD,
};

std::mutex g_lock;
std::set<uint8_t*>& g_buffers = *new std::set<uint8_t*>;  // for threads that outlive main
FakeProfilerCounts g_counts;

void check(CUptiResult result) {
  if (result != CUPTI_SUCCESS && g_counts.first_error == 0) g_counts.first_error = result;
}

void on_call(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}

void on_request(uint8_t** buffer, size_t* size, size_t* records_max) {
  const std::scoped_lock lock(g_lock);
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(64, kBufferBytes));
  *size = kBufferBytes;
  *records_max = 0;
  g_buffers.insert(*buffer);
}

void count(const CUpti_Activity* activity) {
  switch (static_cast<uint32_t>(activity->kind)) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      ++g_counts.kernels;
      return;
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      ++g_counts.copies;
      return;
    case CUPTI_ACTIVITY_KIND_MEMSET:
      ++g_counts.sets;
      return;
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
      ++g_counts.graphs;
      return;
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER:
      ++g_counts.calls;
      return;
    default:
      ++g_counts.others;
  }
}

void on_complete(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid_bytes) {
  const std::scoped_lock lock(g_lock);
  if (g_buffers.erase(buffer) == 0) {
    std::fprintf(stderr, "fake Kineto: bufferCompleted called with unknown buffer\n");
    std::abort();
  }
  CUpti_Activity* activity = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid_bytes, &activity) == CUPTI_SUCCESS)
    count(activity);
  std::free(buffer);
}

}  // namespace

extern "C" {

void fake_profiler_start(const char*) {
  static bool is_subscribed = false;
  g_counts = {};
  if (!is_subscribed) {
    CUpti_SubscriberHandle subscriber = nullptr;  // kept for ever
    check(cuptiSubscribe(&subscriber, reinterpret_cast<CUpti_CallbackFunc>(on_call), nullptr));
    is_subscribed = true;
    check(cuptiActivityRegisterTimestampCallback([]() -> uint64_t { return __rdtsc(); }));
  }
  check(cuptiActivityRegisterCallbacks(on_request, on_complete));
  for (const CUpti_ActivityKind kind : kKinds) {
    check(cuptiActivityEnable(kind));
    if (kind == CUPTI_ACTIVITY_KIND_RUNTIME) check(cuptiActivityEnableRuntimeApi(17, 0));
    if (kind == CUPTI_ACTIVITY_KIND_DRIVER) {
      for (const CUpti_CallbackId id : {686, 392, 304}) check(cuptiActivityEnableDriverApi(id, 0));
    }
  }
}

void fake_profiler_stop(FakeProfilerCounts* counts) {
  for (const CUpti_ActivityKind kind : kKinds) check(cuptiActivityDisable(kind));
  check(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
  size_t size = sizeof(uint8_t);
  uint8_t zero = 0;
  check(cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER, &size, &zero));
  const std::scoped_lock lock(g_lock);
  *counts = g_counts;
}

}  // extern "C"
