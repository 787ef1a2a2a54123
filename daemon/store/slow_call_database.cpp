#include "daemon/store/slow_call_database.h"

#include <sqlite3.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include "daemon/store/call_query.h"
#include "daemon/store/call_stacks.h"
#include "daemon/store/schema.h"
#include "daemon/store/store_file.h"

namespace gpuperf {
namespace {

using Access = SqliteConnection::Access;

// mmap_size: a mapped file that somebody truncates is a SIGBUS.
constexpr const char* kSetUp = R"sql(
PRAGMA busy_timeout = 500;
PRAGMA mmap_size = 0;
PRAGMA cell_size_check = ON;
PRAGMA temp_store = MEMORY;
PRAGMA cache_size = -2048;
)sql";
// page_size: three calls with their stacks within (version 1: 2.5 KB) fill a page; of a page of
// 4 KiB, one leaves 40 % unused. A stack of 60 frames fills a page too. auto_vacuum: a file can be
// made smaller when its bound is lowered. On a file that holds something the second would be a
// write.
constexpr const char* kSetUpNewFile = R"sql(
PRAGMA page_size = 8192;
PRAGMA auto_vacuum = INCREMENTAL;
)sql";
// Once the file is known to be ours. The log is emptied from 512 pages = 4 MiB on, and cut back to
// that. NORMAL: it is synced when it is emptied, not at each commit. secure_delete: Debian's SQLite
// would write zeros over all that leaves.
constexpr const char* kSetUpOwnFile = R"sql(
PRAGMA secure_delete = OFF;
PRAGMA synchronous = NORMAL;
PRAGMA wal_autocheckpoint = 512;
PRAGMA journal_size_limit = 4194304;
)sql";

struct WriteStatements {
  SqliteStatement find_series;
  SqliteStatement insert_series;
  SqliteStatement insert_call;
  CallStacks stacks;
};

Result<WriteStatements> prepare_write(const SqliteConnection& connection) {
  ASSIGN_OR_RETURN(
      SqliteStatement find_series,
      connection.prepare("SELECT id FROM series WHERE pid = ? AND process_start_boot_ns = ? "
                         "AND function = ? AND category = ? AND container = ? AND pod = ?",
                         "write"));
  ASSIGN_OR_RETURN(
      SqliteStatement insert_series,
      connection.prepare("INSERT INTO series(pid, process_start_boot_ns, function, category, "
                         "container, pod) VALUES(?, ?, ?, ?, ?, ?) RETURNING id",
                         "write"));
  ASSIGN_OR_RETURN(
      SqliteStatement insert_call,
      connection.prepare("INSERT OR REPLACE INTO calls(id, series_id, start_unix_ns, duration_ns, "
                         "end_hour, state, body) VALUES(?, ?, ?, ?, ?, ?, ?)",
                         "write"));
  ASSIGN_OR_RETURN(CallStacks stacks, CallStacks::prepare(connection, "write"));
  return WriteStatements{.find_series = std::move(find_series),
                         .insert_series = std::move(insert_series),
                         .insert_call = std::move(insert_call),
                         .stacks = std::move(stacks)};
}

Result<int64_t> get_series(WriteStatements& statements, const StoredCall& call) {
  const auto bind = [&call](SqliteStatement& statement) {
    statement.bind(call.pid, call.process_start_boot_ns, call.function, call.category,
                   call.container, call.pod);
  };
  bind(statements.find_series);
  ASSIGN_OR_RETURN(const bool found, statements.find_series.step());
  if (found) return statements.find_series.number(0);
  bind(statements.insert_series);
  ASSIGN_OR_RETURN(const bool inserted, statements.insert_series.step());
  const int64_t series_id = inserted ? statements.insert_series.number(0) : 0;
  RETURN_IF_ERROR(statements.insert_series.run());
  return series_id;
}

uint64_t get_end_hour(const StoredCall& call) {
  return Retention::get_hour(call.start_unix_ns + call.duration_ns);
}

Status write_call(WriteStatements& statements, const StoredCall& call) {
  ASSIGN_OR_RETURN(const int64_t series_id, get_series(statements, call));
  const CallState state = call.in_flight ? CallState::kInFlight : CallState::kReturned;
  statements.insert_call.bind(call.id, series_id, call.start_unix_ns, call.duration_ns,
                              get_end_hour(call), static_cast<int64_t>(state),
                              SqliteStatement::Blob{call.body});
  RETURN_IF_ERROR(statements.insert_call.run());
  return statements.stacks.link(call);
}

