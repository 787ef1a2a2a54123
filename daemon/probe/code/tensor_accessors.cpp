#include "daemon/probe/code/tensor_accessors.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/probe/code/code_decoder.h"
#include "daemon/probe/code/code_file.h"
#include "daemon/probe/elf/elf_symbols.h"

namespace gpuperf {
namespace {

constexpr int8_t kFirstArgument = 7;         // rdi
constexpr size_t kAccessorInstructions = 4;  // endbr64 and the one that says it are among them
constexpr uint64_t kMaxRelocationBytes = uint64_t{16} << 20;  // libggml-base has 10 KB of them
constexpr size_t kMaxOperations = 256;                        // ggml 0.25 has 105
constexpr size_t kMaxOperationBytes = 32;

// What struct ggml_tensor has beside the fields that accessors say: two arrays of four words
// before its operation; four bytes, 64 bytes of parameters, and its flags before its sources; ten
// of these, and two words, before its data (ggml.h, since 2023).
constexpr int64_t kDimensionBytes = 4 * 8;
constexpr int64_t kOperationToFlags = 4 + 64;
constexpr int64_t kSourcesToData = 10 * 8 + 2 * 8;
constexpr int64_t kMaxOffset = 4096;

class Accessors {
 public:
  Accessors(CodeFile code, ElfSymbols symbols)
      : code_(std::move(code)), symbols_(std::move(symbols)) {}

  // The first instruction of this form that `name` begins with.
  Result<Instruction> find(const std::string& name, Form form) const {
    const auto symbol = symbols_.find_function(name);
    if (!symbol) return absl::NotFoundError("no " + name);
    const auto vaddr = code_.find_vaddr(symbol->file_offset_bytes);
    if (!vaddr) return absl::NotFoundError("no code of " + name);
    ASSIGN_OR_RETURN(const auto bytes,
                     code_.read_up_to(*vaddr, kAccessorInstructions * kMaxInstructionBytes));
    size_t at = 0;
    for (size_t i = 0; i < kAccessorInstructions && at < bytes.size(); ++i) {
      const auto instruction = decode_instruction(std::span(bytes).subspan(at), *vaddr + at);
      if (!instruction || instruction->flow != Flow::kNext) break;
      if (instruction->form == form) return *instruction;
      at += instruction->length_bytes;
    }
    return absl::FailedPreconditionError(name + " does something else than in the builds known");
  }

  // Where in the tensor, its first argument, it reads or writes.
  Result<int64_t> find_offset(const std::string& name, Form form) const {
    ASSIGN_OR_RETURN(const Instruction instruction, find(name, form));
    if (instruction.base != kFirstArgument || instruction.index >= 0 || instruction.value < 0 ||
        instruction.value > kMaxOffset) {
      return absl::FailedPreconditionError(name + " does something else than in the builds known");
    }
    return instruction.value;
  }

  // The names of operations, from the table that ggml_op_name indexes.
  Result<std::vector<std::string>> read_operations() const {
    ASSIGN_OR_RETURN(const Instruction table, find("ggml_op_name", Form::kAddress));
    const auto from = static_cast<uint64_t>(table.value);
    ASSIGN_OR_RETURN(const auto relocated, read_relocations(from, from + kMaxOperations * 8));
    std::vector<std::string> names;
    while (names.size() < kMaxOperations) {
      const auto name = read_name(from + 8 * names.size(), relocated);
      if (!name) break;
      names.push_back(*name);
    }
    return names;
  }

 private:
  using Pointers = std::map<uint64_t, uint64_t>;  // where -> what the loader puts there

  Result<Pointers> read_relocations(uint64_t from, uint64_t to) const {
    Pointers pointers;
    uint64_t budget_bytes = kMaxRelocationBytes;
    for (const NamedSection& section : code_.sections()) {
      if (section.type != SHT_RELA) continue;
      if (section.size_bytes > budget_bytes) {
        return absl::ResourceExhaustedError("over 16 MiB of relocations");
      }
      budget_bytes -= section.size_bytes;
      std::vector<Elf64_Rela> rows(section.size_bytes / sizeof(Elf64_Rela));
      RETURN_IF_ERROR(
          code_.elf().read(section.offset_bytes, std::as_writable_bytes(std::span(rows))));
      for (const Elf64_Rela& row : rows) {
        if (ELF64_R_TYPE(row.r_info) != R_X86_64_RELATIVE) continue;
        if (row.r_offset < from || row.r_offset >= to) continue;
        pointers[row.r_offset] = static_cast<uint64_t>(row.r_addend);
      }
    }
    return pointers;
  }

  // Without a relocation, or with a packed one, the pointer is in place.
  std::optional<std::string> read_name(uint64_t slot, const Pointers& relocated) const {
    uint64_t at = 0;
    const auto known = relocated.find(slot);
    if (known != relocated.end()) {
      at = known->second;
    } else if (!code_.read(slot, std::as_writable_bytes(std::span(&at, 1))).ok()) {
      return std::nullopt;
    }
    const auto bytes = code_.read_up_to(at, kMaxOperationBytes);
    if (!bytes.ok()) return std::nullopt;
    const std::string_view text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
    const std::string_view name = text.substr(0, text.find('\0'));
    const auto is_of_name = [](char c) {
      return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    };
    if (name.empty() || name.size() == text.size() || !std::ranges::all_of(name, is_of_name)) {
      return std::nullopt;
    }
    return std::string(name);
  }

  CodeFile code_;
  ElfSymbols symbols_;
};

}  // namespace

Result<TensorLayout> read_tensor_layout(int fd) {
  ASSIGN_OR_RETURN(CodeFile code, CodeFile::open(fd));
  ASSIGN_OR_RETURN(ElfSymbols symbols, ElfSymbols::load(fd, ElfSymbols::Tables::kBoth));
  const Accessors accessors(std::move(code), std::move(symbols));
  ASSIGN_OR_RETURN(const auto dimensions, accessors.find_offset("ggml_nelements", Form::kLoad));
  ASSIGN_OR_RETURN(const auto operation,
                   accessors.find_offset("ggml_get_unary_op", Form::kCompare));
  ASSIGN_OR_RETURN(const auto flags, accessors.find_offset("ggml_set_input", Form::kSetBits));
  ASSIGN_OR_RETURN(const auto data, accessors.find_offset("ggml_get_data", Form::kLoad));
  ASSIGN_OR_RETURN(const auto name, accessors.find_offset("ggml_get_name", Form::kOffset));
  if (operation != dimensions + 2 * kDimensionBytes || flags != operation + kOperationToFlags ||
      data != flags + 4 + kSourcesToData || name < data + 8) {
    return absl::FailedPreconditionError("its tensors have other fields than in the builds known");
  }
  ASSIGN_OR_RETURN(auto operations, accessors.read_operations());
  const auto routed = std::ranges::find(operations, "MUL_MAT_ID");
  if (operations.empty() || operations.front() != "NONE" || routed == operations.end()) {
    return absl::FailedPreconditionError("the names of its operations were not found");
  }
  return TensorLayout{
      .fields = {.dimensions_at = static_cast<uint16_t>(dimensions),
                 .strides_at = static_cast<uint16_t>(dimensions + kDimensionBytes),
                 .operation_at = static_cast<uint16_t>(operation),
                 .sources_at = static_cast<uint16_t>(flags + 4),
                 .data_at = static_cast<uint16_t>(data),
                 .name_at = static_cast<uint16_t>(name),
                 .routed_operation = static_cast<uint16_t>(routed - operations.begin()),
                 .pad = 0},
      .operations = std::move(operations)};
}

}  // namespace gpuperf
