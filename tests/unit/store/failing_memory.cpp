#include "tests/unit/store/failing_memory.h"

#include <gtest/gtest.h>
#include <sqlite3.h>

#include "tests/unit/store/failing_step.h"

namespace gpuperf::testing {
namespace {

sqlite3_mem_methods real_memory{};
FailingStep failing_allocation;

void* allocate(int bytes) {
  return failing_allocation.is_now() ? nullptr : real_memory.xMalloc(bytes);
}
void* reallocate(void* at, int bytes) {
  return failing_allocation.is_now() ? nullptr : real_memory.xRealloc(at, bytes);
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

void FailingMemory::fail(uint64_t nth, bool for_ever) { failing_allocation.fail(nth, for_ever); }

void FailingMemory::heal() { failing_allocation.heal(); }

bool FailingMemory::has_failed() const { return failing_allocation.has_failed(); }

}  // namespace gpuperf::testing
