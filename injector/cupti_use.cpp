#include "injector/cupti_use.h"

#include <link.h>

#include <algorithm>
#include <cstring>

#include "injector/cupti_api.h"

namespace gpuperf::injector {
namespace {

using Word = ElfW(Addr);

constexpr uint64_t kHashPrime = 0x100000001b3;  // of FNV-1a, here by words

struct Reading {
  uintptr_t driver_begin = UINTPTR_MAX, driver_end = 0;
  CuptiUse use;
  bool has_cupti = false;
};

bool is_named(const dl_phdr_info& module, const char* part) {
  return module.dlpi_name != nullptr && std::strstr(module.dlpi_name, part) != nullptr;
}

int find_driver(dl_phdr_info* module, size_t, void* data) {
  if (!is_named(*module, "libcuda.so")) return 0;
  auto& reading = *static_cast<Reading*>(data);
  for (int i = 0; i < module->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = module->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD) continue;
    const uintptr_t begin = module->dlpi_addr + segment.p_vaddr;
    reading.driver_begin = std::min(reading.driver_begin, begin);
    reading.driver_end = std::max<uintptr_t>(reading.driver_end, begin + segment.p_memsz);
  }
  return 0;
}

// Other threads may write these words meanwhile. Sanitizers would report reads of memory that is
// not the reader's own.
[[gnu::no_sanitize_address, gnu::no_sanitize_thread]] void read_words(uintptr_t begin,
                                                                      uintptr_t end,
                                                                      Reading& reading) {
  uint64_t hash = reading.use.fingerprint;
  for (uintptr_t at = begin; at + sizeof(Word) <= end; at += sizeof(Word)) {
    const Word value = __atomic_load_n(reinterpret_cast<const Word*>(at), __ATOMIC_RELAXED);
    if (value >= reading.driver_begin && value < reading.driver_end) reading.use.has_begun = true;
    hash = (hash ^ value) * kHashPrime;
  }
  reading.use.fingerprint = hash;
}

int read_cupti(dl_phdr_info* module, size_t, void* data) {
  if (!is_named(*module, "libcupti.so")) return 0;
  auto& reading = *static_cast<Reading*>(data);
  reading.has_cupti = true;
  uintptr_t loader_end = 0;  // what the loader alone has written
  for (int i = 0; i < module->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = module->dlpi_phdr[i];
    if (segment.p_type == PT_GNU_RELRO) {
      loader_end = module->dlpi_addr + segment.p_vaddr + segment.p_memsz;
    }
  }
  for (int i = 0; i < module->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = module->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W) == 0) continue;
    const uintptr_t begin = std::max(module->dlpi_addr + segment.p_vaddr, loader_end);
    read_words((begin + sizeof(Word) - 1) & ~(sizeof(Word) - 1),
               module->dlpi_addr + segment.p_vaddr + segment.p_memsz, reading);
  }
  return 0;
}

}  // namespace

CuptiUse read_cupti_use() {
  Reading reading;
  (void)dl_iterate_phdr(find_driver, &reading);
  (void)dl_iterate_phdr(read_cupti, &reading);
  // In a namespace of the loader that is not ours, or loaded by other means.
  if (!reading.has_cupti) reading.use.has_begun = is_cupti_mapped();
  return reading.use;
}

}  // namespace gpuperf::injector
