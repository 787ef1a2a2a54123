// What the new thread begins with in a process that is attached to: loads the library.
//
// The worker maps these pages of the library's file before the library is loaded, so nothing here
// is relocated: no global, no string, no call but through the block. Thread: the new one, which
// holds nothing of the program's; a lock of the loader is waited for here and nowhere else.

#include <dlfcn.h>
#include <sys/syscall.h>

#include <cstddef>
#include <cstdint>

#include "injector/attach_abi.h"

extern "C" __attribute__((visibility("default"), section(".text.gpuperf_attach_stub"),
                          optimize("no-tree-loop-distribute-patterns"))) void*
gpuperf_attach_stub(void* argument) {
  auto* const block = static_cast<gpuperf_attach_block*>(argument);
  using Syscall = long (*)(long, ...);
  using Open = void* (*)(const char*, int);
  using Find = void* (*)(void*, const char*);
  using Explain = char* (*)();
  using Self = unsigned long (*)();
  using Detach = int (*)(unsigned long);
  using Enter = void* (*)(void*);
  const auto call = reinterpret_cast<Syscall>(block->syscall);
  // None of the program's signals is delivered to this thread.
  uint64_t all = UINT64_MAX;
  (void)call(SYS_rt_sigprocmask, 0 /* SIG_BLOCK */, &all, nullptr, sizeof(all));
  block->thread = static_cast<__u32>(call(SYS_gettid));
  (void)reinterpret_cast<Detach>(block->pthread_detach)(
      reinterpret_cast<Self>(block->pthread_self)());
  void* const library = reinterpret_cast<Open>(block->dlopen)(block->path, RTLD_NOW | RTLD_LOCAL);
  void* const entry = library != nullptr
                          ? reinterpret_cast<Find>(block->dlsym)(library, block->entry_name)
                          : nullptr;
  if (entry != nullptr) {
    block->entry = reinterpret_cast<uint64_t>(entry);
    return reinterpret_cast<Enter>(entry)(block);
  }
  const char* const error = reinterpret_cast<Explain>(block->dlerror)();
  for (size_t i = 0; error != nullptr && i + 1 < sizeof(block->text); ++i) {
    block->text[i] = error[i];
    if (error[i] == '\0') break;
  }
  (void)call(SYS_close, static_cast<long>(block->socket_fd));
  (void)call(SYS_close, static_cast<long>(block->daemon_fd));
  (void)call(SYS_close, static_cast<long>(block->library_fd));
  (void)call(SYS_close, static_cast<long>(block->block_fd));
  block->socket_fd = block->daemon_fd = block->library_fd = block->block_fd = -1;
  __atomic_store_n(&block->state, static_cast<__u32>(GPUPERF_ATTACH_FAILED), __ATOMIC_RELEASE);
  return nullptr;
}
