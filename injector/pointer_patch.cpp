#include "injector/pointer_patch.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace gpuperf::injector {
namespace {

constexpr uintptr_t kPageBytes = 4096;
// The driver's functions that are replaced, or CUPTI's.
constexpr size_t kReplacementsMax = 160;

// Which pages of this process hold anything. Pages never touched are not read: that would only make
// them present. Without /proc/self/pagemap all are read.
class TouchedPages {
 public:
  TouchedPages() : fd_(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)) {}
  ~TouchedPages() {
    if (fd_ >= 0) (void)close(fd_);
  }
  TouchedPages(const TouchedPages&) = delete;
  TouchedPages& operator=(const TouchedPages&) = delete;

  bool has(uintptr_t address) {
    const uintptr_t page = address / kPageBytes;
    if (page < first_ || page >= first_ + known_) {
      first_ = page;
      const ssize_t bytes =
          pread(fd_, entries_, sizeof(entries_), static_cast<off_t>(page * sizeof(entries_[0])));
      known_ = bytes > 0 ? static_cast<size_t>(bytes) / sizeof(entries_[0]) : 0;
    }
    // Bits 63 and 62: present, swapped out (admin-guide/mm/pagemap.rst).
    return known_ == 0 || entries_[page - first_] >> 62 != 0;
  }

 private:
  int fd_;
  uintptr_t first_ = 0;
  size_t known_ = 0;
  uint64_t entries_[512];
};

struct Walk {
  std::span<const PointerReplacement> replacements;
  Word lowest = 0;
  Word highest = 0;
  uintptr_t library_base = 0;
  uintptr_t own_base = 0;
  TouchedPages touched;
  Mapping mapping;
};

const PointerReplacement* find_replacement(const Walk& walk, Word real) {
  if (real < walk.lowest || real > walk.highest) return nullptr;
  const auto found = std::find_if(walk.replacements.begin(), walk.replacements.end(),
                                  [real](const auto& each) { return each.real == real; });
  return found == walk.replacements.end() ? nullptr : &*found;
}

// Sanitizers would report reads of memory that is not the reader's own.
[[gnu::no_sanitize_address, gnu::no_sanitize_thread]] void replace_in_page(Word* word,
                                                                           const Word* end,
                                                                           Walk& walk) {
  for (; word < end; ++word) {
    const Word value = __atomic_load_n(word, __ATOMIC_RELAXED);
    if (const PointerReplacement* found = find_replacement(walk, value)) {
      (void)write_word(word, found->ours, walk.mapping);
    }
  }
}

int replace_in_module(dl_phdr_info* info, size_t, void* data) {
  auto& walk = *static_cast<Walk*>(data);
  if (info->dlpi_addr == walk.library_base || info->dlpi_addr == walk.own_base) return 0;
  if (info->dlpi_name != nullptr && std::strstr(info->dlpi_name, "libcupti") != nullptr) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W) == 0) continue;
    uintptr_t at = (info->dlpi_addr + segment.p_vaddr + sizeof(Word) - 1) & ~(sizeof(Word) - 1);
    const uintptr_t end =
        (info->dlpi_addr + segment.p_vaddr + segment.p_memsz) & ~(sizeof(Word) - 1);
    while (at < end) {
      const uintptr_t page_end = std::min(end, (at | (kPageBytes - 1)) + 1);
      if (walk.touched.has(at)) {
        replace_in_page(reinterpret_cast<Word*>(at), reinterpret_cast<const Word*>(page_end), walk);
      }
      at = page_end;
    }
  }
  return 0;
}

// Number of symbols that a GNU hash table leads to: up to the end of the chain that starts last.
size_t count_symbols(const uint32_t* table) {
  const uint32_t bucket_count = table[0], first = table[1], bloom_words = table[2];
  const uint32_t* buckets = table + 4 + bloom_words * (sizeof(Word) / sizeof(uint32_t));
  const uint32_t* chains = buckets + bucket_count;
  uint32_t last = 0;
  for (uint32_t i = 0; i < bucket_count; ++i) last = std::max(last, buckets[i]);
  if (last < first) return 0;
  while ((chains[last - first] & 1) == 0) ++last;
  return last + 1;
}

void replace_symbols(const link_map& map, Walk& walk) {
  ElfW(Sym)* symbols = nullptr;
  size_t count = 0;
  // glibc has already relocated the pointers.
  for (const ElfW(Dyn)* entry = map.l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_SYMTAB) symbols = reinterpret_cast<ElfW(Sym)*>(entry->d_un.d_ptr);
    if (entry->d_tag == DT_GNU_HASH) {
      count = count_symbols(reinterpret_cast<const uint32_t*>(entry->d_un.d_ptr));
    } else if (entry->d_tag == DT_HASH && count == 0) {
      count = reinterpret_cast<const uint32_t*>(entry->d_un.d_ptr)[1];
    }
  }
  for (size_t i = 0; symbols != nullptr && i < count; ++i) {
    if (symbols[i].st_shndx == SHN_UNDEF) continue;
    const PointerReplacement* found = find_replacement(walk, map.l_addr + symbols[i].st_value);
    if (found == nullptr) continue;
    (void)write_word(&symbols[i].st_value, found->ours - map.l_addr, walk.mapping);
  }
}

}  // namespace

void restore_pointers(void* library, std::span<const PointerReplacement> replacements) {
  PointerReplacement reversed[kReplacementsMax];
  if (replacements.size() > kReplacementsMax) return;
  std::transform(replacements.begin(), replacements.end(), reversed, [](const auto& each) {
    return PointerReplacement{.real = each.ours, .ours = each.real};
  });
  replace_pointers(library, {reversed, replacements.size()});
}

void replace_pointers(void* library, std::span<const PointerReplacement> replacements) {
  link_map* map = nullptr;
  if (replacements.empty() || dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) {
    return;
  }
  Walk walk{.replacements = replacements, .library_base = map->l_addr};
  const auto [lowest, highest] =
      std::minmax_element(replacements.begin(), replacements.end(),
                          [](const auto& a, const auto& b) { return a.real < b.real; });
  walk.lowest = lowest->real;
  walk.highest = highest->real;
  Dl_info own = {};
  if (dladdr(reinterpret_cast<void*>(&replace_pointers), &own) != 0) {
    walk.own_base = reinterpret_cast<uintptr_t>(own.dli_fbase);
  }
  replace_symbols(*map, walk);
  (void)dl_iterate_phdr(replace_in_module, &walk);
}

}  // namespace gpuperf::injector
