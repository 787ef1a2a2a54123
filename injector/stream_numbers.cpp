#include "injector/stream_numbers.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>

#include "injector/graph_hooks.h"

namespace gpuperf::injector {
namespace {

constexpr uint64_t kPerThreadStream = 2;  // CU_STREAM_PER_THREAD
constexpr uint32_t kSlots = 2048;
constexpr uint32_t kProbes = 16;
constexpr useconds_t kLookUs = 100;
constexpr int kLooks = 20;

using StreamGetId = uint32_t (*)(uint64_t stream, unsigned long long* id);
StreamGetId g_stream_get_id = nullptr;
using CtxGetCurrent = uint32_t (*)(CUcontext* context);
CtxGetCurrent g_get_current = nullptr;
using StreamIsCapturing = uint32_t (*)(uint64_t stream, uint32_t* status);
StreamIsCapturing g_is_capturing = nullptr;

std::atomic<AskStream> g_ask = nullptr;
std::atomic<int> g_asking = 0;
// Upper half: the driver's number; lower half: CUPTI's. 0 = empty.
std::atomic<uint64_t> g_known[kSlots] = {};

// `slot`: to keep it in.
uint32_t ask(uint64_t handle, uint32_t own, std::atomic<uint64_t>& slot) {
  uint32_t number = kNoStream;
  g_asking.fetch_add(1);
  // Read only after this thread is counted: set_stream_asker() clears it first, then waits for the
  // count.
  if (const AskStream asked = g_ask.load(); asked != nullptr) {
    const auto stream = reinterpret_cast<CUstream>(handle);
    CUcontext context = nullptr;  // without a context, a default stream has no number
    if (g_get_current(&context) != 0 || asked(context, stream, 0, &number) != CUPTI_SUCCESS) {
      number = kNoStream;
    }
    if (number != kNoStream) slot.store(uint64_t{own} << 32 | number, std::memory_order_relaxed);
  }
  g_asking.fetch_sub(1);
  return number;
}

}  // namespace

bool set_up_stream_numbers(void* driver) {
  g_stream_get_id = reinterpret_cast<StreamGetId>(dlsym(driver, "cuStreamGetId"));
  g_is_capturing = reinterpret_cast<StreamIsCapturing>(dlsym(driver, "cuStreamIsCapturing"));
  g_get_current = reinterpret_cast<CtxGetCurrent>(dlsym(driver, "cuCtxGetCurrent"));
  return g_stream_get_id != nullptr && g_is_capturing != nullptr && g_get_current != nullptr;
}

void set_stream_asker(AskStream ask) {
  g_ask.store(ask);
  for (int i = 0; ask == nullptr && i < kLooks && are_streams_asked(); ++i) (void)usleep(kLookUs);
  for (auto& known : g_known) known.store(0, std::memory_order_relaxed);
}

bool are_streams_asked() { return g_asking.load() != 0; }

uint32_t find_stream_number(uint64_t handle, bool is_per_thread, bool& has_work) {
  if (handle == 0 && is_per_thread) handle = kPerThreadStream;
  uint32_t capture = 0;  // CUstreamCaptureStatus; the query does not end a capture
  if (is_capture_open() && g_is_capturing(handle, &capture) == 0 && capture != 0) {
    has_work = false;
    return kNoStream;
  }
  unsigned long long id = 0;
  if (g_stream_get_id == nullptr || g_stream_get_id(handle, &id) != 0) return kNoStream;
  const auto own = static_cast<uint32_t>(id);
  std::atomic<uint64_t>* place = &g_known[own % kSlots];  // of an old stream, if none is empty
  for (uint32_t i = 0; i < kProbes; ++i) {
    std::atomic<uint64_t>& slot = g_known[(own + i) % kSlots];
    const uint64_t known = slot.load(std::memory_order_relaxed);
    if (known >> 32 == own && known != 0) return static_cast<uint32_t>(known);
    if (known == 0) {
      place = &slot;
      break;
    }
  }
  return ask(handle, own, *place);
}

}  // namespace gpuperf::injector
