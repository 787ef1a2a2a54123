#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include "daemon/base/clock.h"
#include "daemon/base/mutex.h"
#include "daemon/base/result.h"
#include "daemon/model/snapshot.h"
#include "gpuperf/v1/observe.pb.h"

namespace gpuperf {

// Hands out a list page by page so that its reader sees every row once, although the numbers it is
// sorted by go on changing: all pages of a list come from the snapshot of the first.
//
// Thread: any. Board and clock must outlive it.
// Bounds: the snapshots of at most kPinned unfinished lists are kept, each for at most kMaxAge; a
// token whose snapshot is gone is refused with the advice to begin again.
// Not here: the order of rows and which ones match; the caller derives both from the snapshot and
// the request, the same for every page.
class SnapshotPages {
 public:
  SnapshotPages(const SnapshotBoard& board, const Clock& clock);
  SnapshotPages(const SnapshotPages&) = delete;
  SnapshotPages& operator=(const SnapshotPages&) = delete;

  // Where a page begins.
  struct Place {
    std::shared_ptr<const Snapshot> snapshot;
    uint64_t offset = 0;  // rows of the list before it
  };

  // `request_key`: everything of the request that decides on rows and order. INVALID_ARGUMENT when
  // the token was not made for it, or its snapshot is gone.
  Result<Place> find_place(const v1::Page& page, std::string_view request_key);
  // Token of the page that begins at `next_offset` of the same list.
  std::string make_token(const Place& place, uint64_t next_offset, std::string_view request_key);

  // Rows a page may have.
  static uint32_t get_limit(const v1::Page& page);

 private:
  struct Pin {
    uint64_t serial = 0;
    int64_t last_use_mono_ns = 0;
    std::shared_ptr<const Snapshot> snapshot;
  };

  uint64_t compute_check(uint64_t serial, uint64_t offset, std::string_view request_key) const;
  void forget_old_pins() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Set once in the constructor.
  const SnapshotBoard& board_;
  const Clock& clock_;
  const uint64_t secret_;  // tells tokens of this run from those of another
  Mutex mutex_;
  uint64_t next_serial_ ABSL_GUARDED_BY(mutex_) = 1;
  std::deque<Pin> pins_ ABSL_GUARDED_BY(mutex_);  // oldest first
};

}  // namespace gpuperf
