#include "tests/unit/store/store_fixture.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <stdexcept>

namespace gpuperf::testing {

namespace fs = std::filesystem;

std::unique_ptr<SlowCallDatabase> StoreTest::open() {
  auto database = SlowCallDatabase::open(options_);
  if (!database.ok()) throw std::runtime_error(database.status().ToString());
  return std::move(database).value();
}

std::vector<std::string> StoreTest::find_set_aside() const {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    const bool is_companion = name.ends_with("-wal") || name.ends_with("-shm");
    if (name.find(".corrupt-") != std::string::npos && !is_companion) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

int64_t StoreTest::read_number(const std::string& sql) const {
  const auto connection = SqliteConnection::open(path_, SqliteConnection::Access::kRead);
  if (!connection.ok()) throw std::runtime_error(connection.status().ToString());
  const auto number = (*connection)->read_number(sql, "read");
  EXPECT_EQ(number.status(), absl::OkStatus());
  return number.value_or(-1);
}

void StoreTest::execute(const std::string& sql) const {
  const auto connection = SqliteConnection::open(path_, SqliteConnection::Access::kWrite);
  if (!connection.ok()) throw std::runtime_error(connection.status().ToString());
  ASSERT_EQ((*connection)->execute(sql, "prepare"), absl::OkStatus());
}

void StoreTest::expect_sound_stacks() const {
  EXPECT_EQ(read_number("SELECT count(*) FROM stacks "
                        "WHERE id NOT IN (SELECT stack_id FROM call_stacks)"),
            0);
  EXPECT_EQ(read_number("SELECT count(*) FROM call_stacks "
                        "WHERE stack_id NOT IN (SELECT id FROM stacks) "
                        "OR call_id NOT IN (SELECT id FROM calls)"),
            0);
}

StoredStack make_stored_stack(uint64_t id, size_t bytes) {
  std::string body = "stack " + std::to_string(id) + " ";
  body.resize(bytes, 's');
  return {.id = id, .body = body};
}

StoredCall make_call(uint64_t id, uint64_t duration_ns) {
  return {.id = id,
          .start_unix_ns = kNow - 60 * kSecond - duration_ns,
          .duration_ns = duration_ns,
          .category = "memory",
          .function = "cudaMalloc",
          .pid = 7,
          .process_start_boot_ns = 70,
          .container = "0123456789ab",
          .pod = "train-0",
          .body = "body of " + std::to_string(id)};
}

Ids get_ids(const std::vector<StoredCall>& calls) {
  Ids ids;
  for (const StoredCall& call : calls) ids.push_back(call.id);
  return ids;
}

Ids read_ids(SlowCallDatabase& database) {
  const auto calls = database.query({.limit = UINT32_MAX});
  if (!calls.ok()) throw std::runtime_error(calls.status().ToString());
  Ids ids = get_ids(*calls);
  std::ranges::sort(ids);
  return ids;
}

Ids find_missing(const Ids& ids, const Ids& expected) {
  Ids missing;
  std::ranges::copy_if(expected, std::back_inserter(missing),
                       [&ids](uint64_t id) { return !std::ranges::binary_search(ids, id); });
  return missing;
}

bool write_and_wait(SlowCallStore& store, const StoredCall& call) {
  std::promise<bool> answer;
  const bool posted = store.post_write(
      {}, [&] { return call; }, [&](bool stored) { answer.set_value(stored); });
  return posted && answer.get_future().get();
}

int choose_rounds(int rounds, int long_rounds) {
  return std::getenv("GPUPERF_LONG_TESTS") == nullptr ? rounds : long_rounds;
}

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

}  // namespace gpuperf::testing
