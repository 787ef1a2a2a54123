#include "daemon/store/sqlite_connection.h"

#include <cstring>

#include "daemon/base/wildcard.h"

namespace gpuperf {
namespace {

struct CodeRow {
  int code;
  absl::StatusCode status;
  const char* advice;
};
constexpr CodeRow kCodeRows[] = {
    {SQLITE_FULL, absl::StatusCode::kResourceExhausted, "free space on its file system"},
    {SQLITE_NOMEM, absl::StatusCode::kResourceExhausted, "give gpuperfd more memory"},
    {SQLITE_CORRUPT, absl::StatusCode::kDataLoss, "move it away; gpuperfd creates a new one"},
    {SQLITE_NOTADB, absl::StatusCode::kDataLoss, "move it away; gpuperfd creates a new one"},
    // What is written breaks no rule of a sound file.
    {SQLITE_CONSTRAINT, absl::StatusCode::kDataLoss, "move it away; gpuperfd creates a new one"},
    {SQLITE_MISMATCH, absl::StatusCode::kDataLoss, "move it away; gpuperfd creates a new one"},
    {SQLITE_READONLY, absl::StatusCode::kPermissionDenied,
     "let gpuperfd write there, or give the store another path"},
    {SQLITE_PERM, absl::StatusCode::kPermissionDenied,
     "let gpuperfd read and write there, or give the store another path"},
    {SQLITE_CANTOPEN, absl::StatusCode::kPermissionDenied,
     "let gpuperfd read and write in its folder, or give the store another path"},
    {SQLITE_BUSY, absl::StatusCode::kUnavailable, "end the program that holds it open"},
    {SQLITE_LOCKED, absl::StatusCode::kUnavailable, "end the program that holds it open"},
    {SQLITE_IOERR, absl::StatusCode::kInternal, "look for errors of its disk in the kernel's log"},
};
constexpr CodeRow kOther{SQLITE_ERROR, absl::StatusCode::kUnknown, "report this as a bug"};

const CodeRow& get_row(int code) {
  for (const CodeRow& row : kCodeRows) {
    if (row.code == (code & 0xff)) return row;  // the rest is the extended code
  }
  return kOther;
}

std::string_view view(sqlite3_value* value) {
  const auto* text = reinterpret_cast<const char*>(sqlite3_value_text(value));
  return text == nullptr ? std::string_view()
                         : std::string_view(text, static_cast<size_t>(sqlite3_value_bytes(value)));
}

// matches_wildcard(pattern, text), as everywhere in the daemon.
void match_wildcard(sqlite3_context* context, int, sqlite3_value** values) {
  sqlite3_result_int(context, matches_wildcard(view(values[0]), view(values[1])) ? 1 : 0);
}

}  // namespace

Result<std::unique_ptr<SqliteConnection>> SqliteConnection::open(const std::string& path,
                                                                 Access access) {
  const int mode = access == Access::kRead ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE;
  sqlite3* database = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &database,
                                   mode | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, nullptr);
  // Set also on failure, to ask it for the cause; null only without memory for it.
  std::unique_ptr<SqliteConnection> connection(new SqliteConnection(path, database));
  if (code != SQLITE_OK) return connection->make_error(code, "open");
  // Nothing in a file makes us run what we did not write.
  (void)sqlite3_db_config(database, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  (void)sqlite3_db_config(database, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  const int function_code = sqlite3_create_function_v2(
      database, "matches_wildcard", 2, SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_DIRECTONLY,
      nullptr, match_wildcard, nullptr, nullptr, nullptr);
  if (function_code != SQLITE_OK) return connection->make_error(function_code, "open");
  return connection;
}

Status SqliteConnection::make_error(int code, std::string_view action) const {
  const CodeRow& row = get_row(code);
  std::string text = path_ + ": " + std::string(action) + ": ";
  const bool is_last = database_ != nullptr && sqlite3_errcode(database_.get()) == code;
  text += is_last ? sqlite3_errmsg(database_.get()) : sqlite3_errstr(code);
  const int error_number = database_ == nullptr ? 0 : sqlite3_system_errno(database_.get());
  const bool is_of_system = row.code == SQLITE_IOERR || row.code == SQLITE_CANTOPEN;
  if (is_of_system && error_number != 0) {
    text += std::string(" (") + std::strerror(error_number) + ")";
  }
  return {row.status, text + "; " + row.advice};
}

Status SqliteConnection::execute(const std::string& sql, const char* action) {
  const int code = sqlite3_exec(database_.get(), sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : make_error(code, action);
}

Result<SqliteStatement> SqliteConnection::prepare(std::string_view sql, const char* action) const {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v2(database_.get(), sql.data(), static_cast<int>(sql.size()),
                                      &statement, nullptr);
  if (code != SQLITE_OK) return make_error(code, action);
  return SqliteStatement(this, action, statement);
}

Result<int64_t> SqliteConnection::read_number(std::string_view sql, const char* action) const {
  ASSIGN_OR_RETURN(SqliteStatement statement, prepare(sql, action));
  ASSIGN_OR_RETURN(const bool found, statement.step());
  return found ? statement.number(0) : 0;
}

Result<std::string> SqliteConnection::read_text(std::string_view sql, const char* action) const {
  ASSIGN_OR_RETURN(SqliteStatement statement, prepare(sql, action));
  ASSIGN_OR_RETURN(const bool found, statement.step());
  return found ? statement.text(0) : std::string();
}

void SqliteConnection::set_checkpoint_on_close(bool enabled) {
  (void)sqlite3_db_config(database_.get(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, enabled ? 0 : 1,
                          nullptr);
}

bool SqliteConnection::has_moved() const {
  int moved = 0;
  // Fails only where a file system cannot tell, and then it has not.
  (void)sqlite3_file_control(database_.get(), "main", SQLITE_FCNTL_HAS_MOVED, &moved);
  return moved != 0;
}

Status SqliteConnection::sync() const {
  sqlite3_file* log = nullptr;
  const int code =
      sqlite3_file_control(database_.get(), "main", SQLITE_FCNTL_JOURNAL_POINTER, &log);
  if (code != SQLITE_OK) return make_error(code, "sync");
  if (log == nullptr || log->pMethods == nullptr) return absl::OkStatus();  // nothing written yet
  const int sync_code = log->pMethods->xSync(log, SQLITE_SYNC_NORMAL | SQLITE_SYNC_DATAONLY);
  return sync_code == SQLITE_OK ? absl::OkStatus() : make_error(sync_code, "sync");
}

void SqliteStatement::bind_at(int index, std::string_view text) {
  // A null pointer would bind NULL.
  note(sqlite3_bind_text64(statement_.get(), index, text.empty() ? "" : text.data(), text.size(),
                           SQLITE_STATIC, SQLITE_UTF8));
}

void SqliteStatement::bind_at(int index, const Blob& blob) {
  note(sqlite3_bind_blob64(statement_.get(), index, blob.bytes.empty() ? "" : blob.bytes.data(),
                           blob.bytes.size(), SQLITE_STATIC));
}

Result<bool> SqliteStatement::step() {
  const int code = bind_code_ == SQLITE_OK ? sqlite3_step(statement_.get()) : bind_code_;
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  const Status status = connection_->make_error(code, action_);
  reset();
  return status;
}

Status SqliteStatement::run() {
  while (true) {
    ASSIGN_OR_RETURN(const bool has_row, step());
    if (has_row) continue;
    reset();
    return absl::OkStatus();
  }
}

void SqliteStatement::reset() {
  // Repeats the error of the last step, which has been returned.
  (void)sqlite3_reset(statement_.get());
  bind_code_ = SQLITE_OK;
}

std::string SqliteStatement::text(int column) const {
  // In this order: the size is that of the form asked for last.
  const void* bytes = sqlite3_column_blob(statement_.get(), column);
  const int size_bytes = sqlite3_column_bytes(statement_.get(), column);
  return bytes == nullptr
             ? std::string()
             : std::string(static_cast<const char*>(bytes), static_cast<size_t>(size_bytes));
}

Result<SqliteTransaction> SqliteTransaction::begin(SqliteConnection& connection,
                                                   SqliteConnection::Access access) {
  const bool writes = access == SqliteConnection::Access::kWrite;
  RETURN_IF_ERROR(writes ? connection.execute("BEGIN IMMEDIATE", "write")
                         : connection.execute("BEGIN", "query"));
  return SqliteTransaction(&connection);
}

SqliteTransaction::~SqliteTransaction() {
  if (connection_ == nullptr || !connection_->in_transaction()) return;
  // Cannot fail while there is a transaction; statements still reading are ended by it.
  (void)connection_->execute("ROLLBACK", "roll back");
}

}  // namespace gpuperf
