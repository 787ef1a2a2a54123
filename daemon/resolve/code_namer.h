#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/byte_lru.h"
#include "daemon/base/proc_files.h"
#include "daemon/model/drops.h"
#include "daemon/probe/discovery/file_opener.h"
#include "daemon/resolve/address_table.h"
#include "daemon/resolve/debug_facts.h"
#include "daemon/resolve/debug_files.h"
#include "daemon/resolve/dwarf_worker.h"
#include "daemon/resolve/mapping_cache.h"

namespace gpuperf {

// What is known of one byte of code in a file.
struct NamedCode {
  uint64_t vaddr = 0;         // of the byte, in the file's own numbering, or its offset in the file
  uint64_t symbol_vaddr = 0;  // where the function begins; 0 = no function known
  std::string symbol;         // demangled; empty = not known
  // From DWARF, demangled: functions inlined there, innermost first, then the function itself.
  std::vector<SourceFrame> sources;
};

// Names code in the files that processes have mapped.
//
// Where names come from, best first: .symtab of the file; of its separate debug file (debug_files);
// of its mini debug info; .dynsym. Source lines and inlined functions come from DWARF of the file
// or its separate debug file (dwarf_worker). Thread: one, the same always. Blocks for a second on a
// huge file met for the first time. Everything read is kept by CodeIdentity: copies of a library in
// many containers are read once. Bounds: tables of functions `table_bytes`, names found
// `name_bytes`, the worker as it says; least recently used leave first. Holds no file open between
// calls: a file system could not be unmounted.
class CodeNamer {
 public:
  struct Options {
    ProcFiles proc;
    std::string host_root;  // see DebugFileWanted
    size_t table_bytes = size_t{64} << 20;
    size_t name_bytes = size_t{32} << 20;
    DwarfWorker::Options dwarf;
    std::function<void(DropCause)> count_drop = [](DropCause) {};
  };
  explicit CodeNamer(Options options);

  // Calls `take` once for each of `offsets`, which are of the file behind `code`, with its index
  // and what is known. `code` is a mapping of process `pid`.
  using Take = std::function<void(size_t index, const NamedCode& named)>;
  void name(uint32_t pid, MappedCode& code, std::span<const uint64_t> offsets, const Take& take);

  void reap_workers() { dwarf_.reap(); }  // any thread

  size_t table_bytes() const { return tables_.bytes(); }
  size_t name_bytes() const { return names_.bytes(); }

 private:
  struct LoadedCode {
    AddressTable table;
    bool has_dwarf = false;
    bool is_dwarf_separate = false;
    FileIdentity debug_file;  // that was found; all zero = none
  };
  using LoadedPtr = std::shared_ptr<const LoadedCode>;
  struct Place {
    uint64_t code_id = 0;
    uint64_t offset_bytes = 0;  // in the file
    bool operator==(const Place&) const = default;
  };
  struct PlaceHash {
    // Offsets of one file differ in their low bits, ids are few: spread by the golden ratio.
    size_t operator()(const Place& place) const {
      return place.offset_bytes + place.code_id * 0x9e3779b97f4a7c15;
    }
  };

  uint64_t give_id(const OpenedFile& opened);
  Result<OpenedFile> open(uint32_t pid, const MappedCode& code) const;
  std::optional<OpenedFile> identify(uint32_t pid, MappedCode& code);
  std::optional<OpenedFile> open_again(uint32_t pid, const MappedCode& code);
  // `opened`: the file, if it is open; set where it had to be opened.
  LoadedPtr find_loaded(uint32_t pid, const MappedCode& code, std::optional<OpenedFile>& opened);
  LoadedCode load(uint32_t pid, const MappedCode& code, const OpenedFile& opened) const;
  std::optional<DwarfWorker::Frames> find_sources(uint32_t pid, const MappedCode& code,
                                                  const LoadedCode& loaded,
                                                  std::span<const uint64_t> vaddrs);

  // Set once in the constructor.
  const Options options_;
  // Caller's thread only.
  uint64_t last_id_ = 0;
  ByteLru<FileIdentity, uint64_t> ids_by_file_;
  ByteLru<CodeIdentity, uint64_t> ids_by_code_;
  ByteLru<uint64_t, LoadedPtr> tables_;  // by code id
  ByteLru<Place, NamedCode, PlaceHash> names_;
  DwarfWorker dwarf_;
};

}  // namespace gpuperf
