#include "injector/cupti_api.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace gpuperf::injector {
namespace {

// CUDA 12.0: has GraphTrace and every record field that is read.
constexpr uint32_t kOldestCupti = 19;

// cuDeviceGetUuid and similar; the driver's own types are opaque numbers here.
using DriverVersion = int (*)(int*);
using DeviceGet = int (*)(int*, int);
using DeviceUuid = int (*)(void*, int);
using DeviceCount = int (*)(int*);
using DeviceAttribute = int (*)(int*, int, int);
using PrimaryState = int (*)(int, unsigned*, int*);
using PrimaryRetain = int (*)(CUcontext*, int);
using PrimaryRelease = int (*)(int);

// The first mapped file whose name starts with one of the prefixes.
struct MappedFile {
  const char* const* prefixes;
  char path[512];
};

int match_mapped(dl_phdr_info* info, size_t, void* data) {
  auto& wanted = *static_cast<MappedFile*>(data);
  const char* slash = std::strrchr(info->dlpi_name, '/');
  const char* name = slash != nullptr ? slash + 1 : info->dlpi_name;
  for (const char* const* prefix = wanted.prefixes; *prefix != nullptr; ++prefix) {
    if (std::strncmp(name, *prefix, std::strlen(*prefix)) == 0) {
      std::snprintf(wanted.path, sizeof(wanted.path), "%s", info->dlpi_name);
      return 1;
    }
  }
  return 0;
}

bool find_mapped(const char* const* prefixes, MappedFile& found) {
  found = {prefixes, ""};
  return dl_iterate_phdr(match_mapped, &found) == 1;
}

// Major version at the end of "libNAME.so.MAJOR..."; 0 = none.
int read_major(const char* path) {
  const char* so = std::strstr(path, ".so.");
  return so != nullptr ? std::atoi(so + 4) : 0;
}

void* open_beside_runtime(const char* runtime, int major) {
  // In the toolkit, in CUDA 13's wheels, in CUDA 12's wheels.
  static const char* const kFolders[] = {"", "../extras/CUPTI/lib64/", "../../extras/CUPTI/lib64/",
                                         "../../cuda_cupti/lib/"};
  const char* slash = std::strrchr(runtime, '/');
  if (slash == nullptr) return nullptr;
  for (const char* folder : kFolders) {
    char path[700];
    std::snprintf(path, sizeof(path), "%.*s/%slibcupti.so.%d", static_cast<int>(slash - runtime),
                  runtime, folder, major);
    if (void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

void* open_cupti(int runtime_major, const char* runtime) {
  // A second copy of CUPTI would compete with the first for the driver's only slot. So use the copy
  // that is already loaded, even if another component loaded it.
  static const char* const kPrefixes[] = {"libcupti.so", nullptr};
  MappedFile mapped;
  if (find_mapped(kPrefixes, mapped)) return dlopen(mapped.path, RTLD_NOW | RTLD_NOLOAD);
  if (runtime_major > 0) {
    if (void* library = open_beside_runtime(runtime, runtime_major)) return library;
  }
  static const int kMajors[] = {13, 12};
  for (const int major : kMajors) {
    if (runtime_major > 0 && major != runtime_major) continue;
    char name[32];
    std::snprintf(name, sizeof(name), "libcupti.so.%d", major);
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

void* find_driver() {
  static void* driver = nullptr;  // kept: the driver is never unloaded
  if (driver == nullptr) driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return driver;
}

template <typename Function>
Function find_in_driver(const char* name) {
  void* driver = find_driver();
  return driver != nullptr ? reinterpret_cast<Function>(dlsym(driver, name)) : nullptr;
}

}  // namespace

bool is_cupti_mapped() {
  static const char* const kPrefixes[] = {"libcupti.so", nullptr};
  MappedFile mapped;
  return find_mapped(kPrefixes, mapped);
}

CuptiFound find_cupti(CuptiApi& api) {
  CuptiFound found;
  if (api.library != nullptr) return found;
  static const char* const kRuntime[] = {"libcudart.so", nullptr};
  MappedFile runtime;
  const int runtime_major = find_mapped(kRuntime, runtime) ? read_major(runtime.path) : 0;
  void* library = open_cupti(runtime_major, runtime.path);
  if (library == nullptr) {
    found.cause = GPUPERF_SESSION_CAUSE_NO_CUPTI;
    std::snprintf(found.detail, sizeof(found.detail),
                  "no libcupti.so.%d mapped, beside the CUDA runtime or in the loader's path",
                  runtime_major > 0 ? runtime_major : 13);
    return found;
  }
  CuptiApi candidate;
  candidate.library = library;
#define GPUPERF_FIND(name) \
  candidate.name = reinterpret_cast<decltype(candidate.name)>(dlsym(library, #name));
  GPUPERF_CUPTI_FUNCTIONS(GPUPERF_FIND)
  GPUPERF_CUPTI_NEWER_FUNCTIONS(GPUPERF_FIND)
#undef GPUPERF_FIND
  const char* missing = nullptr;
#define GPUPERF_CHECK(name) \
  if (candidate.name == nullptr) missing = #name;
  GPUPERF_CUPTI_FUNCTIONS(GPUPERF_CHECK)
#undef GPUPERF_CHECK
  if (missing != nullptr || candidate.cuptiGetVersion(&candidate.version) != CUPTI_SUCCESS ||
      candidate.version < kOldestCupti) {
    found.cause = GPUPERF_SESSION_CAUSE_CUPTI_VERSION;
    std::snprintf(found.detail, sizeof(found.detail), "libcupti has version %u and %s %s",
                  candidate.version, missing != nullptr ? "no" : "is older than CUDA",
                  missing != nullptr ? missing : "12.0");
    return found;
  }
  const int cupti_major =
      candidate.version >= 130000 ? static_cast<int>(candidate.version / 10000) : 12;
  if (runtime_major > 0 && cupti_major != runtime_major) {
    found.cause = GPUPERF_SESSION_CAUSE_CUPTI_VERSION;
    std::snprintf(found.detail, sizeof(found.detail),
                  "libcupti is of CUDA %d, the process's runtime of CUDA %d", cupti_major,
                  runtime_major);
    return found;
  }
  api = candidate;
  return found;
}

uint32_t read_driver_version() {
  const auto get_version = find_in_driver<DriverVersion>("cuDriverGetVersion");
  int version = 0;
  if (get_version == nullptr || get_version(&version) != 0) return 0;
  return static_cast<uint32_t>(version);
}

void read_device_uuid(uint32_t ordinal, uint8_t (&uuid)[16]) {
  std::memset(uuid, 0, sizeof(uuid));
  const auto get_device = find_in_driver<DeviceGet>("cuDeviceGet");
  // _v2 distinguishes MIG instances.
  auto get_uuid = find_in_driver<DeviceUuid>("cuDeviceGetUuid_v2");
  if (get_uuid == nullptr) get_uuid = find_in_driver<DeviceUuid>("cuDeviceGetUuid");
  int device = 0;
  if (get_device == nullptr || get_uuid == nullptr) return;
  if (get_device(&device, static_cast<int>(ordinal)) != 0) return;
  if (get_uuid(uuid, device) != 0) std::memset(uuid, 0, sizeof(uuid));
}

void read_sm_limits(gpuperf_session_place& place) {
  const auto get_device = find_in_driver<DeviceGet>("cuDeviceGet");
  const auto get_attribute = find_in_driver<DeviceAttribute>("cuDeviceGetAttribute");
  int device = 0;
  if (get_device == nullptr || get_attribute == nullptr ||
      get_device(&device, static_cast<int>(place.device)) != 0) {
    return;
  }
  const auto read = [&](CUdevice_attribute attribute) -> uint32_t {
    int value = 0;
    return get_attribute(&value, attribute, device) == 0 && value > 0 ? static_cast<uint32_t>(value)
                                                                      : 0;
  };
  place.sm_count = read(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  place.threads_per_sm = read(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  place.blocks_per_sm = read(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
  place.registers_per_sm = read(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
  place.shared_memory_per_sm_bytes = read(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  place.shared_memory_reserved_bytes = read(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
}

uint32_t list_primary_contexts(CUcontext* contexts, uint32_t* ordinals, uint32_t max) {
  const auto get_count = find_in_driver<DeviceCount>("cuDeviceGetCount");
  const auto get_device = find_in_driver<DeviceGet>("cuDeviceGet");
  const auto get_state = find_in_driver<PrimaryState>("cuDevicePrimaryCtxGetState");
  const auto retain = find_in_driver<PrimaryRetain>("cuDevicePrimaryCtxRetain");
  const auto release = find_in_driver<PrimaryRelease>("cuDevicePrimaryCtxRelease_v2");
  int devices = 0;
  if (get_count == nullptr || get_device == nullptr || get_state == nullptr || retain == nullptr ||
      release == nullptr || get_count(&devices) != 0) {
    return 0;
  }
  uint32_t count = 0;
  for (int ordinal = 0; ordinal < devices && count < max; ++ordinal) {
    int device = 0, is_active = 0;
    unsigned flags = 0;
    if (get_device(&device, ordinal) != 0 || get_state(device, &flags, &is_active) != 0 ||
        is_active == 0 || retain(&contexts[count], device) != 0) {
      continue;
    }
    (void)release(device);  // the program holds it, too
    ordinals[count++] = static_cast<uint32_t>(ordinal);
  }
  return count;
}

bool is_cuda_up() {
  const auto get_count = find_in_driver<DeviceCount>("cuDeviceGetCount");
  int count = 0;
  return get_count != nullptr && get_count(&count) == 0 && count > 0;
}

const char* find_nsight() {
  // Libraries that Nsight Systems, Nsight Compute, cuda-gdb and compute-sanitizer load into a
  // process.
  static const char* const kPrefixes[] = {"libToolsInjection",
                                          "libcuda-injection",
                                          "libInterceptorInjectionTarget",
                                          "libTreeLauncher",
                                          "libcudadebugger",
                                          "libsanitizer-collection",
                                          "libsanitizer-public",
                                          nullptr};
  static MappedFile mapped;
  if (!find_mapped(kPrefixes, mapped)) return nullptr;
  const char* slash = std::strrchr(mapped.path, '/');
  return slash != nullptr ? slash + 1 : mapped.path;
}

}  // namespace gpuperf::injector
