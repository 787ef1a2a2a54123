// A client that carries no import of CUPTI: it looks every function up when it starts.

#include <cupti.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>

#include "tests/fakes/cupti/fake_profiler.h"

namespace {

constexpr size_t kBufferBytes = 64 << 10;

std::mutex g_lock;
std::set<uint8_t*>& g_buffers = *new std::set<uint8_t*>;  // for threads that outlive main
FakeProfilerCounts g_counts;
void* g_library = nullptr;
CUpti_SubscriberHandle g_subscriber = nullptr;

#define FAKE_FIND(name) reinterpret_cast<decltype(&::name)>(dlsym(g_library, #name))

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

void on_complete(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid_bytes) {
  const std::scoped_lock lock(g_lock);
  if (g_buffers.erase(buffer) == 0) {
    std::fprintf(stderr, "fake Proton: a buffer that is not ours\n");
    std::abort();
  }
  CUpti_Activity* activity = nullptr;
  while (FAKE_FIND(cuptiActivityGetNextRecord)(buffer, valid_bytes, &activity) == CUPTI_SUCCESS) {
    const bool is_kernel = activity->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    ++(is_kernel ? g_counts.kernels : g_counts.others);
  }
  std::free(buffer);
}

}  // namespace

extern "C" {

void fake_profiler_start(const char* path) {
  if (g_library == nullptr) g_library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (g_library == nullptr) {
    std::fprintf(stderr, "fake Proton: %s\n", dlerror());
    std::abort();
  }
  g_counts = {};
  check(FAKE_FIND(cuptiSubscribe)(&g_subscriber, reinterpret_cast<CUpti_CallbackFunc>(on_call),
                                  nullptr));
  check(FAKE_FIND(cuptiActivityRegisterCallbacks)(on_request, on_complete));
  check(FAKE_FIND(cuptiActivityEnable)(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
}

void fake_profiler_stop(FakeProfilerCounts* counts) {
  check(FAKE_FIND(cuptiActivityDisable)(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
  check(FAKE_FIND(cuptiActivityFlushAll)(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
  check(FAKE_FIND(cuptiUnsubscribe)(g_subscriber));
  const std::scoped_lock lock(g_lock);
  *counts = g_counts;
}

}  // extern "C"
