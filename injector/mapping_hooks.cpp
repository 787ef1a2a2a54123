#include "injector/mapping_hooks.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>

#include "injector/clocks.h"
#include "injector/module_images.h"

// No cuda.h: it renames functions to their newer forms, and each form has a row here.

namespace gpuperf::injector {
namespace {

// Calls that are inside any of these hooks. A call counts itself first and then checks whether
// calls are held back; the thread that holds them back announces that first and then checks the
// count. So at least one of the two sees the other.
std::atomic<uint32_t> g_inside = 0;
std::atomic<uint64_t> g_held_until_ms = 0;  // 0 = calls pass
std::atomic<pthread_t> g_holder = {};

bool must_wait() {
  const uint64_t until_ms = g_held_until_ms.load();
  return until_ms != 0 && read_mono_ms() < until_ms && g_holder.load() != pthread_self();
}

void wait_outside() {
  const int error = errno;
  do {
    g_inside.fetch_sub(1);
    while (must_wait()) sleep_until_next_look();
    g_inside.fetch_add(1);
  } while (must_wait());
  errno = error;
}

// Every function below takes only integers and pointers, eight at most, passed on unchanged.
using AnyFunction = Word (*)(Word, Word, Word, Word, Word, Word, Word, Word);

#define GPUPERF_MAPPING_CALLS(X)    \
  X(cuArray3DCreate_v2)             \
  X(cuArrayCreate_v2)               \
  X(cuArrayDestroy)                 \
  X(cuCtxCreate_v2)                 \
  X(cuCtxCreate_v3)                 \
  X(cuCtxCreate_v4)                 \
  X(cuCtxDestroy_v2)                \
  X(cuCtxDisablePeerAccess)         \
  X(cuCtxEnablePeerAccess)          \
  X(cuCtxSetLimit)                  \
  X(cuDestroyExternalMemory)        \
  X(cuDevicePrimaryCtxRelease_v2)   \
  X(cuDevicePrimaryCtxReset_v2)     \
  X(cuDevicePrimaryCtxRetain)       \
  X(cuFuncGetModule)                \
  X(cuFuncLoad)                     \
  X(cuGraphExecDestroy)             \
  X(cuGraphUpload)                  \
  X(cuGraphUpload_ptsz)             \
  X(cuImportExternalMemory)         \
  X(cuIpcCloseMemHandle)            \
  X(cuIpcOpenMemHandle_v2)          \
  X(cuKernelGetFunction)            \
  X(cuLibraryLoadFromFile)          \
  X(cuLibraryUnload)                \
  X(cuMemAddressFree)               \
  X(cuMemAddressReserve)            \
  X(cuMemAllocAsync)                \
  X(cuMemAllocAsync_ptsz)           \
  X(cuMemAllocFromPoolAsync)        \
  X(cuMemAllocFromPoolAsync_ptsz)   \
  X(cuMemAllocHost_v2)              \
  X(cuMemAllocManaged)              \
  X(cuMemAllocPitch_v2)             \
  X(cuMemAlloc_v2)                  \
  X(cuMemCreate)                    \
  X(cuMemFreeAsync)                 \
  X(cuMemFreeAsync_ptsz)            \
  X(cuMemFreeHost)                  \
  X(cuMemFree_v2)                   \
  X(cuMemHostAlloc)                 \
  X(cuMemHostRegister_v2)           \
  X(cuMemHostUnregister)            \
  X(cuMemImportFromShareableHandle) \
  X(cuMemMap)                       \
  X(cuMemPoolCreate)                \
  X(cuMemPoolDestroy)               \
  X(cuMemPoolTrimTo)                \
  X(cuMemRelease)                   \
  X(cuMemSetAccess)                 \
  X(cuMemUnmap)                     \
  X(cuMipmappedArrayCreate)         \
  X(cuMipmappedArrayDestroy)        \
  X(cuModuleGetFunction)            \
  X(cuModuleLoad)                   \
  X(cuModuleUnload)                 \
  X(cuMulticastBindAddr)            \
  X(cuMulticastBindMem)             \
  X(cuMulticastCreate)              \
  X(cuMulticastUnbind)              \
  X(cuStreamCreate)                 \
  X(cuStreamCreateWithPriority)     \
  X(cuStreamDestroy_v2)

// Those whose second argument is the image that a module is made of.
#define GPUPERF_LOADING_CALLS(X) \
  X(cuLibraryLoadData)           \
  X(cuModuleLoadData)            \
  X(cuModuleLoadDataEx)          \
  X(cuModuleLoadFatBinary)

#define GPUPERF_PASS(name, note_result)                                              \
  AnyFunction real_##name = nullptr;                                                 \
  Word pass_##name(Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h) { \
    g_inside.fetch_add(1);                                                           \
    if (g_held_until_ms.load() != 0 && must_wait()) [[unlikely]]                     \
      wait_outside();                                                                \
    const Word result = real_##name(a, b, c, d, e, f, g, h);                         \
    g_inside.fetch_sub(1);                                                           \
    note_result;                                                                     \
    return result;                                                                   \
  }
#define GPUPERF_MAPPING_CALL(name) GPUPERF_PASS(name, )
#define GPUPERF_LOADING_CALL(name) GPUPERF_PASS(name, if (result == 0) note_module_image(b))
GPUPERF_MAPPING_CALLS(GPUPERF_MAPPING_CALL)
GPUPERF_LOADING_CALLS(GPUPERF_LOADING_CALL)
#undef GPUPERF_LOADING_CALL
#undef GPUPERF_MAPPING_CALL
#undef GPUPERF_PASS

struct MappingCall {
  const char* name;
  AnyFunction* real;
  AnyFunction ours;
};
const MappingCall kMappingCalls[] = {
#define GPUPERF_MAPPING_ROW(name) {#name, &real_##name, pass_##name},
    GPUPERF_MAPPING_CALLS(GPUPERF_MAPPING_ROW) GPUPERF_LOADING_CALLS(GPUPERF_MAPPING_ROW)
#undef GPUPERF_MAPPING_ROW
};
static_assert(std::size(kMappingCalls) <= kMappingHooksMax);

}  // namespace

size_t list_mapping_hooks(void* driver, std::span<PointerReplacement> replacements) {
  return list_replacements(driver, kMappingCalls, replacements);
}

bool hold_mapping_calls(uint64_t patience_ms, uint64_t held_ms_max) {
  g_holder.store(pthread_self());
  const uint64_t start_ms = read_mono_ms();
  g_held_until_ms.store(start_ms + patience_ms + held_ms_max);
  while (g_inside.load() != 0) {
    if (read_mono_ms() - start_ms >= patience_ms) {
      release_mapping_calls();
      return false;
    }
    sleep_until_next_look();
  }
  return true;
}

void release_mapping_calls() { g_held_until_ms.store(0); }

}  // namespace gpuperf::injector
