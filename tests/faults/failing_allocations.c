// Preloaded into a program: lets chosen allocations of it fail. The file that the variable
// GPUPERF_FAILING_ALLOCATIONS names has four numbers of 64 bits: how many allocations there were,
// which of them fails (0: none), whether all after it fail too, how many have failed.
//
// Counted are mmap, and with "malloc" in GPUPERF_FAILING_CALLS malloc, calloc, realloc and
// aligned_alloc, of the object that GPUPERF_FAILING_OBJECT names, or of all without it.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);

struct control {
  _Atomic uint64_t count;
  _Atomic uint64_t fails_at;
  _Atomic uint64_t fails_on;
  _Atomic uint64_t failed;
};

static struct control* control;
static const char* object;
static bool counts_malloc;

__attribute__((constructor)) static void begin(void) {
  const char* path = getenv("GPUPERF_FAILING_ALLOCATIONS");
  const char* calls = getenv("GPUPERF_FAILING_CALLS");
  object = getenv("GPUPERF_FAILING_OBJECT");
  counts_malloc = calls != NULL && strcmp(calls, "malloc") == 0;
  const int fd = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (fd < 0) return;
  void* mapped = (void*)syscall(SYS_mmap, NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped != MAP_FAILED) control = mapped;
}

static bool fails(const void* caller) {
  if (control == NULL) return false;
  Dl_info info;
  if (object != NULL && (dladdr(caller, &info) == 0 || strstr(info.dli_fname, object) == NULL)) return false;
  const uint64_t number = atomic_fetch_add(&control->count, 1) + 1;
  const uint64_t at = atomic_load(&control->fails_at);
  if (at == 0 || number < at || (number > at && atomic_load(&control->fails_on) == 0)) return false;
  atomic_fetch_add(&control->failed, 1);
  errno = ENOMEM;
  return true;
}

static bool malloc_fails(const void* caller) { return counts_malloc && fails(caller); }

void* mmap(void* at, size_t length, int protection, int flags, int fd, off_t offset) {
  if (fails(__builtin_return_address(0))) return MAP_FAILED;
  return (void*)syscall(SYS_mmap, at, length, protection, flags, fd, offset);
}
void* mmap64(void* at, size_t length, int protection, int flags, int fd, off_t offset) __attribute__((alias("mmap")));

void* malloc(size_t size) { return malloc_fails(__builtin_return_address(0)) ? NULL : __libc_malloc(size); }
void* calloc(size_t count, size_t size) {
  return malloc_fails(__builtin_return_address(0)) ? NULL : __libc_calloc(count, size);
}
void* realloc(void* at, size_t size) {
  return malloc_fails(__builtin_return_address(0)) ? NULL : __libc_realloc(at, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  return malloc_fails(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, size);
}