Status note_last_id(const SqliteConnection& connection, uint64_t id) {
  ASSIGN_OR_RETURN(SqliteStatement note,
                   connection.prepare("INSERT INTO meta VALUES('last_id', ?1) ON CONFLICT(key) "
                                      "DO UPDATE SET value = max(value, ?1)",
                                      "write"));
  note.bind(id);
  return note.run();
}

Status begin_log(const SqliteConnection& connection) {
  ASSIGN_OR_RETURN(const std::string mode,
                   connection.read_text("PRAGMA journal_mode = WAL", "open"));
  if (mode == "wal") return absl::OkStatus();
  return absl::FailedPreconditionError(
      connection.path() + ": open: its file system cannot hold a write-ahead log; give the store " +
      "a path on a local disk");
}

// A check that could not read a page says so as if it had found damage, with the code of why:
// "unable to get the page. error code=10". 0 = there is none.
int find_code(std::string_view finding) {
  constexpr std::string_view kBegin = "error code";
  const size_t at = finding.find(kBegin);
  if (at == std::string_view::npos) return 0;
  finding.remove_prefix(std::min(finding.size(), at + kBegin.size() + 1));
  int code = 0;
  (void)std::from_chars(finding.data(), finding.data() + finding.size(), code);
  return code;
}

Status check_pages(const SqliteConnection& connection, uint64_t max_bytes) {
  ASSIGN_OR_RETURN(const int64_t pages, connection.read_number("PRAGMA page_count", "open"));
  ASSIGN_OR_RETURN(const int64_t page_bytes, connection.read_number("PRAGMA page_size", "open"));
  if (static_cast<uint64_t>(pages * page_bytes) > max_bytes) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string finding,
                   connection.read_text("PRAGMA quick_check(1)", "check"));
  if (finding == "ok") return absl::OkStatus();
  const int code = find_code(finding);
  if (code != 0 && code != SQLITE_CORRUPT) return connection.make_error(code, "check");
  return absl::DataLossError(connection.path() + ": check: " + finding +
                             "; move it away; gpuperfd creates a new one");
}

Result<uint64_t> read_last_id_of(const SqliteConnection& connection) {
  ASSIGN_OR_RETURN(
      const int64_t id,
      connection.read_number("SELECT max(coalesce((SELECT max(id) FROM calls), 0), "
                             "coalesce((SELECT value FROM meta WHERE key = 'last_id'), 0))",
                             "read the last id"));
  return static_cast<uint64_t>(std::max<int64_t>(id, 0));
}

Status set_up(SqliteConnection& connection, uint64_t check_max_bytes) {
  RETURN_IF_ERROR(connection.execute(kSetUp, "open"));
  ASSIGN_OR_RETURN(const int64_t pages, connection.read_number("PRAGMA page_count", "open"));
  if (pages == 0) RETURN_IF_ERROR(connection.execute(kSetUpNewFile, "open"));
  RETURN_IF_ERROR(check_origin(connection, store_migrations()));
  // It could be opened for writing, so its own header forbids that.
  if (connection.is_read_only()) return connection.make_error(SQLITE_CORRUPT, "open");
  RETURN_IF_ERROR(begin_log(connection));
  RETURN_IF_ERROR(connection.execute(kSetUpOwnFile, "open"));
  RETURN_IF_ERROR(migrate(connection, store_migrations()));
  RETURN_IF_ERROR(check_schema(connection, store_migrations()));
  RETURN_IF_ERROR(check_pages(connection, check_max_bytes));
  // Without it, ids would be given a second time.
  RETURN_IF_ERROR(read_last_id_of(connection).status());
  // Whoever wrote them is gone.
  return connection.execute("UPDATE calls SET state = 2 WHERE state = 1", "open");
}
static_assert(static_cast<int>(CallState::kInFlight) == 1 &&
              static_cast<int>(CallState::kUnfinished) == 2);

// What only a damaged file answers to the statements made at open.
bool is_damage(const Status& status) { return absl::IsDataLoss(status) || absl::IsUnknown(status); }

}  // namespace

SlowCallDatabase::SlowCallDatabase(std::unique_ptr<SqliteConnection> connection,
                                   const Options& options)
    : connection_(std::move(connection)),
      retention_(*connection_, {.max_bytes = options.max_bytes,
                                .worst_per_window = options.worst_per_window,
                                .history = options.history,
                                .retention = options.retention}) {}

Result<std::unique_ptr<SlowCallDatabase>> SlowCallDatabase::open(const Options& options) {
  if (options.max_bytes < kMinBytes) {
    return absl::InvalidArgumentError(
        options.path + ": open: room for " + std::to_string(options.max_bytes) +
        " bytes is too little; give the store at least " + std::to_string(kMinBytes));
  }
  RETURN_IF_ERROR(prepare_store_file(options.path));
  auto database = open_file(options);
  if (!is_damage(database.status())) return database;
  RETURN_IF_ERROR(set_aside_store(options.path, database.status()));
  RETURN_IF_ERROR(prepare_store_file(options.path));
  return open_file(options);
}

