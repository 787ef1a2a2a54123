#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bpf/records.h"
#include "daemon/base/byte_lru.h"
#include "daemon/model/function.h"
#include "daemon/model/stack.h"
#include "daemon/unwind/process_memory.h"

namespace gpuperf {

struct PythonFrameName {
  std::string function;  // qualified ("Model.forward") since 3.11
  std::string file;      // as in co_filename
  uint32_t line = 0;     // where it is called from; 0 = not known
  bool operator==(const PythonFrameName&) const = default;
};

// Names frames of Python by the code objects in the memory of their processes.
//
// Thread: one. Bounds: `capacity_bytes` of names and line tables read earlier, least recently used
// leave first; so a process that is gone is answered from them. Promises: text is valid UTF-8;
// nothing that a process's memory says makes it read more than kMaxTextLetters per name and
// kMaxTableBytes. A code object whose memory was used anew is not named, unless the new one begins
// at the same line.
class PythonNames {
 public:
  static constexpr size_t kDefaultCapacityBytes = size_t{16} << 20;
  // The kernel's bound of a path.
  static constexpr uint64_t kMaxTextLetters = 4'096;
  // Of what comes with 3.13 the largest has 58 KB.
  static constexpr uint64_t kMaxTableBytes = uint64_t{1} << 20;

  explicit PythonNames(size_t capacity_bytes = kDefaultCapacityBytes)
      : capacity_bytes_(capacity_bytes), codes_(capacity_bytes) {}
  PythonNames(const PythonNames&) = delete;
  PythonNames& operator=(const PythonNames&) = delete;

  // nullopt = the memory cannot be read, or holds no such code any more.
  std::optional<PythonFrameName> find(const ProcessKey& process,
                                      const gpuperf_python_layout& layout, const PythonFrame& frame,
                                      const ReadMemory& read);

 private:
  struct CodeKey {
    ProcessKey process;
    uint64_t code = 0;
    uint32_t first_line = 0;
    auto operator<=>(const CodeKey&) const = default;
  };
  // What a code object refers to: another says that it is another object.
  struct CodeParts {
    uint32_t first_line = 0;
    uint64_t filename = 0;
    uint64_t name = 0;
    uint64_t lines = 0;
    bool operator==(const CodeParts&) const = default;
  };
  struct Code {
    CodeParts parts;
    std::string function;
    std::string file;
    std::optional<std::vector<std::byte>> lines;  // empty = could not be read
  };

  static std::optional<CodeParts> read_parts(const gpuperf_python_layout& layout, uint64_t code,
                                             const ReadMemory& read);
  static std::optional<Code> read_code(const gpuperf_python_layout& layout, const CodeParts& parts,
                                       const ReadMemory& read);
  const Code* find_code(const CodeKey& key, const gpuperf_python_layout& layout,
                        const ReadMemory& read);

  const size_t capacity_bytes_;
  ByteLru<CodeKey, Code> codes_;
  Code unkept_;  // the last one that was larger than the whole bound
};

}  // namespace gpuperf
