#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "daemon/base/byte_lru.h"
#include "daemon/base/worker_pool.h"
#include "daemon/resolve/dwarf_reader.h"

namespace gpuperf {

// Reads DWARF in a process of its own, which may die of it.
//
// Files of any process on the host come here, and libdw was not made for files that lie: see
// docs/decisions/0009-symbols.md for what it does. The worker is executed when first needed, is
// nobody, sees no files but the descriptors sent with each request, can make few system calls
// (seccomp), has its private memory bounded, and ends when idle for `idle`, so that no file system
// is kept busy, or when the daemon does.
// Thread: one, the same always, but for reap(). Blocks for `timeout` at most. When the worker dies
// or is late, the file is not tried again, and no file for `pause_factor` times as long as that
// took: files made for it cost one second in eleven at most.
class DwarfWorker {
 public:
  struct Options {
    // Private memory of the worker: units it has read, decompressed sections.
    size_t memory_bytes = size_t{256} << 20;
    // libdw takes 5 s for a table of 10 million lines, far more than sound units have.
    std::chrono::milliseconds timeout{5'000};
    std::chrono::milliseconds idle{5'000};
    int pause_factor = 10;
  };

  struct File {
    uint64_t id = 0;  // the same for the same content only
    int fd = -1;
    int alternate_fd = -1;  // -1 = none
  };

  explicit DwarfWorker(Options options);
  DwarfWorker(const DwarfWorker&) = delete;
  DwarfWorker& operator=(const DwarfWorker&) = delete;

  using Frames = std::vector<std::vector<SourceFrame>>;
  // As DwarfReader::find_frames, one answer per address; empty ones for a file that failed. Nothing
  // when it cannot be told for now.
  std::optional<Frames> find_frames(const File& file, std::span<const uint64_t> vaddrs);

  void reap() { pool_.reap(); }  // any thread

  // Of the worker; 0 = none runs. For tests.
  pid_t pid() const;

 private:
  using TimePoint = std::chrono::steady_clock::time_point;

  void on_failure(uint64_t file_id, TimePoint began);

  // Set once in the constructor.
  const Options options_;
  WorkerPool pool_;
  // Caller's thread only.
  ByteLru<uint64_t, bool> failed_;  // ids of files
  TimePoint retry_at_;
};

}  // namespace gpuperf
