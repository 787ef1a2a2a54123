#include "injector/yield.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <atomic>
#include <cstring>

#include "injector/collector.h"
#include "injector/data_patch.h"
#include "injector/pointer_patch.h"

namespace gpuperf::injector {
namespace {

// Every function below takes at most six arguments, only integers and pointers, passed on
// unchanged.
using AnyFunction = Word (*)(Word, Word, Word, Word, Word, Word);

// X(function, its meaning, the record kind or callback id it concerns)
#define GPUPERF_FOREIGN_CALLS(X)                                                             \
  X(cuptiSubscribe, ForeignCall::kSubscribe, 0)                                              \
  X(cuptiSubscribe_v2, ForeignCall::kSubscribe, 0)                                           \
  X(cuptiActivityRegisterCallbacks, ForeignCall::kRegister, 0)                               \
  X(cuptiActivityRegisterCallbacks_v2, ForeignCall::kRegister, 0)                            \
  X(cuptiActivityEnable, ForeignCall::kEnable, a)                                            \
  X(cuptiActivityEnable_v2, ForeignCall::kEnable, b)                                         \
  X(cuptiActivityEnableAndDump, ForeignCall::kEnable, a)                                     \
  X(cuptiActivityEnableContext, ForeignCall::kEnable, b)                                     \
  X(cuptiActivityDisable, ForeignCall::kDisable, a)                                          \
  X(cuptiActivityDisable_v2, ForeignCall::kDisable, b)                                       \
  X(cuptiActivityDisableContext, ForeignCall::kDisable, b)                                   \
  X(cuptiActivityEnableRuntimeApi,                                                           \
    (b & 0xff) != 0 ? ForeignCall::kEnableRuntimeCall : ForeignCall::kDisableRuntimeCall, a) \
  X(cuptiActivityEnableDriverApi,                                                            \
    (b & 0xff) != 0 ? ForeignCall::kEnableDriverCall : ForeignCall::kDisableDriverCall, a)   \
  X(cuptiActivityPushExternalCorrelationId, ForeignCall::kUse, 0)                            \
  X(cuptiActivityRegisterTimestampCallback, ForeignCall::kClock, 0)                          \
  X(cuptiProfilerInitialize, ForeignCall::kProfileBegin, 0)                                  \
  X(cuptiProfilerDeInitialize, ForeignCall::kProfileEnd, 0)                                  \
  X(cuptiRangeProfilerEnable, ForeignCall::kProfileBegin, 0)                                 \
  X(cuptiRangeProfilerDisable, ForeignCall::kProfileEnd, 0)                                  \
  X(cuptiPCSamplingEnable, ForeignCall::kProfileBegin, 0)                                    \
  X(cuptiPCSamplingDisable, ForeignCall::kProfileEnd, 0)                                     \
  X(cuptiFinalize, ForeignCall::kFinalize, 0)

// The real functions; null where this libcupti lacks one.
#define GPUPERF_REAL(name, call, kind) AnyFunction real_##name = nullptr;
GPUPERF_FOREIGN_CALLS(GPUPERF_REAL)
#undef GPUPERF_REAL

#define GPUPERF_STAND_IN(name, call, kind)                                                         \
  Word in_between_##name([[maybe_unused]] Word a, [[maybe_unused]] Word b, Word c, Word d, Word e, \
                         Word f) {                                                                 \
    g_collector->on_foreign_call(call, static_cast<uint32_t>(kind), __builtin_return_address(0));  \
    return real_##name(a, b, c, d, e, f);                                                          \
  }
GPUPERF_FOREIGN_CALLS(GPUPERF_STAND_IN)
#undef GPUPERF_STAND_IN

struct Hook {
  const char* name;
  AnyFunction* real;
  AnyFunction ours;
};
const Hook kHooks[] = {
#define GPUPERF_HOOK(name, call, kind) {#name, &real_##name, in_between_##name},
    GPUPERF_FOREIGN_CALLS(GPUPERF_HOOK)
#undef GPUPERF_HOOK
};

// The parts of the dynamic section that are read, of a library that needs libcupti.
struct Dynamic {
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  const ElfW(Rela) * calls = nullptr;  // DT_JMPREL
  size_t call_count = 0;
  const ElfW(Rela) * others = nullptr;  // DT_RELA, after those that name no symbol
  size_t other_count = 0;
};

bool read_dynamic(const dl_phdr_info& info, Dynamic& found) {
  const ElfW(Dyn)* entry = nullptr;
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    if (info.dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    entry = reinterpret_cast<const ElfW(Dyn)*>(info.dlpi_addr + info.dlpi_phdr[i].p_vaddr);
  }
  if (entry == nullptr) return false;
  // glibc has relocated these; other loaders leave them relative.
  const auto at = [&info](ElfW(Addr) pointer) {
    return pointer < info.dlpi_addr ? pointer + info.dlpi_addr : pointer;
  };
  size_t relative_count = 0;
  const ElfW(Dyn)* first = entry;
  for (; entry->d_tag != DT_NULL; ++entry) {
    const auto pointer = at(entry->d_un.d_ptr);
    const size_t value = entry->d_un.d_val;
    if (entry->d_tag == DT_SYMTAB) found.symbols = reinterpret_cast<const ElfW(Sym)*>(pointer);
    if (entry->d_tag == DT_STRTAB) found.strings = reinterpret_cast<const char*>(pointer);
    if (entry->d_tag == DT_JMPREL) found.calls = reinterpret_cast<const ElfW(Rela)*>(pointer);
    if (entry->d_tag == DT_PLTRELSZ) found.call_count = value / sizeof(ElfW(Rela));
    if (entry->d_tag == DT_RELA) found.others = reinterpret_cast<const ElfW(Rela)*>(pointer);
    if (entry->d_tag == DT_RELASZ) found.other_count = value / sizeof(ElfW(Rela));
    if (entry->d_tag == DT_RELACOUNT) relative_count = value;
  }
  if (found.others != nullptr && relative_count <= found.other_count) {
    found.others += relative_count;
    found.other_count -= relative_count;
  }
  if (found.symbols == nullptr || found.strings == nullptr) return false;
  for (entry = first; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag != DT_NEEDED) continue;
    if (std::strncmp(found.strings + entry->d_un.d_val, "libcupti", 8) == 0) return true;
  }
  return false;
}

