#pragma once

// Reads stored calls. Each of these sees one state of the file.

#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/store/sqlite_connection.h"
#include "daemon/store/stored_call.h"

namespace gpuperf {

Result<std::vector<StoredCall>> query_calls(SqliteConnection& connection, const StoreQuery& query);
Result<std::optional<StoredCall>> find_call(SqliteConnection& connection, uint64_t id);

}  // namespace gpuperf
