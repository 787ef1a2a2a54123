#include "injector/data_patch.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace gpuperf::injector {
namespace {

bool find_mapping(uintptr_t address, Mapping& mapping) {
  if (address >= mapping.start && address < mapping.end) return true;
  const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  static char text[1 << 16];
  size_t kept = 0;
  bool is_found = false;
  for (ssize_t count = 1; count > 0 && !is_found;) {
    count = read(fd, text + kept, sizeof(text) - 1 - kept);
    if (count < 0) break;
    text[kept + static_cast<size_t>(count)] = '\0';
    char* line = text;
    for (char* end = std::strchr(line, '\n'); end != nullptr; end = std::strchr(line, '\n')) {
      char* at = line;
      const uintptr_t first = std::strtoull(at, &at, 16);
      const uintptr_t last = std::strtoull(at + 1, &at, 16);
      if (address >= first && address < last) {
        mapping = {first, last,
                   (at[1] == 'r' ? PROT_READ : 0) | (at[2] == 'w' ? PROT_WRITE : 0) |
                       (at[3] == 'x' ? PROT_EXEC : 0)};
        is_found = true;
        break;
      }
      line = end + 1;
    }
    kept = std::strlen(line);
    std::memmove(text, line, kept);
  }
  (void)close(fd);
  return is_found;
}

}  // namespace

bool write_word(Word* word, Word value, Mapping& mapping) {
  const auto address = reinterpret_cast<uintptr_t>(word);
  if (address % sizeof(Word) != 0 || !find_mapping(address, mapping)) return false;
  if ((mapping.protection & PROT_EXEC) != 0) return false;  // never near code
  const bool is_writable = (mapping.protection & PROT_WRITE) != 0;
  void* page = reinterpret_cast<void*>(address & ~uintptr_t{4095});
  if (!is_writable && mprotect(page, 4096, mapping.protection | PROT_WRITE) != 0) return false;
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
  if (!is_writable) {
    (void)mprotect(page, 4096, mapping.protection);  // as it was
    mapping = {};                                    // it may have been split
  }
  return true;
}

}  // namespace gpuperf::injector
