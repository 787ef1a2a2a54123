#include "tests/gpu/launch_truth.h"

#include <cupti.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <type_traits>

namespace {

constexpr size_t kThreadsMax = 256;
constexpr size_t kCallsPerThread = 1'000'000;  // 48 MB of addresses a thread; memory as it is used
constexpr int kNestingMax = 8;
constexpr uint32_t kCallbackIdsMax = 2'000;  // CUDA 13.0 has fewer than 1,000 in either domain

// The launching calls of one thread. Written by that thread only.
struct ThreadCalls {
  LaunchTruth* calls = nullptr;
  std::atomic<size_t> count = 0;
  std::atomic<uint64_t> missed_count = 0;
};

ThreadCalls g_threads[kThreadsMax];
std::atomic<size_t> g_thread_count = 0;
std::atomic<uint64_t> g_missed_count = 0;  // of threads there was no room for
bool g_is_graph[3][kCallbackIdsMax];       // by domain and callback id

std::mutex g_names_lock;
std::map<uint64_t, std::string>& g_names = *new std::map<uint64_t, std::string>;  // by hash

// What one thread knows of itself: it is in the calls of `open`, the outermost first.
struct Own {
  ThreadCalls* thread = nullptr;
  uint32_t tid = 0;
  int marker = 0;
  int depth = 0;
  LaunchTruth* open[kNestingMax] = {};
  std::set<uint64_t> names;  // that this thread has added to g_names
};
thread_local Own t_own;

uint64_t read_mono_ns() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

bool begin_thread(Own& own) {
  if (own.thread != nullptr) return true;
  own.tid = static_cast<uint32_t>(syscall(SYS_gettid));
  const size_t place = g_thread_count.fetch_add(1);
  if (place >= kThreadsMax) return false;
  void* memory = mmap(nullptr, kCallsPerThread * sizeof(LaunchTruth), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  g_threads[place].calls = static_cast<LaunchTruth*>(memory);
  own.thread = &g_threads[place];
  return true;
}

// Where the next call of this thread goes; null when there is no room.
LaunchTruth* take_place(Own& own) {
  if (!begin_thread(own)) {
    ++g_missed_count;
    return nullptr;
  }
  const size_t place = own.thread->count.load(std::memory_order_relaxed);
  if (place == kCallsPerThread) {
    ++own.thread->missed_count;
    return nullptr;
  }
  return &own.thread->calls[place];
}

// FNV-1a. The text itself is only valid during the callback, and is kept once.
uint64_t keep_name(Own& own, const char* name) {
  if (name == nullptr) return 0;
  uint64_t hash = 0xcbf29ce484222325;
  for (const char* at = name; *at != '\0'; ++at) {
    hash = (hash ^ static_cast<uint8_t>(*at)) * 0x100000001b3;
  }
  if (own.names.insert(hash).second) {
    const std::scoped_lock lock(g_names_lock);
    g_names.emplace(hash, name);
  }
  return hash;
}

void on_enter(CUpti_CallbackDomain domain, CUpti_CallbackId id, const CUpti_CallbackData& call) {
  Own& own = t_own;
  LaunchTruth* truth = take_place(own);
  if (truth != nullptr) {
    LaunchTruth* outer = own.depth > 0 && own.depth <= kNestingMax ? own.open[0] : nullptr;
    *truth = {.start_mono_ns = read_mono_ns(),
              .name_hash = keep_name(own, call.symbolName),
              .correlation_id = call.correlationId,
              .outer_correlation_id = outer != nullptr ? outer->correlation_id : 0,
              .tid = own.tid,
              .marker = own.marker,
              .callback_id = id,
              .result = -1,
              .domain = static_cast<uint8_t>(domain),
              .is_graph = id < kCallbackIdsMax && g_is_graph[domain][id],
              .padding = {}};
    own.thread->count.fetch_add(1, std::memory_order_release);
  }
  if (own.depth < kNestingMax) own.open[own.depth] = truth;
  ++own.depth;
}

void on_exit(const CUpti_CallbackData& call) {
  Own& own = t_own;
  if (own.depth == 0) return;  // its begin came before the subscription
  --own.depth;
  if (own.depth >= kNestingMax || own.open[own.depth] == nullptr) return;
  const void* result = call.functionReturnValue;
  own.open[own.depth]->result = result != nullptr ? *static_cast<const int*>(result) : 0;
}

void CUPTIAPI on_call(void*, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
  const auto& call = *static_cast<const CUpti_CallbackData*>(data);
  if (call.callbackSite == CUPTI_API_ENTER) {
    on_enter(domain, id, call);
  } else {
    on_exit(call);
  }
}

struct MappedCupti {
  std::string path;
  uintptr_t base = 0;
};

int match_cupti(dl_phdr_info* info, size_t, void* data) {
  const char* slash = std::strrchr(info->dlpi_name, '/');
  if (slash == nullptr || std::strncmp(slash + 1, "libcupti.so", 11) != 0) return 0;
  *static_cast<MappedCupti*>(data) = {info->dlpi_name, info->dlpi_addr};
  return 1;
}

// The file as it lies on disk, whatever has been written into the process's copy.
class LibraryFile {
 public:
  explicit LibraryFile(const std::string& path) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat about = {};
    if (fd >= 0 && fstat(fd, &about) == 0) {
      size_ = static_cast<size_t>(about.st_size);
      void* memory = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
      if (memory != MAP_FAILED) bytes_ = static_cast<const char*>(memory);
    }
    if (fd >= 0) (void)close(fd);
  }
  ~LibraryFile() {
    if (bytes_ != nullptr) (void)munmap(const_cast<char*>(bytes_), size_);
  }
  LibraryFile(const LibraryFile&) = delete;
  LibraryFile& operator=(const LibraryFile&) = delete;

  // Offset of a function from the library's base; 0 = it has none.
  uintptr_t find(const char* name) const {
    if (bytes_ == nullptr) return 0;
    const auto& header = *reinterpret_cast<const ElfW(Ehdr)*>(bytes_);
    const auto* sections = reinterpret_cast<const ElfW(Shdr)*>(bytes_ + header.e_shoff);
    for (int i = 0; i < header.e_shnum; ++i) {
      if (sections[i].sh_type != SHT_DYNSYM) continue;
      const char* strings = bytes_ + sections[sections[i].sh_link].sh_offset;
      const auto* symbols = reinterpret_cast<const ElfW(Sym)*>(bytes_ + sections[i].sh_offset);
      for (size_t k = 0; k < sections[i].sh_size / sizeof(ElfW(Sym)); ++k) {
        if (symbols[k].st_shndx != SHN_UNDEF &&
            std::strcmp(strings + symbols[k].st_name, name) == 0) {
          return symbols[k].st_value;
        }
      }
    }
    return 0;
  }

 private:
  const char* bytes_ = nullptr;
  size_t size_ = 0;
};

// The functions of CUPTI that are called, by its file and where that is mapped.
struct Cupti {
  decltype(&cuptiSubscribe) subscribe = nullptr;
  decltype(&cuptiEnableCallback) enable_callback = nullptr;
  decltype(&cuptiGetCallbackName) get_callback_name = nullptr;
};

const char* find_cupti(const char* library, Cupti& cupti) {
  MappedCupti mapped;
  if (dl_iterate_phdr(match_cupti, &mapped) == 0) {
    if (dlopen(library, RTLD_NOW | RTLD_LOCAL) == nullptr) return dlerror();
    if (dl_iterate_phdr(match_cupti, &mapped) == 0) return "libcupti was opened and is not mapped";
  }
  const LibraryFile file(mapped.path);
  bool has_all = true;
  const auto find = [&](const char* name, auto& function) {
    const uintptr_t offset = file.find(name);
    has_all = has_all && offset != 0;
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(mapped.base + offset);
  };
  find("cuptiSubscribe", cupti.subscribe);
  find("cuptiEnableCallback", cupti.enable_callback);
  find("cuptiGetCallbackName", cupti.get_callback_name);
  return has_all ? nullptr : "libcupti's file lacks a function that is needed";
}

// "cudaLaunchKernel_v7000", "__cudaLaunchKernel_ptsz_v13000", "cuGraphLaunch": by name, for each
// version of CUDA adds some.
bool launches(const char* name) {
  while (*name == '_') ++name;
  return std::strncmp(name, "cu", 2) == 0 && std::strstr(name, "Launch") != nullptr &&
         std::strstr(name, "HostFunc") == nullptr;
}

bool enable_launches(const Cupti& cupti, CUpti_SubscriberHandle subscriber,
                     CUpti_CallbackDomain domain) {
  int enabled_count = 0;
  for (uint32_t id = 1; id < kCallbackIdsMax; ++id) {
    const char* name = nullptr;
    if (cupti.get_callback_name(domain, id, &name) != CUPTI_SUCCESS || name == nullptr) continue;
    if (!launches(name)) continue;
    g_is_graph[domain][id] = std::strstr(name, "GraphLaunch") != nullptr;
    if (cupti.enable_callback(1, subscriber, domain, id) != CUPTI_SUCCESS) return false;
    ++enabled_count;
  }
  return enabled_count > 0;
}

}  // namespace

