#include "daemon/probe/discovery/static_runtime.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "daemon/probe/elf/elf_symbols.h"

namespace gpuperf {
namespace {

// What a linked-in runtime always has: libcudart_static.a is one object, taken whole. The first is
// called by every program with kernels and visible to other libraries; the second is hidden.
constexpr const char* kRegistration = "__cudaRegisterFatBinary";
constexpr const char* kHidden = "cudaMalloc";
// Where nvcc puts the kernels.
constexpr std::string_view kKernelSection = ".nv_fatbin";
// 500,000 functions: nobody asked for this file, and somebody may have made it to cost time.
constexpr uint64_t kMaxTableBytes = uint64_t{64} << 20;

Result<bool> has_kernels(int fd) {
  ASSIGN_OR_RETURN(const ElfFile file, ElfFile::open(fd));
  ASSIGN_OR_RETURN(const std::vector<Elf64_Shdr> sections, file.read_sections());
  ASSIGN_OR_RETURN(const std::string names, file.read_section_names(sections));
  return std::ranges::any_of(sections, [&names](const Elf64_Shdr& section) {
    return get_section_name(names, section) == kKernelSection;
  });
}

}  // namespace

Result<StaticRuntime> find_static_runtime(int fd, std::span<const std::string> names) {
  StaticRuntime runtime{.defined = std::vector<bool>(names.size())};
  const Result<ElfSymbols> all = ElfSymbols::load(fd, ElfSymbols::Tables::kStatic, kMaxTableBytes);
  if (absl::IsNotFound(all.status())) {
    const Result<bool> kernels = has_kernels(fd);
    runtime.is_stripped = kernels.ok() && *kernels;
    return runtime;
  }
  RETURN_IF_ERROR(all.status());
  std::vector<std::string> wanted(names.begin(), names.end());
  wanted.insert(wanted.end(), {kRegistration, kHidden});
  const auto defined = all->find_all(wanted);
  if (!defined.back() || !defined[names.size()]) return runtime;
  const Result<ElfSymbols> dynamic =
      ElfSymbols::load(fd, ElfSymbols::Tables::kDynamic, kMaxTableBytes);
  if (!dynamic.ok() && !absl::IsNotFound(dynamic.status())) return dynamic.status();
  std::vector<std::optional<FunctionSymbol>> exported(wanted.size());
  if (dynamic.ok()) exported = dynamic->find_all(wanted);
  runtime.is_linked = !exported.back();
  for (size_t i = 0; i < names.size(); ++i) {
    runtime.defined[i] = runtime.is_linked && defined[i] && !exported[i];
  }
  return runtime;
}

}  // namespace gpuperf
