// Any bytes as the memory of a process with a Python: its runtime, the frames of a thread, the
// names of their code. Addresses are offsets into the bytes, which repeat up to kMemoryBytes; the
// last byte chooses the version.

#include <algorithm>
#include <cstring>

#include "daemon/resolve/python_lines.h"
#include "daemon/resolve/python_names.h"
#include "daemon/unwind/python_layouts.h"
#include "daemon/unwind/python_walk.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/unit/unwind/python_offsets.h"

namespace gpuperf::fuzz {
namespace {

constexpr uint64_t kThread = 0;
constexpr uint64_t kMemoryBytes = 1 << 16;

ReadMemory make_reader(std::string_view bytes) {
  return [bytes](uint64_t address, std::span<std::byte> into) {
    if (address >= kMemoryBytes) return false;
    for (std::byte& byte : into) byte = static_cast<std::byte>(bytes[address++ % bytes.size()]);
    return true;
  };
}

std::string walk(const PythonRuntime& python, const ReadMemory& read) {
  const auto frames = walk_python(python, kThread, read);
  if (frames.size() > GPUPERF_PYTHON_FRAMES) return "more frames than there can be";
  PythonNames names;
  const ProcessKey process{.pid = 71, .start_boot_ns = 1};
  for (size_t i = 0; i < std::min<size_t>(frames.size(), 4); ++i) {
    (void)names.find(process, python.layout, frames[i], read);
  }
  return "";
}

}  // namespace

std::string find_fault(std::string_view bytes) {
  if (bytes.empty()) return "";
  const ReadMemory read = make_reader(bytes);
  const auto table = std::as_bytes(std::span(bytes));
  uint32_t first_line = 0;
  std::memcpy(&first_line, bytes.data(), std::min(bytes.size(), sizeof first_line));
  // 3.8 to 3.15; from 3.13 on the runtime says where things are.
  const auto version = static_cast<uint16_t>(0x0308 + static_cast<uint8_t>(bytes.back()) % 8);
  const auto line =
      find_python_line(version, table, first_line, static_cast<int32_t>(table.size()));
  if (line.value_or(0) > uint32_t{INT32_MAX}) return "a line that cannot be";
  const auto layout = find_python_layout(version);
  if (layout) return walk({.address = 0, .layout = *layout}, read);
  const auto runtime = load_python_runtime({.runtime_vaddr = 0}, 0, read);
  return runtime.ok() ? walk(*runtime, read) : "";
}

std::vector<std::string> make_seeds() {
  const PythonDebugOffsets offsets = make_python_313_offsets();
  std::string table(sizeof offsets, '\0');
  std::memcpy(table.data(), offsets.data(), sizeof offsets);
  return {table + '\5', std::string(4'096, '\0'), std::string(4'096, '\3'),
          std::string("\x82\x12\xd8\x01\x02\xe9\x50\x06\xf0\x07", 10)};
}

}  // namespace gpuperf::fuzz