const char* truth_start(const char* cupti_library) {
  static CUpti_SubscriberHandle subscriber = nullptr;
  static char text[80];
  Cupti cupti;
  if (const char* error = find_cupti(cupti_library, cupti)) return error;
  const CUptiResult result = cupti.subscribe(&subscriber, on_call, nullptr);
  if (result != CUPTI_SUCCESS) {
    std::snprintf(text, sizeof(text), "cuptiSubscribe: error %d: is another subscriber there?",
                  static_cast<int>(result));
    return text;
  }
  if (!enable_launches(cupti, subscriber, CUPTI_CB_DOMAIN_DRIVER_API) ||
      !enable_launches(cupti, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API)) {
    return "cuptiEnableCallback refuses launching calls, or there are none";
  }
  return nullptr;
}

void truth_mark(int marker) { t_own.marker = marker; }

long truth_dump(const char* path, uint64_t start_mono_ns) {
  FILE* file = std::fopen(path, "wb");
  if (file == nullptr) return -1;
  uint64_t numbers[3] = {0, g_missed_count, 0};  // written again in the end
  bool is_written = true;
  const auto write = [&](const void* bytes, size_t size) {
    is_written = std::fwrite(bytes, size, 1, file) == 1 && is_written;
  };
  write("GPTRUTH1", 8);
  write(numbers, sizeof(numbers));
  const size_t thread_count = std::min(g_thread_count.load(), kThreadsMax);
  for (size_t i = 0; i < thread_count; ++i) {
    const ThreadCalls& thread = g_threads[i];
    numbers[1] += thread.missed_count;
    for (size_t k = 0; k < thread.count.load(std::memory_order_acquire); ++k) {
      if (thread.calls[k].start_mono_ns < start_mono_ns) continue;
      write(&thread.calls[k], sizeof(LaunchTruth));
      ++numbers[0];
    }
  }
  const std::scoped_lock lock(g_names_lock);
  numbers[2] = g_names.size();
  for (const auto& [hash, name] : g_names) {
    const auto length = static_cast<uint32_t>(name.size());
    write(&hash, sizeof(hash));
    write(&length, sizeof(length));
    write(name.data(), length);
  }
  is_written = std::fseek(file, 8, SEEK_SET) == 0 && is_written;
  write(numbers, sizeof(numbers));
  return std::fclose(file) == 0 && is_written ? static_cast<long>(numbers[0]) : -1;
}
