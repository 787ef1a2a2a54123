#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/duration_counts.h"
#include "daemon/base/mutex.h"
#include "daemon/base/result.h"
#include "daemon/model/capture.h"
#include "daemon/model/capture_order.h"
#include "daemon/model/self_report.h"
#include "daemon/store/capture_file.h"

namespace gpuperf {

// Captures on disk: one file each, "ID.capture" in a folder of their own. A file appears whole or
// not at all; what cannot be read is left alone and told: it is listed as failed, and counts.
//
// Thread: any; writes wait for each other. The clock must outlive it.
// Bounds: `max_bytes` of files and `retention`: the oldest leave; a capture larger than that is
// refused. Memory: a row per file, and what a call works on.
// Not here: who may read or delete (rpc).
class CaptureStore {
 public:
  struct Options {
    std::string folder;  // made if it is not there
    uint64_t max_bytes = uint64_t{1} << 30;
    std::chrono::hours retention = std::chrono::days(7);
  };

  // Removes what an interrupted write left behind.
  static Result<std::unique_ptr<CaptureStore>> open(Options options, const Clock& clock);

  // The row of what was written, state kStored, with its size. ResourceExhausted: no room.
  // AlreadyExists: its id is taken.
  Result<CaptureRow> write(const Capture& capture, const CaptureTarget& target);
  // Likewise; `known` gives what the capture does not know of itself: target, requester_uid,
  // events, lost_events.
  Result<CaptureRow> write(const Capture& capture, const CaptureRow& known);
  // NotFound; DataLoss: the file is no capture, or a damaged one.
  Result<std::shared_ptr<const Capture>> read(uint64_t id) const;
  // Without its events. Errors as of read.
  Result<CaptureHead> read_head(uint64_t id) const;
  // The file as it is: a gpuperf.v1.StoredCapture. NotFound.
  Result<std::string> read_bytes(uint64_t id) const;
  // NotFound.
  Status remove(uint64_t id);
  // By id; those of earlier runs included.
  std::vector<CaptureRow> list() const;
  uint64_t last_id() const;     // highest ever seen in the folder, deleted ones too; 0 = none
  uint64_t used_bytes() const;  // of all files
  // How full it is, and how long writes take.
  void fill(SelfReport& report) const;
  void expire();  // lets go what is too old

 private:
  CaptureStore(Options options, const Clock& clock);
  Status read_folder() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void add_file(uint64_t id, const std::string& path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string get_path(uint64_t id) const;
  Status make_room(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool remove_file(uint64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void keep_last_id(uint64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Set once in the constructor.
  const Options options_;
  const Clock& clock_;
  Mutex write_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);  // held while a file is written
  mutable Mutex mutex_;
  std::map<uint64_t, CaptureRow> rows_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t used_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  DurationCounts writes_;
};

}  // namespace gpuperf
