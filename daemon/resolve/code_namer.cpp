#include "daemon/resolve/code_namer.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "daemon/base/demangle.h"
#include "daemon/resolve/mini_debug.h"

namespace gpuperf {
namespace {

// 300 bytes each. A host has some thousands of executables and libraries in use.
constexpr size_t kMaxFiles = 16'384;

uint32_t get_owner(const OpenedFile& opened) {
  struct stat found {};
  // The owner only widens whose debug files are taken.
  return ::fstat(opened.fd.get(), &found) == 0 ? found.st_uid : 0;
}

// Derived: nodes of the two containers, 136 and 32 bytes, a bucket, what malloc adds.
size_t count_bytes(const NamedCode& named) {
  constexpr size_t kEntryBytes = 208;
  size_t bytes = kEntryBytes + named.symbol.capacity();
  for (const SourceFrame& source : named.sources) {
    bytes += sizeof source + source.symbol.capacity() + source.file.capacity();
  }
  return bytes;
}

// `fd`: of the file, where its names are in it.
NamedCode name_by_table(const AddressTable& table, uint64_t offset, int fd) {
  const std::optional<uint64_t> vaddr = table.find_vaddr(offset);
  NamedCode named{.vaddr = vaddr.value_or(offset)};
  const auto function = vaddr ? table.find_function(*vaddr, fd) : std::nullopt;
  if (!function) return named;
  named.symbol_vaddr = function->vaddr;
  named.symbol = demangle(function->name);
  return named;
}

void add_sources(NamedCode& named, std::vector<SourceFrame> sources) {
  named.sources = std::move(sources);
  for (SourceFrame& source : named.sources) source.symbol = demangle(source.symbol);
  if (!named.symbol.empty() || named.sources.empty()) return;
  // A function that no symbol table has, and of which DWARF knows the beginning.
  const SourceFrame& function = named.sources.back();
  if (function.symbol.empty() || function.begin_vaddr == 0) return;
  named.symbol = function.symbol;
  named.symbol_vaddr = function.begin_vaddr;
}

}  // namespace

CodeNamer::CodeNamer(Options options)
    : options_(std::move(options)),
      ids_by_file_(kMaxFiles),
      ids_by_code_(kMaxFiles),
      tables_(options_.table_bytes),
      names_(options_.name_bytes),
      dwarf_(options_.dwarf) {}

// A new number for code not seen, or forgotten: what is kept under an old one is never found again.
uint64_t CodeNamer::give_id(const OpenedFile& opened) {
  if (const uint64_t* known = ids_by_file_.find(opened.identity)) return *known;
  CodeIdentity identity = read_code_identity(opened);
  const uint64_t* const shared = ids_by_code_.find(identity);
  const uint64_t id = shared != nullptr ? *shared : ++last_id_;
  (void)ids_by_file_.put(opened.identity, id, 1);  // there is room for kMaxFiles
  if (shared == nullptr) (void)ids_by_code_.put(identity, id, 1);
  return id;
}

Result<OpenedFile> CodeNamer::open(uint32_t pid, const MappedCode& code) const {
  if (code.held == nullptr) return open_mapped_file(options_.proc, pid, code.mapping);
  OpenedFile opened{.fd = Fd(fcntl(code.held->fd.get(), F_DUPFD_CLOEXEC, 0)),
                    .identity = code.held->identity};
  if (!opened.fd.valid()) return errno_status(errno, code.mapping.path + ": duplicate descriptor");
  return opened;
}

// Opens the file once for each reading of the mappings: it may have been replaced since.
std::optional<OpenedFile> CodeNamer::identify(uint32_t pid, MappedCode& code) {
  if (code.state != MappedCode::State::kNotTried) return std::nullopt;
  Result<OpenedFile> opened = open(pid, code);
  code.state = opened.ok() ? MappedCode::State::kOpened : MappedCode::State::kFailed;
  if (!opened.ok()) return std::nullopt;
  code.code_id = give_id(*opened);
  return *std::move(opened);
}

// Nothing when the mapping is of another file by now, or cannot be opened.
std::optional<OpenedFile> CodeNamer::open_again(uint32_t pid, const MappedCode& code) {
  if (code.state == MappedCode::State::kFailed) return std::nullopt;
  Result<OpenedFile> opened = open(pid, code);
  if (!opened.ok() || give_id(*opened) != code.code_id) return std::nullopt;
  return *std::move(opened);
}

CodeNamer::LoadedCode CodeNamer::load(uint32_t pid, const MappedCode& code,
                                      const OpenedFile& opened) const {
  const int fd = opened.fd.get();
  const Result<ElfFile> file = ElfFile::open(fd);
  const Result<DebugFacts> facts = file.ok() ? read_debug_facts(*file) : file.status();
  if (!facts.ok()) return {.table = AddressTable::load(fd, options_.table_bytes)};
  LoadedCode loaded{.has_dwarf = facts->has_dwarf};
  std::vector<int> debug_fds;
  std::optional<DebugFile> debug;
  if (!facts->has_symtab || !facts->has_dwarf) {
    debug = find_debug_file({.proc_root = options_.proc.root(),
                             .host_root = options_.host_root,
                             .pid = pid,
                             .path = code.mapping.path,
                             .owner_uid = get_owner(opened),
                             .facts = *facts,
                             .count_drop = options_.count_drop});
  }
  if (debug) {
    loaded.debug_file = debug->opened.identity;
    loaded.is_dwarf_separate = !loaded.has_dwarf && debug->facts.has_dwarf;
    loaded.has_dwarf |= loaded.is_dwarf_separate;
    debug_fds.push_back(debug->opened.fd.get());
  }
  Fd mini;
  if (facts->mini_debug.size_bytes > 0) {
    // Damaged or too large: then it has no names for us.
    if (Result<Fd> expanded = expand_mini_debug(*file, facts->mini_debug); expanded.ok()) {
      mini = *std::move(expanded);
      debug_fds.push_back(mini.get());
    }
  }
  if (facts->has_symtab) debug_fds.clear();
  loaded.table = AddressTable::load(fd, debug_fds, options_.table_bytes);
  return loaded;
}

CodeNamer::LoadedPtr CodeNamer::find_loaded(uint32_t pid, const MappedCode& code,
                                            std::optional<OpenedFile>& opened) {
  if (!code.code_id) return nullptr;
  if (const LoadedPtr* kept = tables_.find(*code.code_id)) return *kept;
  if (!opened) opened = open_again(pid, code);
  if (!opened) return nullptr;
  auto loaded = std::make_shared<const LoadedCode>(load(pid, code, *opened));
  // Kept also when it is empty: not an ELF file, or without symbols.
  (void)tables_.put(*code.code_id, loaded, sizeof(LoadedCode) + loaded->table.size_bytes());
  return loaded;
}

// The files are opened anew for each call, see the class. Nothing when they are gone.
std::optional<DwarfWorker::Frames> CodeNamer::find_sources(uint32_t pid, const MappedCode& code,
                                                           const LoadedCode& loaded,
                                                           std::span<const uint64_t> vaddrs) {
  const std::optional<OpenedFile> own = open_again(pid, code);
  if (!own) return std::nullopt;
  const Result<ElfFile> file = ElfFile::open(own->fd.get());
  const Result<DebugFacts> facts = file.ok() ? read_debug_facts(*file) : file.status();
  if (!facts.ok()) return std::nullopt;
  const DebugFileWanted wanted{.proc_root = options_.proc.root(),
                               .host_root = options_.host_root,
                               .pid = pid,
                               .path = code.mapping.path,
                               .owner_uid = get_owner(*own),
                               .facts = *facts,
                               .known = &loaded.debug_file,
                               .count_drop = options_.count_drop};
  std::optional<DebugFile> debug;
  if (loaded.is_dwarf_separate && !(debug = find_debug_file(wanted))) return std::nullopt;
  const std::optional<DebugFile> alternate =
      find_alternate_file(wanted, debug ? debug->path : code.mapping.path,
                          debug ? debug->facts.alternate : facts->alternate);
  return dwarf_.find_frames({.id = *code.code_id,
                             .fd = debug ? debug->opened.fd.get() : own->fd.get(),
                             .alternate_fd = alternate ? alternate->opened.fd.get() : -1},
                            vaddrs);
}

void CodeNamer::name(uint32_t pid, MappedCode& code, std::span<const uint64_t> offsets,
                     const Take& take) {
  std::optional<OpenedFile> opened = identify(pid, code);
  std::vector<size_t> missing;
  for (size_t i = 0; i < offsets.size(); ++i) {
    const NamedCode* known = code.code_id ? names_.find({*code.code_id, offsets[i]}) : nullptr;
    if (known != nullptr) {
      take(i, *known);
    } else {
      missing.push_back(i);
    }
  }
  if (missing.empty()) return;
  const LoadedPtr loaded = find_loaded(pid, code, opened);
  if (loaded == nullptr) {
    for (const size_t i : missing) take(i, {.vaddr = offsets[i]});
    return;
  }
  if (loaded->table.has_names_in_file() && !opened) opened = open_again(pid, code);
  std::vector<NamedCode> found;
  std::vector<uint64_t> vaddrs;
  for (const size_t i : missing) {
    found.push_back(name_by_table(loaded->table, offsets[i], opened ? opened->fd.get() : -1));
    vaddrs.push_back(found.back().vaddr);
  }
  std::optional<DwarfWorker::Frames> sources;
  if (loaded->has_dwarf) sources = find_sources(pid, code, *loaded, vaddrs);
  for (size_t i = 0; i < missing.size(); ++i) {
    if (sources) add_sources(found[i], std::move((*sources)[i]));
    take(missing[i], found[i]);
    // What may be known better later is not kept.
    if (loaded->has_dwarf && !sources) continue;
    if (found[i].symbol_vaddr != 0 && found[i].symbol.empty()) continue;
    const size_t bytes = count_bytes(found[i]);
    (void)names_.put({*code.code_id, offsets[missing[i]]}, std::move(found[i]), bytes);
  }
}

}  // namespace gpuperf
