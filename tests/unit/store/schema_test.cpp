#include "daemon/store/schema.h"

#include <algorithm>
#include <filesystem>
#include <stdexcept>

#include "tests/unit/matchers.h"
#include "tests/unit/store/store_fixture.h"

namespace gpuperf::testing {
namespace {

class SchemaTest : public StoreTest {
 protected:
  using Access = SqliteConnection::Access;

  std::unique_ptr<SqliteConnection> connect() {
    if (!std::filesystem::exists(path_)) write_file(path_, "");
    auto connection = SqliteConnection::open(path_, Access::kWrite);
    if (!connection.ok()) throw std::runtime_error(connection.status().ToString());
    return std::move(connection).value();
  }
  // As a daemon of that version left it.
  void make_store_of_version(size_t version) {
    const auto connection = connect();
    ASSERT_EQ(connection->execute("PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL",
                                  "prepare"),
              absl::OkStatus());
    ASSERT_EQ(migrate(*connection, store_migrations().first(version)), absl::OkStatus());
  }
  static std::string message(const Status& status) { return std::string(status.message()); }
};

TEST_F(SchemaTest, TakesAFileOfVersionNoughtToTheNewest) {
  // Killed after the file was made, before its tables were.
  write_file(path_, "");
  execute("PRAGMA journal_mode = WAL; PRAGMA user_version = 0");

  const auto database = open();

  EXPECT_EQ(database->write({{make_call(1)}}), absl::OkStatus());
  const int64_t newest = std::ssize(store_migrations());
  EXPECT_EQ(read_number("PRAGMA user_version"), newest);
  EXPECT_EQ(read_number("SELECT value FROM meta WHERE key = 'schema_version'"), newest);
  EXPECT_EQ(read_number("PRAGMA application_id"), kStoreApplicationId);
}

TEST_F(SchemaTest, MakesAFileThatCanShrink) {
  (void)open();

  EXPECT_EQ(read_number("PRAGMA auto_vacuum"), 2);  // incremental
  EXPECT_EQ(read_number("PRAGMA page_size"), 8192);
}

TEST_F(SchemaTest, TakesAnOlderStoreStepByStepAndKeepsItsCalls) {
  ASSERT_EQ(open()->write({{make_call(1)}}), absl::OkStatus());
  std::vector<const char*> steps(store_migrations().begin(), store_migrations().end());
  steps.push_back("ALTER TABLE calls ADD COLUMN rank INTEGER NOT NULL DEFAULT 5");
  steps.push_back("CREATE INDEX calls_by_rank ON calls(rank); UPDATE calls SET rank = rank + 1");
  const auto connection = connect();

  EXPECT_EQ(check_origin(*connection, steps), absl::OkStatus());
  EXPECT_TRUE(absl::IsDataLoss(check_schema(*connection, steps)));
  ASSERT_EQ(migrate(*connection, steps), absl::OkStatus());

  EXPECT_EQ(check_schema(*connection, steps), absl::OkStatus());
  EXPECT_EQ(read_number("PRAGMA user_version"), std::ssize(steps));
  EXPECT_EQ(read_number("SELECT rank FROM calls WHERE id = 1"), 6);
  EXPECT_EQ(migrate(*connection, steps), absl::OkStatus());
  EXPECT_EQ(read_number("SELECT rank FROM calls WHERE id = 1"), 6);
}

TEST_F(SchemaTest, KeepsTheCallsOfVersionOneAndTheirBodies) {
  make_store_of_version(1);
  const StoredCall first = make_call(1);
  execute("INSERT INTO series VALUES(3, 'memory', 'cudaMalloc', 7, 70, '0123456789ab', 'train-0')");
  execute("INSERT INTO calls VALUES(1, 3, " + std::to_string(first.start_unix_ns) + ", 1000, " +
          std::to_string((first.start_unix_ns + 1000) / kHour) + ", 0, 'body of 1')");
  StoredCall second = make_call(2, 2000);
  second.stacks = {make_stored_stack(8)};

  auto database = open();

  EXPECT_EQ(*database->find(1), first);
  ASSERT_EQ(database->write({{second}}), absl::OkStatus());
  EXPECT_EQ(*database->query({}), (std::vector<StoredCall>{second, first}));
  EXPECT_EQ(read_number("PRAGMA user_version"), 2);
  EXPECT_EQ(read_number("SELECT count(*) FROM series"), 1);
  // An old call leaves like any other.
  ASSERT_EQ(database->prune(kNow + 1000 * kHour), absl::OkStatus());
  EXPECT_EQ(read_ids(*database), Ids());
  database.reset();
  EXPECT_EQ(*open()->read_last_id(), 2u);
  EXPECT_TRUE(find_set_aside().empty());
}

TEST_F(SchemaTest, RefusesAStoreWhoseNewTablesSomebodyElseMade) {
  make_store_of_version(1);
  execute("CREATE TABLE stacks(text TEXT)");

  EXPECT_EQ(open()->write({{make_call(1)}}), absl::OkStatus());

  EXPECT_EQ(find_set_aside().size(), 1u);
}

TEST_F(SchemaTest, LeavesAStoreAsItWasWhenAStepFails) {
  ASSERT_EQ(open()->write({{make_call(1)}}), absl::OkStatus());
  std::vector<const char*> steps(store_migrations().begin(), store_migrations().end());
  steps.push_back("DELETE FROM calls; SELECT no_such_function()");

  EXPECT_FALSE(migrate(*connect(), steps).ok());

  EXPECT_EQ(read_number("PRAGMA user_version"), std::ssize(steps) - 1);
  EXPECT_EQ(open()->find(1).value(), make_call(1));
}

TEST_F(SchemaTest, RefusesAStoreOfANewerVersionAndLeavesItAsItIs) {
  ASSERT_EQ(open()->write({{make_call(1)}}), absl::OkStatus());
  const int64_t newer = std::ssize(store_migrations()) + 8;
  execute("PRAGMA user_version = " + std::to_string(newer) +
          "; UPDATE meta SET value = " + std::to_string(newer) + " WHERE key = 'schema_version'");
  const std::string before = read_file(path_);

  const auto database = SlowCallDatabase::open(options_);

  EXPECT_TRUE(absl::IsFailedPrecondition(database.status()));
  EXPECT_EQ(message(database.status()),
            path_ + ": open: a newer gpuperfd wrote it (store version " + std::to_string(newer) +
                ", this one knows " + std::to_string(newer - 8) +
                "); run that gpuperfd, or move the file away");
  EXPECT_TRUE(read_file(path_) == before);
  EXPECT_TRUE(find_set_aside().empty());
}

TEST_F(SchemaTest, RefusesANewerStoreWithALogAndLeavesBothAsTheyAre) {
  const auto writer = open();  // still open: its log is not moved into the file
  ASSERT_EQ(writer->write({{make_call(1)}}), absl::OkStatus());
  execute("PRAGMA user_version = 9; UPDATE meta SET value = 9 WHERE key = 'schema_version'");
  const std::string copy = folder_ + "/copy.db";
  write_file(copy, read_file(path_));
  write_file(copy + "-wal", read_file(path_ + "-wal"));
  options_.path = copy;

  const auto database = SlowCallDatabase::open(options_);

  EXPECT_THAT(message(database.status()), HasSubstr("a newer gpuperfd wrote it"));
  // Not compared by EXPECT_EQ, which would print them.
  EXPECT_TRUE(read_file(copy) == read_file(path_));
  EXPECT_FALSE(read_file(copy + "-wal").empty());
  EXPECT_TRUE(read_file(copy + "-wal") == read_file(path_ + "-wal"));
}

TEST_F(SchemaTest, RefusesADatabaseOfAnotherProgramAndLeavesItAsItIs) {
  write_file(path_, "");
  execute("CREATE TABLE dashboards(id INTEGER); INSERT INTO dashboards VALUES(1)");
  const std::string before = read_file(path_);

  const auto database = SlowCallDatabase::open(options_);

  EXPECT_EQ(message(database.status()),
            path_ + ": open: it is a database of another program; give the store another path");
  EXPECT_TRUE(read_file(path_) == before);
}

TEST_F(SchemaTest, SetsAsideAStoreWhoseVersionsDiffer) {
  (void)open();
  execute("PRAGMA user_version = 9");

  EXPECT_EQ(open()->write({{make_call(1)}}), absl::OkStatus());

  EXPECT_EQ(find_set_aside().size(), 1u);
}

TEST_F(SchemaTest, SetsAsideAStoreThatLacksATableOrAnIndex) {
  for (const char* damage : {"DROP INDEX calls_by_hour", "DROP TABLE untrimmed_hours",
                             "DROP TABLE meta", "DROP TABLE stacks", "DROP TABLE call_stacks",
                             "DROP INDEX call_stacks_by_stack", "PRAGMA application_id = 3"}) {
    SCOPED_TRACE(damage);
    (void)open();
    const size_t before = find_set_aside().size();
    execute(damage);

    EXPECT_EQ(open()->write({{make_call(1)}}), absl::OkStatus());

    EXPECT_EQ(find_set_aside().size(), std::min(before + 1, size_t{2}));
  }
}

TEST_F(SchemaTest, TakesAStoreToWhichSomebodyAddedATable) {
  ASSERT_EQ(open()->write({{make_call(1)}}), absl::OkStatus());
  execute("CREATE TABLE notes(text TEXT)");

  EXPECT_EQ(open()->find(1).value(), make_call(1));
}

}  // namespace
}  // namespace gpuperf::testing
