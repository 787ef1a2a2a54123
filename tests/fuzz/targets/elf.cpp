// Any bytes as a mapped file, through everything of the daemon that reads ELF itself: symbols,
// static probes, a linked-in runtime, a Python, debug links, mini debug info, where probes go, the
// layout of tensors.

#include <algorithm>

#include "bpf/records.h"
#include "daemon/base/demangle.h"
#include "daemon/base/fd.h"
#include "daemon/probe/code/code_unwind.h"
#include "daemon/probe/code/placement.h"
#include "daemon/probe/code/tensor_accessors.h"
#include "daemon/probe/discovery/static_runtime.h"
#include "daemon/probe/elf/elf_exports.h"
#include "daemon/probe/elf/symbol_match.h"
#include "daemon/probe/elf/usdt_notes.h"
#include "daemon/resolve/address_table.h"
#include "daemon/resolve/debug_facts.h"
#include "daemon/resolve/mini_debug.h"
#include "daemon/unwind/python_runtime.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/unit/probe/elf_builder.h"

namespace gpuperf::fuzz {
namespace {

constexpr size_t kTableBytes = size_t{4} << 20;
constexpr size_t kFunctions = 16;  // whose code is looked at

const std::vector<std::string> kNames = {"foo", "sample_plain", "cudaMalloc", ""};

// Names of large files stay in the file: what is found does not depend on it.
std::string read_left_names(int fd, const ElfSymbols& read) {
  const auto left = ElfSymbols::load(fd, ElfSymbols::Tables::kBoth, ElfSymbols::kMaxTableBytes,
                                     ElfSymbols::Names::kLeft);
  if (!left.ok()) return "names that can be read and not left";
  (void)left->sort_functions();
  return left->find_all(kNames) == read.find_all(kNames) ? "" : "other functions by left names";
}

std::string read_symbols(int fd) {
  const std::vector<SymbolQuery> queries = {{SymbolForm::kExact, "foo"},
                                            {SymbolForm::kWildcard, "*s*p*"},
                                            {SymbolForm::kDemangled, "*::foo"},
                                            {SymbolForm::kUsdt, "*:*"}};
  (void)find_static_runtime(fd, kNames);
  (void)find_python(fd);
  const auto sites = read_usdt_sites(fd);
  if (sites.ok() && sites->size() > kMaxUsdtSites) return "too many static probes";
  const auto matches = match_symbols(fd, queries);
  if (matches.ok() && matches->size() != queries.size()) return "a query without an answer";
  const auto symbols = ElfSymbols::load(fd, ElfSymbols::Tables::kBoth);
  if (!symbols.ok()) return "";
  for (const SortedSymbol& symbol : symbols->sort_functions()) {
    if (symbol.name.size() > ElfSymbols::kMaxNameBytes) return "a name beyond its bound";
  }
  return read_left_names(fd, *symbols);
}

void read_names(const ElfFile& file, int fd) {
  if (const auto sections = file.read_sections(); sections.ok()) {
    const auto exports = ElfExports::open(file, *sections);
    if (exports.ok()) (void)exports->find("foo");
  }
  const Result<DebugFacts> facts = read_debug_facts(file);
  Fd mini;
  if (facts.ok() && facts->mini_debug.size_bytes > 0) {
    if (Result<Fd> expanded = expand_mini_debug(file, facts->mini_debug); expanded.ok()) {
      mini = *std::move(expanded);
    }
  }
  // As its own debug file, too.
  const int debug_fds[] = {mini.get(), fd};
  const AddressTable table = AddressTable::load(fd, debug_fds, kTableBytes);
  for (uint64_t offset = 0; offset < file.size_bytes(); offset += 61) {
    const auto vaddr = table.find_vaddr(offset);
    const auto function = vaddr ? table.find_function(*vaddr, fd) : std::nullopt;
    if (function) (void)demangle(function->name);
  }
}

std::string place_probes(const ElfFile& file, int fd) {
  auto code = CodeMap::open(fd);
  const auto symbols = ElfSymbols::load(fd, ElfSymbols::Tables::kBoth);
  if (!code.ok() || !symbols.ok()) return "";
  std::vector<SortedSymbol> functions = symbols->sort_functions();
  functions.resize(std::min(functions.size(), kFunctions));
  for (const SortedSymbol& symbol : functions) {
    const auto frame = find_frame(code->file(), symbol.vaddr);
    if (frame.ok() && *frame) (void)read_landing_pads(code->file(), **frame);
    const auto offset = code->file().find_offset(symbol.vaddr);
    if (!offset) continue;
    const FunctionSymbol function{.file_offset_bytes = *offset, .size_bytes = symbol.size_bytes};
    const auto found = find_exits(*code, function);
    const std::vector<ExitSite> exits = found.ok() ? *found : std::vector<ExitSite>();
    for (const ExitSite& exit : exits) {
      if (exit.offset_bytes >= file.size_bytes()) return "an exit outside the file";
      if (exit.condition > GPUPERF_CONDITION_RETURN) return "an exit of no condition";
    }
    const auto placed = place_entry(*code, function, exits);
    if (placed.ok() && placed->offset_bytes >= file.size_bytes())
      return "an entry outside the file";
  }
  return "";
}

std::string read_tensors(int fd) {
  const auto layout = read_tensor_layout(fd);
  if (!layout.ok()) return "";
  return layout->fields.routed_operation < layout->operations.size() ? "" : "no such operation";
}

}  // namespace

std::string find_fault(std::string_view bytes) {
  const Fd fd = elf_builder::make_file(std::string(bytes));
  const Result<ElfFile> file = ElfFile::open(fd.get());
  if (!file.ok()) return "";
  read_names(*file, fd.get());
  return read_symbols(fd.get()) + place_probes(*file, fd.get()) + read_tensors(fd.get());
}

std::vector<std::string> make_seeds() {
  using elf_builder::ElfImage;
  const std::vector<elf_builder::Symbol> symbols = {
      {"foo", ElfImage::kCodeVaddr, 0x40},
      {"_ZN1a3fooEi", ElfImage::kCodeVaddr + 0x40, 0x20},
      {"cudaMalloc@@libcudart.so.12", ElfImage::kCodeVaddr + 0x80, 0}};
  return {ElfImage(symbols).build(), elf_builder::make_library(symbols)};
}

}  // namespace gpuperf::fuzz
