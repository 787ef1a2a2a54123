#include "daemon/store/call_query.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "daemon/store/schema.h"

namespace gpuperf {
namespace {

constexpr const char* kAction = "query";
// When so few calls meet a condition, they are looked up by it and sorted: some 10 ms. When more
// do, going through all calls in their order soon has a page together.
constexpr int kFewCalls = 20'000;

using Value = std::variant<int64_t, std::string>;

// The text of a WHERE clause, and the values of its parameters.
struct Conditions {
  std::string text;
  std::vector<Value> values;
};

void add(Conditions& conditions, std::string_view text, std::vector<Value> values) {
  conditions.text += conditions.text.empty() ? " WHERE " : " AND ";
  conditions.text += text;
  std::ranges::move(values, std::back_inserter(conditions.values));
}

// No stored number is larger.
int64_t clamp(uint64_t number) {
  constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(std::min(number, kMax));
}

// What all calls of a series have in common.
Conditions make_series_conditions(const StoreQuery& query) {
  Conditions series;
  if (query.pid != 0) add(series, "pid = ?", {int64_t{query.pid}});
  if (query.process_start_boot_ns) {
    add(series, "process_start_boot_ns = ?", {clamp(*query.process_start_boot_ns)});
  }
  if (!query.container.empty()) {
    add(series, "substr(container, 1, length(?)) = ?", {query.container, query.container});
  }
  if (!query.pod.empty()) add(series, "pod = ?", {query.pod});
  if (!query.category.empty()) add(series, "category = ?", {query.category});
  if (query.function.find('*') != std::string::npos) {
    add(series, "matches_wildcard(?, function)", {query.function});
  } else if (!query.function.empty()) {
    add(series, "function = ?", {query.function});
  }
  return series;
}

bool is_by_duration(const StoreQuery& query) { return query.order == StoreQuery::Order::kDuration; }

// Those on the calls' series, on the calls themselves.
Conditions make_shared_conditions(const StoreQuery& query) {
  Conditions calls;
  Conditions series = make_series_conditions(query);
  if (series.text.empty()) return calls;
  add(calls, "series_id IN (SELECT id FROM series" + series.text + ")", std::move(series.values));
  return calls;
}

Conditions make_conditions(const StoreQuery& query) {
  Conditions calls = make_shared_conditions(query);
  if (query.since_unix_ns != 0) add(calls, "start_unix_ns >= ?", {clamp(query.since_unix_ns)});
  if (query.min_duration_ns != 0) add(calls, "duration_ns >= ?", {clamp(query.min_duration_ns)});
  add(calls, "id <= ?", {clamp(query.max_id)});
  if (query.after) {
    add(calls,
        is_by_duration(query) ? "(duration_ns, id) < (?, ?)" : "(start_unix_ns, id) < (?, ?)",
        {clamp(query.after->value), clamp(query.after->id)});
  }
  return calls;
}

Result<SqliteStatement> prepare(const SqliteConnection& connection, const std::string& sql,
                                const std::vector<Value>& values) {
  ASSIGN_OR_RETURN(SqliteStatement statement, connection.prepare(sql, kAction));
  int index = 0;
  for (const Value& value : values) {
    ++index;
    std::visit([&](const auto& held) { statement.bind_at(index, held); }, value);
  }
  return statement;
}

// Whether few enough calls meet a condition to look them up by the index that begins with it.
Result<bool> is_met_by_few(const SqliteConnection& connection, const char* index,
                           const Conditions& conditions) {
  if (conditions.text.empty()) return false;
  const std::string sql = "SELECT count(*) FROM (SELECT 1 FROM calls INDEXED BY " +
                          std::string(index) + conditions.text + " LIMIT " +
                          std::to_string(kFewCalls) + ")";
  ASSIGN_OR_RETURN(SqliteStatement count, prepare(connection, sql, conditions.values));
  ASSIGN_OR_RETURN(const bool found, count.step());
  return found && count.number(0) < kFewCalls;
}

// SQLite would guess from statistics that nobody keeps up to date.
Result<const char*> choose_index(const SqliteConnection& connection, const StoreQuery& query) {
  ASSIGN_OR_RETURN(const bool few_in_series,
                   is_met_by_few(connection, "calls_by_series", make_shared_conditions(query)));
  if (few_in_series) return "calls_by_series";

  Conditions range;  // of what they are not ordered by
  if (is_by_duration(query) && query.since_unix_ns != 0) {
    add(range, "start_unix_ns >= ?", {clamp(query.since_unix_ns)});
  }
  if (!is_by_duration(query) && query.min_duration_ns != 0) {
    add(range, "duration_ns >= ?", {clamp(query.min_duration_ns)});
  }
  const char* in_order = is_by_duration(query) ? "calls_by_duration" : "calls_by_start";
  const char* by_range = is_by_duration(query) ? "calls_by_start" : "calls_by_duration";
  ASSIGN_OR_RETURN(const bool few_in_range, is_met_by_few(connection, by_range, range));
  return few_in_range ? by_range : in_order;
}

Result<std::vector<uint64_t>> query_ids(const SqliteConnection& connection,
                                        const StoreQuery& query) {
  ASSIGN_OR_RETURN(const char* const index, choose_index(connection, query));
  Conditions conditions = make_conditions(query);
  conditions.values.emplace_back(int64_t{query.limit});
  const std::string sql =
      "SELECT id FROM calls INDEXED BY " + std::string(index) + conditions.text + " ORDER BY " +
      (is_by_duration(query) ? "duration_ns" : "start_unix_ns") + " DESC, id DESC LIMIT ?";
  ASSIGN_OR_RETURN(SqliteStatement select, prepare(connection, sql, conditions.values));
  std::vector<uint64_t> ids;
  while (true) {
    ASSIGN_OR_RETURN(const bool has_row, select.step());
    if (!has_row) return ids;
    ids.push_back(static_cast<uint64_t>(select.number(0)));
  }
}

Result<SqliteStatement> prepare_find(const SqliteConnection& connection) {
  return connection.prepare(
      "SELECT calls.id, start_unix_ns, duration_ns, category, function, pid, "
      "process_start_boot_ns, container, pod, state, body "
      "FROM calls JOIN series ON series.id = series_id WHERE calls.id = ?",
      kAction);
}

// CROSS: the links first. A stack that only a damaged file can lack is left out.
Result<SqliteStatement> prepare_find_stacks(const SqliteConnection& connection) {
  return connection.prepare(
      "SELECT stack_id, body FROM call_stacks CROSS JOIN stacks ON stacks.id = stack_id "
      "WHERE call_id = ? ORDER BY stack_id",
      kAction);
}

Result<std::vector<StoredStack>> read_stacks(SqliteStatement& find_stacks, uint64_t call_id) {
  find_stacks.bind(call_id);
  std::vector<StoredStack> stacks;
  while (true) {
    ASSIGN_OR_RETURN(const bool has_row, find_stacks.step());
    if (!has_row) return stacks;
    stacks.push_back(
        {.id = static_cast<uint64_t>(find_stacks.number(0)), .body = find_stacks.text(1)});
  }
}

StoredCall read_row(const SqliteStatement& row) {
  return {.id = static_cast<uint64_t>(row.number(0)),
          .start_unix_ns = static_cast<uint64_t>(row.number(1)),
          .duration_ns = static_cast<uint64_t>(row.number(2)),
          .category = row.text(3),
          .function = row.text(4),
          .pid = static_cast<uint32_t>(row.number(5)),
          .process_start_boot_ns = static_cast<uint64_t>(row.number(6)),
          .container = row.text(7),
          .pod = row.text(8),
          .in_flight = row.number(9) == static_cast<int64_t>(CallState::kInFlight),
          .unfinished = row.number(9) == static_cast<int64_t>(CallState::kUnfinished),
          .body = row.text(10)};
}

}  // namespace

Result<std::vector<StoredCall>> query_calls(SqliteConnection& connection, const StoreQuery& query) {
  ASSIGN_OR_RETURN(const SqliteTransaction transaction,
                   SqliteTransaction::begin(connection, SqliteConnection::Access::kRead));
  ASSIGN_OR_RETURN(const std::vector<uint64_t> ids, query_ids(connection, query));
  ASSIGN_OR_RETURN(SqliteStatement find, prepare_find(connection));
  ASSIGN_OR_RETURN(SqliteStatement find_stacks, prepare_find_stacks(connection));
  std::vector<StoredCall> calls;
  calls.reserve(ids.size());
  for (const uint64_t id : ids) {
    find.bind(id);
    ASSIGN_OR_RETURN(const bool found, find.step());
    if (!found) return connection.make_error(SQLITE_CORRUPT, kAction);
    calls.push_back(read_row(find));
    ASSIGN_OR_RETURN(calls.back().stacks, read_stacks(find_stacks, id));
  }
  return calls;
}

Result<std::optional<StoredCall>> find_call(SqliteConnection& connection, uint64_t id) {
  ASSIGN_OR_RETURN(const SqliteTransaction transaction,
                   SqliteTransaction::begin(connection, SqliteConnection::Access::kRead));
  ASSIGN_OR_RETURN(SqliteStatement find, prepare_find(connection));
  find.bind(clamp(id));
  ASSIGN_OR_RETURN(const bool found, find.step());
  if (!found) return std::nullopt;
  StoredCall call = read_row(find);
  ASSIGN_OR_RETURN(SqliteStatement find_stacks, prepare_find_stacks(connection));
  ASSIGN_OR_RETURN(call.stacks, read_stacks(find_stacks, call.id));
  return call;
}

}  // namespace gpuperf
