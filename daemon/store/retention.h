#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/store/sqlite_connection.h"

namespace gpuperf {

// Decides which calls leave the store, and removes them.
//
// A call's hour is that of its end (of its last look, while it is in flight), so an hour is
// complete soon after it is over. Its worst are the `worst_per_window` longest calls of each
// function in each process (with one owner: a process whose pod became known within the hour counts
// as two); of equally long ones, the earlier. Thread: that of the connection, which must outlive
// it. Promises: a call younger than `history` leaves only for room; an older one leaves unless it
// is among its hour's worst; `retention` after its hour is over, every call has left. For room,
// calls that are not among their hour's worst leave first: of the processes that have most, so that
// none takes the place of others, and of those the oldest; when there are none, the calls of the
// oldest hour.
class Retention {
 public:
  struct Limits {
    uint64_t max_bytes = 0;  // of pages in use
    uint32_t worst_per_window = 0;
    std::chrono::seconds history{};
    std::chrono::seconds retention{};  // less than `history` = the same
  };

  Retention(SqliteConnection& connection, const Limits& limits)
      : connection_(connection), limits_(limits) {}
  Retention(const Retention&) = delete;
  Retention& operator=(const Retention&) = delete;

  static uint64_t get_hour(uint64_t unix_ns);

  // To be called in the transaction that wrote calls of these hours: brings the pages in use within
  // the bound. kDataLoss: it is passed, and there are no calls.
  Status make_room(std::span<const uint64_t> hours);
  // Removes some of what has to leave by now, in a short transaction of its own. true = call again.
  Result<bool> prune_some(uint64_t now_unix_ns);
  Result<uint64_t> read_used_bytes() const;

 private:
  Result<bool> prune_in_transaction(uint64_t now_unix_ns);
  Result<bool> prune_for_size();
  // Removes calls of an hour beyond the worst `keep` of each series: at most kMaxErased.
  Status trim(uint64_t hour, uint32_t keep);
  // What processes have beyond the level down to which those with most of them are to go.
  struct Excess {
    std::map<int64_t, size_t> processes;  // by series: index of `calls`
    // Of each process; first those of none, which are in a damaged file only, and in no excess.
    std::vector<uint64_t> calls;

    size_t find_process(int64_t series) const;
  };
  Result<Excess> find_excess() const;
  // Their ids, lowest first; with `excess` only so many of each process, taken off it.
  Result<std::vector<uint64_t>> find_surplus(uint64_t hour, uint32_t keep,
                                             Excess* excess = nullptr) const;
  Result<std::vector<uint64_t>> find_excess_surplus();
  // What leaves next for room; empty = there are no calls.
  Result<std::vector<uint64_t>> find_expendable();
  Status erase_calls(std::span<const uint64_t> ids);
  // Stops where the pages in use are few enough.
  Status erase_for_room(std::span<const uint64_t> ids);
  Status forget_untrimmed(uint64_t hour);

  // Set once in the constructor.
  SqliteConnection& connection_;
  const Limits limits_;
};

}  // namespace gpuperf
