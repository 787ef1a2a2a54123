#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/store/retention.h"
#include "daemon/store/sqlite_connection.h"
#include "daemon/store/stored_call.h"

namespace gpuperf {

// The file of slow calls: writes, finds, and keeps it within its bounds.
//
// Thread: one at a time. Nobody else may write the file: the daemon's lock file sees to that.
// Promises: what `write` has acknowledged is there after a kill -9 at any moment, and after a power
// cut once `sync` has returned. A file that is damaged or no database is moved aside and a new one
// begun; one of a newer gpuperfd or of another program is refused and left as it is.
// Bounds: the pages in use stay within `max_bytes` from one write to the next; the file is larger
// by at most one write, its log 4 MiB and one write. Retention says what leaves.
class SlowCallDatabase {
 public:
  struct Options {
    std::string path;
    uint64_t max_bytes = uint64_t{1} << 30;  // at least kMinBytes
    uint32_t worst_per_window = 16;
    std::chrono::seconds history = std::chrono::hours(24);
    std::chrono::seconds retention = std::chrono::hours(24 * 7);
    // A file up to this size is checked as a whole when it is opened: some 50 ms.
    uint64_t check_max_bytes = 16 << 20;
  };
  static constexpr uint64_t kMinBytes = 1 << 20;
  static constexpr size_t kMaxBodyBytes = 1 << 20;  // with the stacks'
  // Of one call. Now there are at most seven: its own, and two of each of its three waits.
  static constexpr size_t kMaxStacks = 16;
  static constexpr size_t kMaxTextBytes = 64 << 10;

  static Result<std::unique_ptr<SlowCallDatabase>> open(const Options& options);
  // A second connection, for queries on another thread, to the file of an open one.
  static Result<std::unique_ptr<SqliteConnection>> open_reader(const std::string& path);
  SlowCallDatabase(const SlowCallDatabase&) = delete;
  SlowCallDatabase& operator=(const SlowCallDatabase&) = delete;

  // kInvalidArgument: a call that the store does not take, and why.
  static Status check(const StoredCall& call);
  // Of its body and of those of its stacks.
  static uint64_t count_bytes(const StoredCall& call);

  // All or none. A call with the id of a stored one replaces it.
  Status write(std::span<const StoredCall> calls);
  // Brings what was written to the disk itself.
  Status sync() { return connection_->sync(); }
  // Removes what has to leave by now; may take long after bounds were lowered.
  Status prune(uint64_t now_unix_ns);
  // A bounded part of that. true = there is more.
  Result<bool> prune_some(uint64_t now_unix_ns) { return retention_.prune_some(now_unix_ns); }
  // Empties the log into the file as far as readers let it.
  Status checkpoint();

  Result<std::vector<StoredCall>> query(const StoreQuery& query);
  Result<std::optional<StoredCall>> find(uint64_t id);
  // The highest ever written, pruned or not; 0 = none.
  Result<uint64_t> read_last_id();
  Result<uint64_t> read_used_bytes() { return retention_.read_used_bytes(); }
  // Whether somebody moved or removed the file.
  bool has_moved() const { return connection_->has_moved(); }

 private:
  SlowCallDatabase(std::unique_ptr<SqliteConnection> connection, const Options& options);
  static Result<std::unique_ptr<SlowCallDatabase>> open_file(const Options& options);

  // In this order: retention goes by the connection.
  const std::unique_ptr<SqliteConnection> connection_;
  Retention retention_;
};

}  // namespace gpuperf
