#include "daemon/store/schema.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace gpuperf {
namespace {

// A series is one function in one process with one owner: what many calls share, kept once.
// The end hour is that of start + duration, in whole hours since the epoch. The first three indices
// of calls hold every column a query looks at: it reads the table, where the bodies are, for its
// answer alone.
constexpr const char* kVersion1 = R"sql(
PRAGMA application_id = 1735414595;
CREATE TABLE meta(key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE series(
  id INTEGER PRIMARY KEY,
  category TEXT NOT NULL,
  function TEXT NOT NULL,
  pid INTEGER NOT NULL,
  process_start_boot_ns INTEGER NOT NULL,
  container TEXT NOT NULL,
  pod TEXT NOT NULL);
CREATE UNIQUE INDEX series_by_key
  ON series(pid, process_start_boot_ns, function, category, container, pod);
CREATE TABLE calls(
  id INTEGER PRIMARY KEY,
  series_id INTEGER NOT NULL,
  start_unix_ns INTEGER NOT NULL,
  duration_ns INTEGER NOT NULL,
  end_hour INTEGER NOT NULL,
  state INTEGER NOT NULL,
  body BLOB NOT NULL);
CREATE INDEX calls_by_duration ON calls(duration_ns, id, series_id, start_unix_ns);
CREATE INDEX calls_by_start ON calls(start_unix_ns, id, series_id, duration_ns);
CREATE INDEX calls_by_series ON calls(series_id, duration_ns, id, start_unix_ns);
CREATE INDEX calls_by_hour ON calls(end_hour, series_id, duration_ns DESC);
CREATE INDEX calls_in_flight ON calls(id) WHERE state = 1;
CREATE TABLE untrimmed_hours(end_hour INTEGER PRIMARY KEY);
)sql";
static_assert(kStoreApplicationId == 1735414595);

// Stacks that calls name by id are kept once. The links tell which stacks a call takes along when
// it leaves, and, by the index, whether somebody else still names them. A count in the stack's row
// would do with one table less, but each call would rewrite the row, body and all, and a damaged
// count could never be told. Calls of version 1 have their stacks in their bodies, and keep them.
constexpr const char* kVersion2 = R"sql(
CREATE TABLE stacks(id INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE call_stacks(
  call_id INTEGER NOT NULL,
  stack_id INTEGER NOT NULL,
  PRIMARY KEY(call_id, stack_id)) WITHOUT ROWID;
CREATE INDEX call_stacks_by_stack ON call_stacks(stack_id);
)sql";

constexpr const char* kMigrations[] = {kVersion1, kVersion2};

Status make_damage(const SqliteConnection& connection, const std::string& cause) {
  return absl::DataLossError(connection.path() + ": open: " + cause +
                             "; move it away; gpuperfd creates a new one");
}

struct SchemaRow {
  std::string name;
  std::string sql;
};

Result<std::vector<SchemaRow>> read_schema(SqliteConnection& connection) {
  // SQLite's own tables and indices have no text, or a reserved name.
  ASSIGN_OR_RETURN(SqliteStatement select,
                   connection.prepare("SELECT name, sql FROM sqlite_schema "
                                      "WHERE sql IS NOT NULL AND name NOT GLOB 'sqlite_*'",
                                      "open"));
  std::vector<SchemaRow> rows;
  while (true) {
    ASSIGN_OR_RETURN(const bool has_row, select.step());
    if (!has_row) return rows;
    rows.push_back({.name = select.text(0), .sql = select.text(1)});
  }
}

Status take_step(SqliteConnection& connection, const char* sql, size_t new_version) {
  ASSIGN_OR_RETURN(SqliteTransaction transaction,
                   SqliteTransaction::begin(connection, SqliteConnection::Access::kWrite));
  const std::string version = std::to_string(new_version);
  RETURN_IF_ERROR(connection.execute(sql, "bring to a newer version"));
  RETURN_IF_ERROR(connection.execute("INSERT OR REPLACE INTO meta VALUES('schema_version', " +
                                         version + ");" + "PRAGMA user_version = " + version,
                                     "bring to a newer version"));
  return transaction.commit();
}

}  // namespace

std::span<const char* const> store_migrations() { return kMigrations; }

Status check_origin(SqliteConnection& connection, std::span<const char* const> steps) {
  ASSIGN_OR_RETURN(const int64_t objects,
                   connection.read_number("SELECT count(*) FROM sqlite_schema", "open"));
  if (objects == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const int64_t our_tables,
                   connection.read_number("SELECT count(*) FROM sqlite_schema WHERE type = 'table' "
                                          "AND name IN ('meta', 'calls')",
                                          "open"));
  ASSIGN_OR_RETURN(const int64_t application,
                   connection.read_number("PRAGMA application_id", "open"));
  if (our_tables != 2) {
    if (application == kStoreApplicationId) return make_damage(connection, "tables are missing");
    return absl::FailedPreconditionError(
        connection.path() +
        ": open: it is a database of another program; give the store another path");
  }
  if (application != kStoreApplicationId) return make_damage(connection, "bad application id");
  ASSIGN_OR_RETURN(const int64_t version, connection.read_number("PRAGMA user_version", "open"));
  ASSIGN_OR_RETURN(
      const int64_t noted_version,
      connection.read_number("SELECT value FROM meta WHERE key = 'schema_version'", "open"));
  if (version != noted_version) return make_damage(connection, "its version is damaged");
  if (version > std::ssize(steps)) {
    return absl::FailedPreconditionError(
        connection.path() + ": open: a newer gpuperfd wrote it (store version " +
        std::to_string(version) + ", this one knows " + std::to_string(steps.size()) +
        "); run that gpuperfd, or move the file away");
  }
  return absl::OkStatus();
}

Status migrate(SqliteConnection& connection, std::span<const char* const> steps) {
  ASSIGN_OR_RETURN(const int64_t version, connection.read_number("PRAGMA user_version", "open"));
  if (version < 0) return make_damage(connection, "its version is damaged");
  for (auto i = static_cast<size_t>(version); i < steps.size(); ++i) {
    RETURN_IF_ERROR(take_step(connection, steps[i], i + 1));
  }
  return absl::OkStatus();
}

Status check_schema(SqliteConnection& connection, std::span<const char* const> steps) {
  ASSIGN_OR_RETURN(const auto model,
                   SqliteConnection::open(":memory:", SqliteConnection::Access::kWrite));
  RETURN_IF_ERROR(migrate(*model, steps));
  ASSIGN_OR_RETURN(const std::vector<SchemaRow> expected, read_schema(*model));
  ASSIGN_OR_RETURN(const std::vector<SchemaRow> found, read_schema(connection));
  for (const SchemaRow& row : expected) {
    const auto is_row = [&row](const SchemaRow& other) {
      return other.name == row.name && other.sql == row.sql;
    };
    if (std::ranges::none_of(found, is_row)) {
      return make_damage(connection, "its table or index " + row.name + " is damaged");
    }
  }
  return absl::OkStatus();
}

}  // namespace gpuperf
