// Another client of CUPTI, as an injected library of somebody else would be: finds CUPTI by itself
// and counts the kernels' records that it receives. If CUDA_INJECTION64_PATH names it, it starts in
// cuInit.

#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace {

// As CUPTI has them; every version agrees.
constexpr int kConcurrentKernel = 10;
constexpr uint32_t kFlushForced = 1;
constexpr size_t kBufferBytes = size_t{1} << 20;
using Requested = void (*)(uint8_t**, size_t*, size_t*);
using Completed = void (*)(void*, uint32_t, uint8_t*, size_t, size_t);

int (*g_enable)(int) = nullptr;
int (*g_disable)(int) = nullptr;
int (*g_register)(Requested, Completed) = nullptr;
int (*g_flush)(uint32_t) = nullptr;
int (*g_next)(uint8_t*, size_t, void**) = nullptr;
std::atomic<long> g_kernels = 0;
std::atomic<long> g_strangers = 0;  // records of kinds that were not asked for

void on_requested(uint8_t** buffer, size_t* size, size_t* records_max) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *size = kBufferBytes;
  *records_max = 0;
}

void on_completed(void*, uint32_t, uint8_t* buffer, size_t, size_t valid_bytes) {
  void* record = nullptr;
  while (valid_bytes > 0 && g_next(buffer, valid_bytes, &record) == 0) {
    ++(*static_cast<const int*>(record) == kConcurrentKernel ? g_kernels : g_strangers);
  }
  std::free(buffer);
}

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

// 0, or the error of the call that failed.
extern "C" int client_start() {
  void* library = dlopen("libcupti.so.13", RTLD_NOW);
  if (library == nullptr) library = dlopen("libcupti.so.12", RTLD_NOW);
  if (library == nullptr) return -1;
  if (!find(library, "cuptiActivityEnable", g_enable) ||
      !find(library, "cuptiActivityDisable", g_disable) ||
      !find(library, "cuptiActivityRegisterCallbacks", g_register) ||
      !find(library, "cuptiActivityFlushAll", g_flush) ||
      !find(library, "cuptiActivityGetNextRecord", g_next)) {
    return -2;
  }
  const int registered = g_register(on_requested, on_completed);
  return registered != 0 ? registered : g_enable(kConcurrentKernel);
}

extern "C" int InitializeInjection() {
  (void)client_start();
  return 1;
}

// Kernels seen; negative: records of other kinds came too, so many.
extern "C" long client_stop() {
  (void)g_disable(kConcurrentKernel);
  (void)g_flush(kFlushForced);
  return g_strangers != 0 ? -g_strangers : g_kernels.load();
}
