#include "daemon/store/retention.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <queue>
#include <set>
#include <utility>

#include "daemon/store/call_stacks.h"

namespace gpuperf {
namespace {

constexpr uint64_t kNanosecondsPerSecond = 1'000'000'000;
constexpr uint64_t kNanosecondsPerHour = 3600 * kNanosecondsPerSecond;
// So many calls leave at once: 0.1 s, 0.5 s where they lie far apart, and some MiB of log.
constexpr size_t kMaxErased = 4096;
// Processes give up that part of the calls at once, those with most of them first.
constexpr uint64_t kExcessParts = 8;
// Removed between two looks at the pages in use.
constexpr size_t kErasedPerLook = 64;
// A full store is emptied a little further, so that not every write has to look for what leaves.
constexpr uint64_t kMaxSlackBytes = 16 << 20;
constexpr uint64_t kSlackDivisor = 64;
// Moved to the front of the file at once: 4 MiB of log.
constexpr const char* kVacuum = "PRAGMA incremental_vacuum(512)";
constexpr const char* kAction = "remove old calls";

// The first column of the only row; nullopt when it is NULL.
Result<std::optional<uint64_t>> read_hour(const SqliteConnection& connection,
                                          std::string_view min_hour) {
  const std::string sql = "SELECT coalesce((" + std::string(min_hour) + "), -1)";
  ASSIGN_OR_RETURN(const int64_t hour, connection.read_number(sql, kAction));
  return hour < 0 ? std::nullopt : std::optional(static_cast<uint64_t>(hour));
}

uint64_t get_age_limit(uint64_t now_unix_ns, std::chrono::seconds age) {
  const uint64_t age_ns = static_cast<uint64_t>(age.count()) * kNanosecondsPerSecond;
  return now_unix_ns > age_ns ? now_unix_ns - age_ns : 0;
}

}  // namespace

uint64_t Retention::get_hour(uint64_t unix_ns) { return unix_ns / kNanosecondsPerHour; }

Result<uint64_t> Retention::read_used_bytes() const {
  ASSIGN_OR_RETURN(const int64_t pages, connection_.read_number("PRAGMA page_count", kAction));
  ASSIGN_OR_RETURN(const int64_t free, connection_.read_number("PRAGMA freelist_count", kAction));
  ASSIGN_OR_RETURN(const int64_t page_bytes, connection_.read_number("PRAGMA page_size", kAction));
  // A damaged file may claim anything.
  return pages > free ? static_cast<uint64_t>((pages - free) * page_bytes) : 0;
}

Status Retention::make_room(std::span<const uint64_t> hours) {
  ASSIGN_OR_RETURN(SqliteStatement insert,
                   connection_.prepare("INSERT OR IGNORE INTO untrimmed_hours VALUES(?)", "write"));
  for (const uint64_t hour : hours) {
    insert.bind(hour);
    RETURN_IF_ERROR(insert.run());
  }
  while (true) {
    ASSIGN_OR_RETURN(const uint64_t used_bytes, read_used_bytes());
    if (used_bytes <= limits_.max_bytes) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::vector<uint64_t> ids, find_expendable());
    // What is left takes so much room in a damaged file only: stacks or names without calls.
    if (ids.empty()) return connection_.make_error(SQLITE_CORRUPT, kAction);
    RETURN_IF_ERROR(erase_for_room(ids));
  }
}

Result<bool> Retention::prune_some(uint64_t now_unix_ns) {
  ASSIGN_OR_RETURN(SqliteTransaction transaction,
                   SqliteTransaction::begin(connection_, SqliteConnection::Access::kWrite));
  ASSIGN_OR_RETURN(const bool more, prune_in_transaction(now_unix_ns));
  RETURN_IF_ERROR(transaction.commit());
  return more;
}

Result<bool> Retention::prune_in_transaction(uint64_t now_unix_ns) {
  const std::chrono::seconds retention = std::max(limits_.retention, limits_.history);
  const uint64_t first_kept = get_hour(get_age_limit(now_unix_ns, retention));
  ASSIGN_OR_RETURN(const auto oldest, read_hour(connection_, "SELECT min(end_hour) FROM calls"));
  if (oldest && *oldest < first_kept) {
    RETURN_IF_ERROR(trim(*oldest, 0));
    return true;
  }
  const uint64_t first_recent = get_hour(get_age_limit(now_unix_ns, limits_.history));
  ASSIGN_OR_RETURN(const auto untrimmed,
                   read_hour(connection_, "SELECT min(end_hour) FROM untrimmed_hours"));
  if (untrimmed && *untrimmed < first_recent) {
    RETURN_IF_ERROR(trim(*untrimmed, limits_.worst_per_window));
    return true;
  }
  return prune_for_size();
}

