#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/model/snapshot.h"
#include "daemon/probe/file_opener.h"
#include "daemon/probe/process_maps.h"
#include "daemon/resolve/address_table.h"
#include "daemon/resolve/byte_lru.h"

namespace gpuperf {

// Names the code behind return addresses of a process.
//
// Thread: one at a time; reads /proc and mapped files, so it may take a second for a huge file seen
// for the first time. `clock` must outlive it. Promises: one frame per address, whatever happens. A
// process that is gone is answered from what was read while it lived; without that, frames hold the
// address alone. Mappings are read again when they are older than kMapsMaxAge, or an address is in
// none of them and they are older than kMapsMinAge (reading them holds a lock of the process).
// Bounds: tables of functions `table_bytes`, names found `name_bytes`, mappings `maps_bytes`; least
// recently used leave first. A table that alone is larger is replaced as AddressTable says. Not
// here: code made at run time, names inside the vdso.
class FrameFinder {
 public:
  struct Options {
    std::string proc_root = "/proc";
    size_t table_bytes = size_t{64} << 20;
    // A Python process with PyTorch has some 300 executable mappings, 75 KB: room for 400 of them.
    size_t maps_bytes = size_t{32} << 20;
    // Stacks repeat: some 50,000 places, so that the tables of many large libraries need not all be
    // kept, and are not read again and again.
    size_t name_bytes = size_t{16} << 20;
  };
  static constexpr std::chrono::milliseconds kMapsMaxAge{1000};
  static constexpr std::chrono::milliseconds kMapsMinAge{100};

  FrameFinder(Options options, const Clock& clock);
  FrameFinder(const FrameFinder&) = delete;
  FrameFinder& operator=(const FrameFinder&) = delete;

  // Innermost frame first, as the addresses; each is looked up one byte back, in the call
  // instruction.
  std::vector<StackFrame> find_frames(const ProcessKey& process,
                                      const std::vector<uint64_t>& addresses);
  // Reads the mappings while the process lives.
  void prefetch(const ProcessKey& process);

 private:
  struct Module {
    MapEntry mapping;
    enum class State { kNotTried, kOpened, kFailed } state = State::kNotTried;
    std::optional<FileIdentity> identity;  // while kNotTried or kFailed: as opened earlier
  };
  struct View {
    std::vector<Module> modules;  // by address
    int64_t read_mono_ns = 0;
  };
  using TablePtr = std::shared_ptr<const AddressTable>;

  // The function at a place in a file.
  struct NamedCode {
    std::string symbol;         // demangled; empty = not known
    uint64_t offset_bytes = 0;  // from the symbol, or the file's own numbering
  };

  static Module* find_module(View& view, uint64_t address);

  std::shared_ptr<View> find_view(const ProcessKey& process,
                                  const std::vector<uint64_t>& addresses);
  std::shared_ptr<View> read_view(const ProcessKey& process, const View* old) const;
  bool is_stale(View& view, const std::vector<uint64_t>& addresses) const;
  StackFrame find_frame(const ProcessKey& process, View& view, uint64_t address);
  std::optional<OpenedFile> identify(const ProcessKey& process, Module& module) const;
  TablePtr find_table(const ProcessKey& process, const Module& module,
                      std::optional<OpenedFile> opened);
  NamedCode name_code(const ProcessKey& process, Module& module, uint64_t call_offset);

  // Set once in the constructor.
  const Options options_;
  const Clock& clock_;
  // Caller's thread only.
  ByteLru<ProcessKey, std::shared_ptr<View>> views_;
  ByteLru<FileIdentity, TablePtr> tables_;
  ByteLru<std::pair<FileIdentity, uint64_t>, NamedCode> names_;  // by file and offset of the call
};

}  // namespace gpuperf
