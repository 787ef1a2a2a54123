#include "daemon/unwind/python_runtime.h"

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/probe/elf/elf_exports.h"
#include "daemon/probe/elf/elf_file.h"
#include "daemon/probe/elf/elf_symbols.h"
#include "daemon/unwind/python_layouts.h"

namespace gpuperf {
namespace {

constexpr std::string_view kRuntimeName = "_PyRuntime";
constexpr std::string_view kRuntimeSection = ".PyRuntime";

using FindSymbol = std::function<Result<std::optional<SymbolPlace>>(std::string_view name)>;

Result<uint16_t> find_version(const FindSymbol& find) {
  for (const python_version_mark& mark : python_version_marks) {
    ASSIGN_OR_RETURN(const std::optional<SymbolPlace> place, find(mark.name));
    if (place) return mark.version;
  }
  return absl::UnimplementedError("Python 3.7 or older: supported since " +
                                  describe_python_version(PYTHON_OLDEST));
}

Result<PythonFile> read_python(uint64_t runtime_vaddr, const FindSymbol& find) {
  PythonFile python{.runtime_vaddr = runtime_vaddr};
  ASSIGN_OR_RETURN(const std::optional<SymbolPlace> version, find("Py_Version"));
  if (version) {
    python.version_vaddr = version->vaddr;
  } else {
    ASSIGN_OR_RETURN(python.version, find_version(find));
  }
  ASSIGN_OR_RETURN(const std::optional<SymbolPlace> eval, find("_PyEval_EvalFrameDefault"));
  if (eval) {
    python.eval_vaddr = eval->vaddr;
    python.eval_size_bytes = eval->size_bytes;
  }
  return python;
}

// One whose symbols are not exported: linked into a program as a whole.
Result<PythonFile> read_hidden_python(int fd, uint64_t runtime_vaddr) {
  const Result<ElfSymbols> symbols = ElfSymbols::load(fd, ElfSymbols::Tables::kStatic);
  // Stripped: the runtime describes itself, or the version remains unknown.
  if (absl::IsNotFound(symbols.status())) return PythonFile{.runtime_vaddr = runtime_vaddr};
  if (!symbols.ok()) return symbols.status();
  return read_python(runtime_vaddr,
                     [&](std::string_view name) { return symbols->find_symbol(name); });
}

Result<PythonDebugOffsets> read_debug_offsets(uint64_t address, const ReadMemory& read) {
  const auto offsets = read_value<PythonDebugOffsets>(read, address);
  if (!offsets) return absl::UnavailableError("read _PyRuntime");
  return *offsets;
}

// As PY_VERSION_HEX without the release.
Result<uint16_t> read_version(const PythonFile& file, uint64_t bias, const ReadMemory& read) {
  if (file.version != 0) return file.version;
  if (!file.version_vaddr) {
    ASSIGN_OR_RETURN(const PythonDebugOffsets offsets,
                     read_debug_offsets(file.runtime_vaddr + bias, read));
    if (is_python_debug_offsets(offsets)) return PYTHON_FIRST_SELF_DESCRIBING;
    return absl::UnimplementedError("Python 3.11 or 3.12, stripped: its version is not known");
  }
  const auto version_hex = read_value<uint64_t>(read, *file.version_vaddr + bias);
  if (!version_hex)
    return absl::UnavailableError(
        "Py_Version: the process's memory cannot be read; it has ended, or gpuperfd lacks "
        "CAP_SYS_PTRACE");
  if (*version_hex > UINT32_MAX) return absl::DataLossError("Py_Version: implausible");
  return static_cast<uint16_t>(*version_hex >> 16);
}

}  // namespace

Result<std::optional<PythonFile>> find_python(int fd) {
  ASSIGN_OR_RETURN(const ElfFile file, ElfFile::open(fd));
  const Result<std::vector<Elf64_Shdr>> sections = file.read_sections();
  if (absl::IsNotFound(sections.status())) return std::nullopt;
  if (!sections.ok()) return sections.status();
  const Result<ElfExports> exports = ElfExports::open(file, *sections);
  if (exports.ok()) {
    const FindSymbol find = [&](std::string_view name) { return exports->find(name); };
    ASSIGN_OR_RETURN(const std::optional<SymbolPlace> runtime, find(kRuntimeName));
    if (runtime) return read_python(runtime->vaddr, find);
  } else if (!absl::IsNotFound(exports.status())) {
    return exports.status();
  }
  ASSIGN_OR_RETURN(const std::string names, file.read_section_names(*sections));
  const auto section = std::ranges::find_if(*sections, [&](const Elf64_Shdr& header) {
    return get_section_name(names, header) == kRuntimeSection;
  });
  if (section == sections->end()) return std::nullopt;
  return read_hidden_python(fd, section->sh_addr);
}

Result<PythonRuntime> load_python_runtime(const PythonFile& file, uint64_t bias,
                                          const ReadMemory& read) {
  PythonRuntime runtime{.address = file.runtime_vaddr + bias};
  if (file.eval_vaddr != 0) {
    runtime.eval_begin = file.eval_vaddr + bias;
    runtime.eval_end = runtime.eval_begin + file.eval_size_bytes;
  }
  ASSIGN_OR_RETURN(const uint16_t version, read_version(file, bias, read));
  if (version >= PYTHON_FIRST_SELF_DESCRIBING) {
    ASSIGN_OR_RETURN(const PythonDebugOffsets offsets, read_debug_offsets(runtime.address, read));
    ASSIGN_OR_RETURN(runtime.layout, decode_python_debug_offsets(offsets));
    if (file.version_vaddr && runtime.layout.version != version) {
      return absl::DataLossError("_PyRuntime: of another version than Py_Version");
    }
    return runtime;
  }
  const std::optional<gpuperf_python_layout> layout = find_python_layout(version);
  if (!layout) {
    return absl::UnimplementedError("Python " + describe_python_version(version) +
                                    ": supported since " + describe_python_version(PYTHON_OLDEST));
  }
  runtime.layout = *layout;
  return runtime;
}

}  // namespace gpuperf
