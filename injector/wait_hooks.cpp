#include "injector/wait_hooks.h"

#include <dlfcn.h>

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
  uint32_t entry;
  Wait* real;
  Wait ours;
};
const WaitCall kWaits[] = {
#define GPUPERF_WAIT_ROW(name, type) {kEntry_##name, &real_##name, time_##name},
    GPUPERF_WAIT_ENTRIES(GPUPERF_WAIT_ROW)
#undef GPUPERF_WAIT_ROW
};
static_assert(std::size(kWaits) <= kWaitHooksMax);

}  // namespace

size_t list_wait_hooks(void* driver, std::span<PointerReplacement> replacements) {
  size_t count = 0;
  for (const WaitCall& wait : kWaits) {
    *wait.real = reinterpret_cast<Wait>(dlsym(driver, get_entry_name(wait.entry)));
    if (*wait.real == nullptr) continue;  // not in this driver
    replacements[count++] = {reinterpret_cast<Word>(*wait.real), reinterpret_cast<Word>(wait.ours)};
  }
  return count;
}

}  // namespace gpuperf::injector
