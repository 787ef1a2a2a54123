#include "daemon/resolve/python_names.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "daemon/resolve/python_lines.h"
#include "daemon/resolve/python_text.h"

namespace gpuperf {
namespace {

// A map's and a list's node, and what the allocator adds.
constexpr size_t kEntryBytes = 256;

std::optional<std::vector<std::byte>> read_bytes_object(const gpuperf_python_layout& layout,
                                                        uint64_t address, const ReadMemory& read) {
  const auto length = read_value<uint64_t>(read, address + layout.bytes_length);
  if (!length || *length > PythonNames::kMaxTableBytes) return std::nullopt;
  std::vector<std::byte> bytes(*length);
  if (!read(address + layout.bytes_data, bytes)) return std::nullopt;
  return bytes;
}

}  // namespace

std::optional<PythonNames::CodeParts> PythonNames::read_parts(const gpuperf_python_layout& layout,
                                                              uint64_t code,
                                                              const ReadMemory& read) {
  // One read for all: the parts lie within 160 bytes in every version so far.
  std::array<std::byte, 256> memory{};
  const uint16_t name =
      layout.code_qualified_name != 0 ? layout.code_qualified_name : layout.code_name;
  const size_t end =
      std::max({size_t{layout.code_first_line} + sizeof(uint32_t),
                size_t{layout.code_filename} + sizeof(uint64_t), size_t{name} + sizeof(uint64_t),
                size_t{layout.code_lines} + sizeof(uint64_t)});
  if (end > memory.size() || !read(code, std::span(memory).first(end))) return std::nullopt;
  CodeParts parts;
  std::memcpy(&parts.first_line, &memory[layout.code_first_line], sizeof parts.first_line);
  std::memcpy(&parts.filename, &memory[layout.code_filename], sizeof parts.filename);
  std::memcpy(&parts.name, &memory[name], sizeof parts.name);
  std::memcpy(&parts.lines, &memory[layout.code_lines], sizeof parts.lines);
  return parts;
}

std::optional<PythonNames::Code> PythonNames::read_code(const gpuperf_python_layout& layout,
                                                        const CodeParts& parts,
                                                        const ReadMemory& read) {
  std::optional<std::string> function = read_python_text(layout, parts.name, kMaxTextLetters, read);
  std::optional<std::string> file = read_python_text(layout, parts.filename, kMaxTextLetters, read);
  if (!function || !file) return std::nullopt;
  return Code{.parts = parts,
              .function = *std::move(function),
              .file = *std::move(file),
              .lines = read_bytes_object(layout, parts.lines, read)};
}

const PythonNames::Code* PythonNames::find_code(const CodeKey& key,
                                                const gpuperf_python_layout& layout,
                                                const ReadMemory& read) {
  const Code* known = codes_.find(key);
  const std::optional<CodeParts> parts = read_parts(layout, key.code, read);
  // Of memory that is gone, or begins at another line now, what was read earlier is right.
  if (!parts || parts->first_line != key.first_line) return known;
  if (known != nullptr && known->parts == *parts) return known;
  std::optional<Code> code = read_code(layout, *parts, read);
  if (!code) return nullptr;
  const size_t bytes = kEntryBytes + code->function.size() + code->file.size() +
                       (code->lines ? code->lines->size() : 0);
  if (bytes > capacity_bytes_) {
    unkept_ = *std::move(code);
    return &unkept_;
  }
  codes_.put(key, *std::move(code), bytes);
  return codes_.find(key);
}

std::optional<PythonFrameName> PythonNames::find(const ProcessKey& process,
                                                 const gpuperf_python_layout& layout,
                                                 const PythonFrame& frame, const ReadMemory& read) {
  const CodeKey key{.process = process, .code = frame.code, .first_line = frame.first_line};
  const Code* code = find_code(key, layout, read);
  if (code == nullptr) return std::nullopt;
  std::optional<uint32_t> line;
  if (code->lines) {
    line = find_python_line(layout.version, *code->lines, frame.first_line,
                            static_cast<int32_t>(frame.instruction_bytes));
  }
  return PythonFrameName{.function = code->function, .file = code->file, .line = line.value_or(0)};
}

}  // namespace gpuperf
