#include "injector/wait_hooks.h"

#include "injector/call_log.h"
#include "injector/launch_hooks.h"

namespace gpuperf::injector {
namespace {

// Each takes one word at most, passed on unchanged.
using Wait = Word (*)(Word);

#define GPUPERF_WAIT(name, type)                                      \
  Wait real_##name = nullptr;                                         \
  Word time_##name(Word handle) {                                     \
    if (!is_call_log_on()) return real_##name(handle);                \
    const uint64_t start_ns = read_call_clock_ns();                   \
    const Word result = real_##name(handle);                          \
    log_wait(kEntry_##name, start_ns, static_cast<uint32_t>(result)); \
    return result;                                                    \
  }
GPUPERF_WAIT_ENTRIES(GPUPERF_WAIT)
#undef GPUPERF_WAIT

struct WaitCall {
  const char* name;
  Wait* real;
  Wait ours;
};
const WaitCall kWaits[] = {
#define GPUPERF_WAIT_ROW(name, type) {#name, &real_##name, time_##name},
    GPUPERF_WAIT_ENTRIES(GPUPERF_WAIT_ROW)
#undef GPUPERF_WAIT_ROW
};
static_assert(std::size(kWaits) <= kWaitHooksMax);

}  // namespace

size_t list_wait_hooks(void* driver, std::span<PointerReplacement> replacements) {
  return list_replacements(driver, kWaits, replacements);
}

}  // namespace gpuperf::injector
