#pragma once

#include <cstdint>
#include <set>
#include <utility>

#include "daemon/base/result.h"
#include "daemon/store/sqlite_connection.h"
#include "daemon/store/stored_call.h"

namespace gpuperf {

// Writes the stacks of calls: equal ones once, for as long as a stored call names them.
//
// Thread: that of the connection, which must outlive it. To be used within the transaction that
// writes or removes the calls, and to end before it does. Promises: after `erase_unnamed` every
// stack in a sound file is named by a call. Not here: reading them (call_query).
class CallStacks {
 public:
  // `action` is what its errors say was done: a literal.
  static Result<CallStacks> prepare(const SqliteConnection& connection, const char* action);

  // In place of those that the call had. A stack that is there already stays as it is.
  Status link(const StoredCall& call);
  // For a call that leaves.
  Status unlink(uint64_t call_id);
  // Removes what lost a call since the last time and has none left.
  Status erase_unnamed();

 private:
  CallStacks(SqliteStatement erase_links, SqliteStatement insert_link, SqliteStatement insert_stack,
             SqliteStatement erase_stack)
      : erase_links_(std::move(erase_links)),
        insert_link_(std::move(insert_link)),
        insert_stack_(std::move(insert_stack)),
        erase_stack_(std::move(erase_stack)) {}

  SqliteStatement erase_links_;
  SqliteStatement insert_link_;
  SqliteStatement insert_stack_;
  SqliteStatement erase_stack_;
  std::set<int64_t> unlinked_;  // stacks
};

}  // namespace gpuperf
