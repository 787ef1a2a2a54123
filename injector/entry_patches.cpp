#include "injector/entry_patches.h"

#include <dlfcn.h>

#include <cstring>
#include <span>

#include "injector/graph_hooks.h"
#include "injector/hook_code.h"
#include "injector/mapping_hooks.h"
#include "injector/pointer_patch.h"
#include "injector/wait_hooks.h"

namespace gpuperf::injector {
namespace {

// How the driver's functions begin (all 249 of driver 580.95 that were checked); after endbr64
// where a driver is built with it.
constexpr uint8_t kPushRbp = 0x55;
constexpr uint8_t kEndbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};

constexpr uint32_t kStackWords[] = {
#define GPUPERF_STACK_WORDS(function, arguments) \
  (arguments) > kRegisterArguments ? (arguments)-kRegisterArguments : 0,
    GPUPERF_HOOK_ENTRIES(GPUPERF_STACK_WORDS)
#undef GPUPERF_STACK_WORDS
};

// Everything to replace: the entries, the functions that create graphs, wait or map, and those that
// return their addresses.
PointerReplacement
    g_replacements[GPUPERF_HOOK_COUNT + kGraphHooksMax + kWaitHooksMax + kMappingHooksMax + 2];
size_t g_replacement_count = 0;

// Replaces what cuGetProcAddress found.
void replace_found(uint32_t result, void** found) {
  if (result != 0 || found == nullptr) return;
  for (size_t i = 0; i < g_replacement_count; ++i) {
    if (g_replacements[i].real != reinterpret_cast<Word>(*found)) continue;
    *found = reinterpret_cast<void*>(g_replacements[i].ours);
    return;
  }
}

// cuGetProcAddress and its newer form; results as in enum CUresult.
using LookUp = uint32_t (*)(const char*, void**, int, uint64_t);
LookUp g_look_up = nullptr;
uint32_t look_up(const char* name, void** found, int version, uint64_t flags) {
  const uint32_t result = g_look_up(name, found, version, flags);
  replace_found(result, found);
  return result;
}

using LookUpV2 = uint32_t (*)(const char*, void**, int, uint64_t, void*);
LookUpV2 g_look_up_v2 = nullptr;
uint32_t look_up_v2(const char* name, void** found, int version, uint64_t flags, void* status) {
  const uint32_t result = g_look_up_v2(name, found, version, flags, status);
  replace_found(result, found);
  return result;
}

// Whether the function begins in the way that allows entering it past its breakpoint.
bool read_entry(Word real, HookedEntry& entry) {
  uint8_t bytes[8];
  std::memcpy(bytes, reinterpret_cast<const void*>(real), sizeof(bytes));
  const size_t push_at = std::memcmp(bytes, kEndbr64, sizeof(kEndbr64)) == 0 ? sizeof(kEndbr64) : 0;
  // A probe may be there already; the daemon always puts it on this instruction.
  constexpr uint8_t kBreakpoint = 0xcc;
  if (bytes[push_at] != kPushRbp && bytes[push_at] != kBreakpoint) return false;
  // push %rbp; mov %rsp, %rbp: anything else that begins with a breakpoint here is unknown.
  constexpr uint8_t kMoveRspRbp[] = {0x48, 0x89, 0xe5};
  if (std::memcmp(bytes + push_at + 1, kMoveRspRbp, sizeof(kMoveRspRbp)) != 0) return false;
  entry.real = real;
  entry.past = real + push_at + 1;
  entry.breakpoint_at = static_cast<uint32_t>(8 * push_at);
  entry.first_bytes = entry.read_first_bytes();
  return true;
}

}  // namespace

bool list_entries(void* driver) {
  if (g_replacement_count != 0) return true;  // attached before
  for (uint32_t i = 0; i < GPUPERF_HOOK_COUNT; ++i) {
    const auto real = reinterpret_cast<Word>(dlsym(driver, get_entry_name(i)));
    if (real == 0 || !read_entry(real, gpuperf_entries[i])) continue;
    gpuperf_entries[i].stack_words = kStackWords[i];
    g_replacements[g_replacement_count++] = {real, find_hook(i)};
  }
  if (g_replacement_count == 0) return false;
  g_replacement_count +=
      list_graph_hooks(driver, std::span(g_replacements).subspan(g_replacement_count));
  g_replacement_count +=
      list_wait_hooks(driver, std::span(g_replacements).subspan(g_replacement_count));
  g_replacement_count +=
      list_mapping_hooks(driver, std::span(g_replacements).subspan(g_replacement_count));
  g_look_up = reinterpret_cast<LookUp>(dlsym(driver, "cuGetProcAddress"));
  g_look_up_v2 = reinterpret_cast<LookUpV2>(dlsym(driver, "cuGetProcAddress_v2"));
  if (g_look_up != nullptr) {
    g_replacements[g_replacement_count++] = {reinterpret_cast<Word>(g_look_up),
                                             reinterpret_cast<Word>(&look_up)};
  }
  if (g_look_up_v2 != nullptr) {
    g_replacements[g_replacement_count++] = {reinterpret_cast<Word>(g_look_up_v2),
                                             reinterpret_cast<Word>(&look_up_v2)};
  }
  return true;
}

void replace_entries(void* driver) {
  replace_pointers(driver, {g_replacements, g_replacement_count});
}

void restore_entries(void* driver) {
  restore_pointers(driver, {g_replacements, g_replacement_count});
}

}  // namespace gpuperf::injector