// Both only after a bound that was made lower: writes keep within it.
Result<bool> Retention::prune_for_size() {
  ASSIGN_OR_RETURN(const uint64_t used_bytes, read_used_bytes());
  if (used_bytes > limits_.max_bytes) {
    ASSIGN_OR_RETURN(const std::vector<uint64_t> ids, find_expendable());
    RETURN_IF_ERROR(erase_for_room(ids));
    return !ids.empty();
  }
  ASSIGN_OR_RETURN(const int64_t page_bytes, connection_.read_number("PRAGMA page_size", kAction));
  ASSIGN_OR_RETURN(const int64_t before, connection_.read_number("PRAGMA page_count", kAction));
  if (static_cast<uint64_t>(before * page_bytes) <= limits_.max_bytes) return false;
  RETURN_IF_ERROR(connection_.execute(kVacuum, kAction));
  ASSIGN_OR_RETURN(const int64_t after, connection_.read_number("PRAGMA page_count", kAction));
  return after < before;
}

Status Retention::trim(uint64_t hour, uint32_t keep) {
  ASSIGN_OR_RETURN(const std::vector<uint64_t> ids, find_surplus(hour, keep));
  RETURN_IF_ERROR(erase_calls(ids));
  return ids.size() < kMaxErased ? forget_untrimmed(hour) : absl::OkStatus();
}

Status Retention::forget_untrimmed(uint64_t hour) {
  ASSIGN_OR_RETURN(SqliteStatement erase,
                   connection_.prepare("DELETE FROM untrimmed_hours WHERE end_hour = ?", kAction));
  erase.bind(hour);
  return erase.run();
}

size_t Retention::Excess::find_process(int64_t series) const {
  const auto known = processes.find(series);
  return known == processes.end() ? 0 : known->second;
}

Result<Retention::Excess> Retention::find_excess() const {
  ASSIGN_OR_RETURN(
      SqliteStatement select,
      connection_.prepare("SELECT series.id, pid, process_start_boot_ns, count FROM series JOIN "
                          "(SELECT series_id, count(*) AS count FROM calls "
                          "INDEXED BY calls_by_series GROUP BY series_id) ON series_id = series.id",
                          kAction));
  Excess excess{.calls = {0}};
  std::map<std::pair<int64_t, int64_t>, size_t> known;
  uint64_t all = 0;
  while (true) {
    ASSIGN_OR_RETURN(const bool has_row, select.step());
    if (!has_row) break;
    const auto [process, is_new] =
        known.try_emplace({select.number(1), select.number(2)}, excess.calls.size());
    if (is_new) excess.calls.push_back(0);
    excess.processes.emplace(select.number(0), process->second);
    const auto count = static_cast<uint64_t>(select.number(3));
    excess.calls[process->second] += count;
    all += count;
  }
  const auto count_above = [&excess](uint64_t level) {
    return std::accumulate(
        excess.calls.begin(), excess.calls.end(), uint64_t{0},
        [level](uint64_t sum, uint64_t calls) { return sum + calls - std::min(calls, level); });
  };
  const uint64_t wanted = std::min<uint64_t>(all / kExcessParts + 1, kMaxErased);
  uint64_t level = 0, too_high = all + 1;  // the highest with so many calls above it
  while (too_high - level > 1) {
    const uint64_t middle = level + (too_high - level) / 2;
    (count_above(middle) >= wanted ? level : too_high) = middle;
  }
  for (uint64_t& calls : excess.calls) calls -= std::min(calls, level);
  return excess;
}