struct Walk {
  uintptr_t cupti_base = 0;
  uintptr_t own_base = 0;
  Mapping mapping;
};

// Redirects the import slots of one list of relocations. True: it imports from CUPTI.
bool turn_slots(const dl_phdr_info& info, const Dynamic& dynamic, const ElfW(Rela) * list,
                size_t count, Mapping& mapping) {
  bool has_any = false;
  for (size_t i = 0; i < count; ++i) {
    const auto type = ELF64_R_TYPE(list[i].r_info);
    if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT && type != R_X86_64_64) continue;
    const char* name = dynamic.strings + dynamic.symbols[ELF64_R_SYM(list[i].r_info)].st_name;
    if (std::strncmp(name, "cupti", 5) != 0) continue;
    has_any = true;
    for (const Hook& hook : kHooks) {
      if (*hook.real == nullptr || std::strcmp(hook.name, name) != 0) continue;
      auto* slot = reinterpret_cast<Word*>(info.dlpi_addr + list[i].r_offset);
      const Word now = __atomic_load_n(slot, __ATOMIC_RELAXED);
      // A lazily bound slot points back into its own library until its first call, which then
      // resolves to ours through the symbol table. A slot that points elsewhere was changed by
      // someone else.
      if (now == reinterpret_cast<Word>(*hook.real)) {
        (void)write_word(slot, reinterpret_cast<Word>(hook.ours), mapping);
      }
    }
  }
  return has_any;
}

int turn_library(dl_phdr_info* info, size_t, void* data) {
  auto& walk = *static_cast<Walk*>(data);
  if (info->dlpi_addr == walk.cupti_base || info->dlpi_addr == walk.own_base) return 0;
  Dynamic dynamic;
  if (!read_dynamic(*info, dynamic)) return 0;
  // A library that calls CUPTI through a procedure linkage table has no other slots: skip the long
  // list.
  if (dynamic.calls != nullptr &&
      turn_slots(*info, dynamic, dynamic.calls, dynamic.call_count, walk.mapping)) {
    return 0;
  }
  if (dynamic.others != nullptr) {
    (void)turn_slots(*info, dynamic, dynamic.others, dynamic.other_count, walk.mapping);
  }
  return 0;
}

void turn_symbols(void* library, Walk& walk) {
  for (const Hook& hook : kHooks) {
    void* real = dlsym(library, hook.name);
    if (real == nullptr) continue;
    Dl_info info = {};
    ElfW(Sym)* symbol = nullptr;
    if (dladdr1(real, &info, reinterpret_cast<void**>(&symbol), RTLD_DL_SYMENT) == 0) continue;
    if (symbol == nullptr ||
        walk.cupti_base + symbol->st_value != reinterpret_cast<uintptr_t>(real)) {
      continue;
    }
    *hook.real = reinterpret_cast<AnyFunction>(real);
    (void)write_word(&symbol->st_value, reinterpret_cast<Word>(hook.ours) - walk.cupti_base,
                     walk.mapping);
  }
}

// CUPTI, once we stand between it and others, and how many libraries had been loaded by then.
void* g_library = nullptr;
unsigned long long g_loads = 0;

int count_loads(dl_phdr_info* info, size_t size, void* data) {
  if (size >= offsetof(dl_phdr_info, dlpi_subs)) {
    *static_cast<unsigned long long*>(data) = info->dlpi_adds;
  }
  return 1;
}

}  // namespace

void stand_between(const CuptiApi& api) {
  if (api.library == nullptr) return;
  unsigned long long loads_now = 0;
  (void)dl_iterate_phdr(count_loads, &loads_now);
  if (g_library != nullptr && loads_now == g_loads) return;
  const bool is_first = g_library == nullptr;
  g_library = api.library;
  g_loads = loads_now;
  link_map* map = nullptr;
  if (dlinfo(g_library, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return;
  Walk walk;
  walk.cupti_base = map->l_addr;
  Dl_info own = {};
  if (dladdr(reinterpret_cast<void*>(&stand_between), &own) != 0) {
    walk.own_base = reinterpret_cast<uintptr_t>(own.dli_fbase);
  }
  if (is_first) turn_symbols(g_library, walk);
  (void)dl_iterate_phdr(turn_library, &walk);
}

void stand_aside() {
  if (g_library == nullptr) return;
  PointerReplacement hooks[std::size(kHooks)];
  size_t count = 0;
  for (const Hook& hook : kHooks) {
    if (*hook.real == nullptr) continue;
    hooks[count++] = {reinterpret_cast<Word>(*hook.real), reinterpret_cast<Word>(hook.ours)};
  }
  restore_pointers(g_library, {hooks, count});
  g_library = nullptr;
}

}  // namespace gpuperf::injector
