#include "tests/unit/store/failing_memory.h"

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <atomic>

namespace gpuperf::testing {
namespace {

sqlite3_mem_methods real_memory{};
std::atomic<int64_t> allocations_left = 0;  // until one fails; 0 = none does
std::atomic<bool> fails_for_ever = false;
std::atomic<bool> allocation_failed = false;

bool is_to_fail_now() {
  if (allocation_failed && fails_for_ever) return true;
  if (allocations_left == 0 || --allocations_left != 0) return false;
  allocation_failed = true;
  return true;
}

void* allocate(int bytes) { return is_to_fail_now() ? nullptr : real_memory.xMalloc(bytes); }
void* reallocate(void* at, int bytes) {
  return is_to_fail_now() ? nullptr : real_memory.xRealloc(at, bytes);
}

}  // namespace

FailingMemory::FailingMemory() {
  EXPECT_EQ(sqlite3_shutdown(), SQLITE_OK);
  EXPECT_EQ(sqlite3_config(SQLITE_CONFIG_GETMALLOC, &real_memory), SQLITE_OK);
  sqlite3_mem_methods failing = real_memory;
  failing.xMalloc = allocate;
  failing.xRealloc = reallocate;
  heal();
  EXPECT_EQ(sqlite3_config(SQLITE_CONFIG_MALLOC, &failing), SQLITE_OK);
}

FailingMemory::~FailingMemory() {
  heal();
  EXPECT_EQ(sqlite3_shutdown(), SQLITE_OK);
  EXPECT_EQ(sqlite3_config(SQLITE_CONFIG_MALLOC, &real_memory), SQLITE_OK);
}

void FailingMemory::fail(uint64_t nth, bool for_ever) {
  allocation_failed = false;
  fails_for_ever = for_ever;
  allocations_left = static_cast<int64_t>(nth);
}

void FailingMemory::heal() {
  allocations_left = 0;
  fails_for_ever = false;
}

bool FailingMemory::has_failed() const { return allocation_failed; }

}  // namespace gpuperf::testing
