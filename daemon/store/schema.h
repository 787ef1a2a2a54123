#pragma once

// What a store's file holds, version by version.
//
// PRAGMA user_version is the version of a file; the table `meta` holds it a second time, in every
// version, so that a damaged number is told from a newer one. PRAGMA application_id says that the
// file is a store.

#include <cstdint>
#include <span>

#include "daemon/base/result.h"
#include "daemon/store/sqlite_connection.h"

namespace gpuperf {

inline constexpr int64_t kStoreApplicationId = 0x67705343;  // "gpSC"

// Column `state` of a call.
enum class CallState : int64_t {
  kReturned = 0,
  kInFlight = 1,
  kUnfinished = 2,  // was in flight when its daemon died
};

// Row i is the SQL that takes a file from version i to i + 1. Rows are only added: a file of any
// earlier version is brought to the newest one step by step.
std::span<const char* const> store_migrations();

// Refuses (kFailedPrecondition) a file of another program and one of a later version than there
// are steps; kDataLoss = a damaged store. Changes nothing in it.
Status check_origin(SqliteConnection& connection, std::span<const char* const> steps);

// Each step that the file has yet to take is one transaction: killed in between, it goes on there.
Status migrate(SqliteConnection& connection, std::span<const char* const> steps);

// kDataLoss unless every table and index that the steps make is there as they make it.
Status check_schema(SqliteConnection& connection, std::span<const char* const> steps);

}  // namespace gpuperf