Result<std::unique_ptr<SlowCallDatabase>> SlowCallDatabase::open_file(const Options& options) {
  ASSIGN_OR_RETURN(auto connection, SqliteConnection::open(options.path, Access::kWrite));
  // A file that is refused is left as it is, log and all.
  connection->set_checkpoint_on_close(false);
  RETURN_IF_ERROR(set_up(*connection, options.check_max_bytes));
  connection->set_checkpoint_on_close(true);
  return std::unique_ptr<SlowCallDatabase>(new SlowCallDatabase(std::move(connection), options));
}

Result<std::unique_ptr<SqliteConnection>> SlowCallDatabase::open_reader(const std::string& path) {
  ASSIGN_OR_RETURN(auto connection, SqliteConnection::open(path, Access::kRead));
  RETURN_IF_ERROR(connection->execute(kSetUp, "open"));
  return connection;
}

Status SlowCallDatabase::check(const StoredCall& call) {
  constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
  const auto refuse = [&call](const std::string& cause) {
    return absl::InvalidArgumentError("slow call " + std::to_string(call.id) + ": store: " + cause);
  };
  if (call.id == 0) return refuse("it has no id");
  for (const uint64_t number :
       {call.id, call.start_unix_ns, call.duration_ns, call.process_start_boot_ns}) {
    if (number > kMax) return refuse(std::to_string(number) + " is 2^63 or more");
  }
  for (const std::string* text : {&call.category, &call.function, &call.container, &call.pod}) {
    if (text->size() > kMaxTextBytes) {
      return refuse("a name of " + std::to_string(text->size()) + " bytes is too long");
    }
  }
  if (count_bytes(call) > kMaxBodyBytes) {
    return refuse("a body of " + std::to_string(count_bytes(call)) +
                  " bytes, its stacks included, is too long");
  }
  if (call.stacks.size() > kMaxStacks) {
    return refuse(std::to_string(call.stacks.size()) + " stacks are too many");
  }
  uint64_t last_id = 0;
  for (const StoredStack& stack : call.stacks) {
    if (stack.id <= last_id) return refuse("its stacks are not in the order of their ids");
    if (stack.id > kMax) return refuse(std::to_string(stack.id) + " is 2^63 or more");
    last_id = stack.id;
  }
  return absl::OkStatus();
}

uint64_t SlowCallDatabase::count_bytes(const StoredCall& call) {
  uint64_t bytes = call.body.size();
  for (const StoredStack& stack : call.stacks) bytes += stack.body.size();
  return bytes;
}

Status SlowCallDatabase::write(std::span<const StoredCall> calls) {
  if (calls.empty()) return absl::OkStatus();
  std::set<uint64_t> hours;
  uint64_t last_id = 0;
  for (const StoredCall& call : calls) {
    RETURN_IF_ERROR(check(call));
    hours.insert(get_end_hour(call));
    last_id = std::max(last_id, call.id);
  }
  ASSIGN_OR_RETURN(SqliteTransaction transaction,
                   SqliteTransaction::begin(*connection_, Access::kWrite));
  {
    ASSIGN_OR_RETURN(WriteStatements statements, prepare_write(*connection_));
    for (const StoredCall& call : calls) RETURN_IF_ERROR(write_call(statements, call));
    RETURN_IF_ERROR(statements.stacks.erase_unnamed());
  }
  RETURN_IF_ERROR(note_last_id(*connection_, last_id));
  RETURN_IF_ERROR(retention_.make_room(std::vector<uint64_t>(hours.begin(), hours.end())));
  return transaction.commit();
}

Status SlowCallDatabase::prune(uint64_t now_unix_ns) {
  while (true) {
    ASSIGN_OR_RETURN(const bool more, prune_some(now_unix_ns));
    if (!more) return absl::OkStatus();
  }
}

Status SlowCallDatabase::checkpoint() {
  // Its row says whether a reader was in the way: then the next one goes on.
  return connection_->read_number("PRAGMA wal_checkpoint(TRUNCATE)", "empty the log").status();
}

Result<std::vector<StoredCall>> SlowCallDatabase::query(const StoreQuery& query) {
  return query_calls(*connection_, query);
}

Result<std::optional<StoredCall>> SlowCallDatabase::find(uint64_t id) {
  return find_call(*connection_, id);
}

Result<uint64_t> SlowCallDatabase::read_last_id() { return read_last_id_of(*connection_); }

}  // namespace gpuperf
