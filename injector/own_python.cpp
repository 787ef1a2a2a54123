#include "injector/own_python.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>

#include <cstring>

#include "bpf/python_layouts.h"
#include "injector/own_memory.h"

namespace gpuperf::injector {
namespace {

OwnPython g_python = {};

// Finds a module by its number among those named after Python.
struct ModuleSearch {
  uint32_t left;
  char path[PATH_MAX];  // empty = no more
};

int look_at_module(dl_phdr_info* info, size_t, void* data) {
  auto& search = *static_cast<ModuleSearch*>(data);
  if (info->dlpi_name == nullptr) return 0;
  const char* slash = std::strrchr(info->dlpi_name, '/');
  if (std::strstr(slash == nullptr ? info->dlpi_name : slash, "python") == nullptr) return 0;
  const size_t length = std::strlen(info->dlpi_name);
  if (search.left-- > 0 || length >= sizeof(search.path)) return 0;
  std::memcpy(search.path, info->dlpi_name, length + 1);
  return 1;
}

// Finds Python's symbols: `module` for dlsym. A module found here is never unloaded.
bool find_module(void*& module) {
  module = RTLD_DEFAULT;
  Dl_info info = {};
  if (void* runtime = dlsym(module, "_PyRuntime"); runtime != nullptr) {
    if (dladdr(runtime, &info) != 0) (void)dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    return true;
  }
  // Loaded for one library alone (RTLD_LOCAL). Not asked within dl_iterate_phdr, whose lock others
  // take after dlopen's.
  for (uint32_t number = 0;; ++number) {
    ModuleSearch search = {.left = number, .path = ""};
    (void)dl_iterate_phdr(look_at_module, &search);
    if (search.path[0] == '\0') return false;
    module = dlopen(search.path, RTLD_LAZY | RTLD_NOLOAD);
    if (module == nullptr) continue;
    if (dlsym(module, "_PyRuntime") != nullptr) return true;
    (void)dlclose(module);
  }
}

// The major and minor version as in PY_VERSION_HEX; 0 = unknown.
uint16_t read_version(void* module) {
  if (const void* symbol = dlsym(module, "Py_Version"); symbol != nullptr) {
    uint64_t version_hex = 0;
    const bool is_read =
        read_own(reinterpret_cast<uint64_t>(symbol), &version_hex, sizeof(version_hex));
    return is_read && version_hex <= UINT32_MAX ? static_cast<uint16_t>(version_hex >> 16) : 0;
  }
  for (const python_version_mark& mark : python_version_marks) {
    if (dlsym(module, mark.name) != nullptr) return mark.version;
  }
  return 0;
}

bool read_layout(uint64_t runtime, uint16_t version, gpuperf_python_layout& layout) {
  if (version < PYTHON_FIRST_SELF_DESCRIBING) return python_find_layout(version, &layout) == 0;
  __u64 table[PYTHON_TABLE_WORDS];
  __u32 word = 0;
  return read_own(runtime, table, sizeof(table)) &&
         python_decode_table(table, &layout, &word) == PYTHON_TABLE_OK && layout.version == version;
}

}  // namespace

const OwnPython* find_own_python() {
  if (g_python.runtime != 0) return &g_python;
  void* module = nullptr;
  if (!find_module(module)) return nullptr;
  const uint16_t version = read_version(module);
  OwnPython python = {};
  python.runtime = reinterpret_cast<uint64_t>(dlsym(module, "_PyRuntime"));
  python.find_thread =
      reinterpret_cast<void* (*)()>(dlsym(module, "PyGILState_GetThisThreadState"));
  if (!read_layout(python.runtime, version, python.layout) || python.find_thread == nullptr) {
    python.layout = {};
    python.layout.version = version;
  }
  g_python = python;
  return &g_python;
}

}  // namespace gpuperf::injector
