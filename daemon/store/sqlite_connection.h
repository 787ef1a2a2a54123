#pragma once

#include <sqlite3.h>

#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/base/result.h"

namespace gpuperf {

class SqliteStatement;

// One connection to a database file.
//
// Thread: one at a time. Must outlive its statements. Errors name the file, what was done
// (`action`, a literal), the cause and what to do; kDataLoss = the file is damaged or no database,
// kResourceExhausted = full, kPermissionDenied = may not be read or written, kUnavailable = held by
// another program, kInternal = the disk failed, kUnknown = SQL that the file does not fit. Not
// here: what the file holds.
class SqliteConnection {
 public:
  enum class Access { kRead, kWrite };

  // The file must be there. Reads nothing of it yet.
  static Result<std::unique_ptr<SqliteConnection>> open(const std::string& path, Access access);
  SqliteConnection(const SqliteConnection&) = delete;
  SqliteConnection& operator=(const SqliteConnection&) = delete;

  // One or more SQL statements; their rows do not matter.
  Status execute(const std::string& sql, const char* action);
  Result<SqliteStatement> prepare(std::string_view sql, const char* action) const;
  // The first column of the first row; 0 when there is none, or it is NULL.
  Result<int64_t> read_number(std::string_view sql, const char* action) const;
  Result<std::string> read_text(std::string_view sql, const char* action) const;

  // Whether closing it may move the write-ahead log into the file; true at first.
  void set_checkpoint_on_close(bool enabled);
  // Whether the path names another file by now, or none.
  bool has_moved() const;
  // Brings what was committed from the kernel's memory to the disk.
  Status sync() const;
  // Also when the file's header says so: known once something was read.
  bool is_read_only() const { return sqlite3_db_readonly(database_.get(), "main") == 1; }
  bool in_transaction() const { return sqlite3_get_autocommit(database_.get()) == 0; }

  const std::string& path() const { return path_; }
  Status make_error(int code, std::string_view action) const;

 private:
  struct Close {
    // With statements left it would close later; there are none, they end before it.
    void operator()(sqlite3* database) const { (void)sqlite3_close_v2(database); }
  };
  SqliteConnection(std::string path, sqlite3* database)
      : path_(std::move(path)), database_(database) {}

  const std::string path_;
  const std::unique_ptr<sqlite3, Close> database_;
};

// One prepared statement of a connection.
class SqliteStatement {
 public:
  struct Blob {
    std::string_view bytes;
  };

  // Begins anew with these values for its parameters, in order: integers, texts and blobs. Texts
  // and blobs are not copied: they must live until the last `step`.
  template <typename... Values>
  void bind(const Values&... values) {
    reset();
    int index = 0;
    (bind_at(++index, values), ...);
  }
  void bind_at(int index, std::string_view text);
  void bind_at(int index, const Blob& blob);
  void bind_at(int index, std::integral auto number) {
    note(sqlite3_bind_int64(statement_.get(), index, static_cast<int64_t>(number)));
  }

  // true = there is a row to read; false = done.
  Result<bool> step();
  // To the end, whatever the rows; gives up the locks.
  Status run();
  // Gives up the locks and the place, not the values.
  void reset();

  int64_t number(int column) const { return sqlite3_column_int64(statement_.get(), column); }
  std::string text(int column) const;  // of a text or a blob

 private:
  friend class SqliteConnection;
  struct Finalize {
    // Repeats the error of the last step, which has been returned.
    void operator()(sqlite3_stmt* statement) const { (void)sqlite3_finalize(statement); }
  };
  SqliteStatement(const SqliteConnection* connection, const char* action, sqlite3_stmt* statement)
      : connection_(connection), action_(action), statement_(statement) {}

  void note(int code) {
    if (bind_code_ == SQLITE_OK) bind_code_ = code;
  }

  const SqliteConnection* connection_;
  const char* action_;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  int bind_code_ = SQLITE_OK;  // the first that failed since `reset`
};

// Takes back what was done since it began, unless it was committed.
class SqliteTransaction {
 public:
  // A reading one sees one state of the file throughout; a writing one keeps other writers out.
  static Result<SqliteTransaction> begin(SqliteConnection& connection,
                                         SqliteConnection::Access access);
  SqliteTransaction(SqliteTransaction&& other) noexcept
      : connection_(std::exchange(other.connection_, nullptr)) {}
  SqliteTransaction& operator=(SqliteTransaction&&) = delete;
  ~SqliteTransaction();

  Status commit() { return connection_->execute("COMMIT", "write"); }

 private:
  explicit SqliteTransaction(SqliteConnection* connection) : connection_(connection) {}
  SqliteConnection* connection_;  // null = moved from
};

}  // namespace gpuperf