Result<std::vector<uint64_t>> Retention::find_surplus(uint64_t hour, uint32_t keep,
                                                      Excess* excess) const {
  // The index is in this very order.
  ASSIGN_OR_RETURN(
      SqliteStatement select,
      connection_.prepare("SELECT series_id, id FROM calls INDEXED BY calls_by_hour "
                          "WHERE end_hour = ? ORDER BY series_id, duration_ns DESC, id",
                          kAction));
  select.bind(hour);
  // With the process's place in `excess`; the highest id on top.
  std::priority_queue<std::pair<uint64_t, size_t>> lowest;
  std::optional<int64_t> series;
  size_t process = 0;
  uint64_t rank = 0;  // within the series, from 1
  while (true) {
    ASSIGN_OR_RETURN(const bool has_row, select.step());
    if (!has_row) break;
    rank = series == select.number(0) ? rank + 1 : 1;
    series = select.number(0);
    if (rank == 1 && excess != nullptr) {
      process = excess->find_process(*series);
    }
    if (rank <= keep || (excess != nullptr && excess->calls[process] == 0)) continue;
    lowest.emplace(static_cast<uint64_t>(select.number(1)), process);
    if (lowest.size() > kMaxErased) lowest.pop();
  }
  std::vector<std::pair<uint64_t, size_t>> found(lowest.size());
  for (auto row = found.rbegin(); row != found.rend(); ++row) {
    *row = lowest.top();
    lowest.pop();
  }
  std::vector<uint64_t> ids;
  for (const auto& [id, place] : found) {
    if (excess != nullptr && excess->calls[place] == 0) continue;
    if (excess != nullptr) --excess->calls[place];
    ids.push_back(id);
  }
  return ids;
}

// Of the first hour that has any.
Result<std::vector<uint64_t>> Retention::find_excess_surplus() {
  ASSIGN_OR_RETURN(Excess excess, find_excess());
  ASSIGN_OR_RETURN(
      SqliteStatement select,
      connection_.prepare("SELECT end_hour FROM untrimmed_hours ORDER BY end_hour", kAction));
  while (true) {
    ASSIGN_OR_RETURN(const bool has_row, select.step());
    if (!has_row) return std::vector<uint64_t>();
    const auto hour = static_cast<uint64_t>(select.number(0));
    ASSIGN_OR_RETURN(std::vector<uint64_t> ids,
                     find_surplus(hour, limits_.worst_per_window, &excess));
    if (!ids.empty()) return ids;
  }
}

Result<std::vector<uint64_t>> Retention::find_expendable() {
  ASSIGN_OR_RETURN(std::vector<uint64_t> excess_ids, find_excess_surplus());
  if (!excess_ids.empty()) return excess_ids;
  while (true) {
    ASSIGN_OR_RETURN(const auto untrimmed,
                     read_hour(connection_, "SELECT min(end_hour) FROM untrimmed_hours"));
    if (!untrimmed) break;
    ASSIGN_OR_RETURN(std::vector<uint64_t> ids, find_surplus(*untrimmed, limits_.worst_per_window));
    if (!ids.empty()) return ids;
    RETURN_IF_ERROR(forget_untrimmed(*untrimmed));
  }
  ASSIGN_OR_RETURN(const auto oldest, read_hour(connection_, "SELECT min(end_hour) FROM calls"));
  if (!oldest) return std::vector<uint64_t>();
  return find_surplus(*oldest, 0);
}

Status Retention::erase_for_room(std::span<const uint64_t> ids) {
  const uint64_t slack_bytes = std::min(limits_.max_bytes / kSlackDivisor, kMaxSlackBytes);
  while (!ids.empty()) {
    ASSIGN_OR_RETURN(const uint64_t used_bytes, read_used_bytes());
    if (used_bytes <= limits_.max_bytes - slack_bytes) break;
    const size_t count = std::min(ids.size(), kErasedPerLook);
    RETURN_IF_ERROR(erase_calls(ids.first(count)));
    ids = ids.subspan(count);
  }
  return absl::OkStatus();
}

Status Retention::erase_calls(std::span<const uint64_t> ids) {
  ASSIGN_OR_RETURN(
      SqliteStatement erase,
      connection_.prepare("DELETE FROM calls WHERE id = ? RETURNING series_id", kAction));
  ASSIGN_OR_RETURN(CallStacks stacks, CallStacks::prepare(connection_, kAction));
  std::set<int64_t> touched;
  for (const uint64_t id : ids) {
    erase.bind(id);
    ASSIGN_OR_RETURN(const bool found, erase.step());
    // Else it would be found, and not removed, for ever.
    if (!found) return connection_.make_error(SQLITE_CORRUPT, kAction);
    touched.insert(erase.number(0));
    RETURN_IF_ERROR(erase.run());
    RETURN_IF_ERROR(stacks.unlink(id));
  }
  RETURN_IF_ERROR(stacks.erase_unnamed());
  ASSIGN_OR_RETURN(SqliteStatement erase_empty,
                   connection_.prepare("DELETE FROM series WHERE id = ?1 "
                                       "AND NOT EXISTS (SELECT 1 FROM calls WHERE series_id = ?1)",
                                       kAction));
  for (const int64_t series_id : touched) {
    erase_empty.bind(series_id);
    RETURN_IF_ERROR(erase_empty.run());
  }
  return absl::OkStatus();
}

}  // namespace gpuperf
