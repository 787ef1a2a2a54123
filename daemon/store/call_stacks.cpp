#include "daemon/store/call_stacks.h"

namespace gpuperf {

Result<CallStacks> CallStacks::prepare(const SqliteConnection& connection, const char* action) {
  ASSIGN_OR_RETURN(
      SqliteStatement erase_links,
      connection.prepare("DELETE FROM call_stacks WHERE call_id = ? RETURNING stack_id", action));
  ASSIGN_OR_RETURN(
      SqliteStatement insert_link,
      connection.prepare("INSERT INTO call_stacks(call_id, stack_id) VALUES(?, ?)", action));
  ASSIGN_OR_RETURN(
      SqliteStatement insert_stack,
      connection.prepare("INSERT OR IGNORE INTO stacks(id, body) VALUES(?, ?)", action));
  ASSIGN_OR_RETURN(SqliteStatement erase_stack,
                   connection.prepare("DELETE FROM stacks WHERE id = ?1 AND NOT EXISTS "
                                      "(SELECT 1 FROM call_stacks WHERE stack_id = ?1)",
                                      action));
  return CallStacks(std::move(erase_links), std::move(insert_link), std::move(insert_stack),
                    std::move(erase_stack));
}

Status CallStacks::link(const StoredCall& call) {
  RETURN_IF_ERROR(unlink(call.id));
  for (const StoredStack& stack : call.stacks) {
    insert_stack_.bind(stack.id, SqliteStatement::Blob{stack.body});
    RETURN_IF_ERROR(insert_stack_.run());
    insert_link_.bind(call.id, stack.id);
    RETURN_IF_ERROR(insert_link_.run());
  }
  return absl::OkStatus();
}

Status CallStacks::unlink(uint64_t call_id) {
  erase_links_.bind(call_id);
  while (true) {
    ASSIGN_OR_RETURN(const bool has_row, erase_links_.step());
    if (!has_row) return absl::OkStatus();
    unlinked_.insert(erase_links_.number(0));
  }
}

Status CallStacks::erase_unnamed() {
  for (const int64_t stack_id : unlinked_) {
    erase_stack_.bind(stack_id);
    RETURN_IF_ERROR(erase_stack_.run());
  }
  unlinked_.clear();
  return absl::OkStatus();
}

}  // namespace gpuperf
