#pragma once

#include <cstdint>
#include <optional>

#include "bpf/records.h"
#include "daemon/base/result.h"
#include "daemon/unwind/process_memory.h"

namespace gpuperf {

// What an ELF file that holds a CPython says of it; addresses in the file's own numbering.
struct PythonFile {
  uint64_t runtime_vaddr = 0;  // of _PyRuntime
  uint16_t version = 0;        // by what it exports; 0 = version_vaddr or the runtime says
  std::optional<uint64_t> version_vaddr;  // of Py_Version, since 3.11
  uint64_t eval_vaddr = 0;                // of _PyEval_EvalFrameDefault; 0 = not known
  uint64_t eval_size_bytes = 0;
  bool operator==(const PythonFile&) const = default;
};

// A CPython in a process.
struct PythonRuntime {
  uint64_t address = 0;  // of _PyRuntime
  gpuperf_python_layout layout{};
  // _PyEval_EvalFrameDefault, the part that the compiler did not move away as seldom used. 0 = not
  // known.
  uint64_t eval_begin = 0;
  uint64_t eval_end = 0;
};

// nullopt = an ELF file without a CPython: known after a few small reads, whatever its size. Found:
// it exports _PyRuntime, or (since 3.11) has a section of that name. Errors: Unimplemented = 3.7 or
// older; else those of ElfFile and its symbols.
Result<std::optional<PythonFile>> find_python(int fd);

// `bias`: what is added to the file's addresses in this process. Errors: Unavailable = memory that
// cannot be read; Unimplemented = a version or build that is not supported; DataLoss = the runtime
// contradicts itself.
Result<PythonRuntime> load_python_runtime(const PythonFile& file, uint64_t bias,
                                          const ReadMemory& read);

}  // namespace gpuperf
