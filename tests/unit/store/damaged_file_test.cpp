
#include <filesystem>
#include <random>

#include "daemon/store/store_file.h"
#include "tests/unit/matchers.h"
#include "tests/unit/store/store_fixture.h"

namespace gpuperf::testing {
namespace {

namespace fs = std::filesystem;

class DamagedFileTest : public StoreTest {
 protected:
  // A store of 200 calls as it is on disk: with what is still in its log, or without a log.
  void make_store() {
    auto database = open();
    for (uint64_t id = 1; id <= 200; ++id) {
      StoredCall call = make_call(id, id);
      call.start_unix_ns -= (id % 5) * kHour;
      call.function = "f" + std::to_string(id % 7);
      call.body = std::string(400, 'x');
      call.stacks = {make_stored_stack(1 + id % 9, 300), make_stored_stack(1'000 + id)};
      ASSERT_EQ(database->write({{call}}), absl::OkStatus());
      if (id == 150) {
        ASSERT_EQ(database->checkpoint(), absl::OkStatus());
      }
    }
    file_with_log_ = read_file(path_);
    log_ = read_file(path_ + "-wal");
    database.reset();
    file_ = read_file(path_);
    ASSERT_FALSE(fs::exists(path_ + "-wal"));
    ASSERT_FALSE(log_.empty());
  }
  void place(const std::string& file, const std::string& log) {
    for (const auto& entry : fs::directory_iterator(folder_)) fs::remove(entry.path());
    write_file(path_, file);
    if (!log.empty()) write_file(path_ + "-wal", log);
  }
  size_t read_root_page(const std::string& index) {
    return static_cast<size_t>(
        read_number("SELECT rootpage FROM sqlite_schema WHERE name = '" + index + "'"));
  }
  // The promise: it opens, answers and writes; and where it was checked, what it writes is there.
  void expect_works() {
    options_.history = std::chrono::hours(1);  // so that there is something to remove
    const auto store = start();
    EXPECT_EQ(store->problem(), "");
    StoredCall call = make_call(1'000'000);
    call.stacks = {make_stored_stack(2'000'000)};
    EXPECT_TRUE(write_and_wait(*store, call));
    const auto found = store->find(call.id);
    if (options_.check_max_bytes > 0) {
      EXPECT_TRUE(found.ok() && *found == call) << found.status();
    }
    for (const auto order : {StoreQuery::Order::kDuration, StoreQuery::Order::kStart}) {
      const auto calls = store->query({.function = "f*", .order = order});
      EXPECT_TRUE(calls.ok() || absl::IsDataLoss(calls.status())) << calls.status();
    }
    EXPECT_EQ(store->problem(), "");
  }

  std::string file_;
  std::string file_with_log_;
  std::string log_;
};

TEST_F(DamagedFileTest, IsMovedAsideWithItsLogAndANewOneBegun) {
  write_file(path_, std::string(10'000, 'x'));
  write_file(path_ + "-wal", "log");

  const auto database = open();

  EXPECT_EQ(database->write({{make_call(1)}}), absl::OkStatus());
  const std::vector<std::string> aside = find_set_aside();
  ASSERT_EQ(aside.size(), 1u);
  EXPECT_THAT(aside[0], StartsWith("slow_calls.db.corrupt-1"));
  EXPECT_EQ(read_file(folder_ + "/" + aside[0]), std::string(10'000, 'x'));
  EXPECT_EQ(read_file(folder_ + "/" + aside[0] + "-wal"), "log");
}

TEST_F(DamagedFileTest, IsKeptTwiceAtMost) {
  for (const char* text : {"first", "second", "third", "fourth"}) {
    write_file(path_, text);
    write_file(path_ + "-wal", text);
    (void)open();
  }

  std::vector<std::string> kept;
  for (const std::string& name : find_set_aside()) {
    kept.push_back(read_file(folder_ + "/" + name));
    kept.push_back(read_file(folder_ + "/" + name + "-wal"));
  }
  EXPECT_THAT(kept, ElementsAre("third", "third", "fourth", "fourth"));
}

TEST_F(DamagedFileTest, LeavesOtherFilesBesideItAlone) {
  for (const char* name : {"/slow_calls.db.corrupt-", "/slow_calls.db.corrupt-1.gz", "/other.db",
                           "/other.db.corrupt-1"}) {
    write_file(folder_ + name, "keep");
  }
  for (int i = 0; i < 4; ++i) {
    write_file(path_, "damaged");
    (void)open();
  }

  for (const char* name : {"/slow_calls.db.corrupt-", "/slow_calls.db.corrupt-1.gz", "/other.db",
                           "/other.db.corrupt-1"}) {
    EXPECT_EQ(read_file(folder_ + name), "keep");
  }
}

TEST_F(DamagedFileTest, OpensAtEveryLength) {
  make_store();
  const auto step = static_cast<size_t>(choose_rounds(1999, 97));

  for (size_t length = 0; length < file_.size(); length += step) {
    SCOPED_TRACE("file of " + std::to_string(length) + " bytes");
    place(file_.substr(0, length), "");
    ASSERT_NO_FATAL_FAILURE(expect_works());
  }
  for (const size_t border : {512, 4096, 8192, 2 * 8192}) {
    for (const size_t length : {border - 1, border, border + 1}) {
      SCOPED_TRACE("file of " + std::to_string(length) + " bytes, and a log");
      place(file_with_log_.substr(0, length), log_);
      ASSERT_NO_FATAL_FAILURE(expect_works());
    }
  }
}

TEST_F(DamagedFileTest, KeepsWhatIsWholeInATruncatedLog) {
  make_store();
  const auto step = static_cast<size_t>(choose_rounds(20'011, 1'009));

  size_t calls_before = 150;
  for (size_t length = 0; length < log_.size(); length += step) {
    SCOPED_TRACE("log of " + std::to_string(length) + " bytes");
    place(file_with_log_, log_.substr(0, length));
    const Ids ids = read_ids(*open());
    EXPECT_GE(ids.size(), calls_before);
    EXPECT_EQ(ids.back(), ids.size());
    EXPECT_TRUE(find_set_aside().empty());
    calls_before = ids.size();
    ASSERT_NO_FATAL_FAILURE(expect_works());
  }
  EXPECT_GT(calls_before, 150u);
}

TEST_F(DamagedFileTest, OpensWhateverByteIsFlipped) {
  make_store();
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);

  for (int round = 0; round < choose_rounds(300, 20'000); ++round) {
    // Half of them as if the file were too large to be checked as a whole.
    std::string damaged = round % 2 == 0 ? file_ : file_with_log_;
    const size_t at = random() % damaged.size();
    const auto flip = static_cast<char>(1 + random() % 255);
    damaged[at] = static_cast<char>(damaged[at] ^ flip);
    options_.check_max_bytes = round % 4 < 2 ? 0 : 16 << 20;
    SCOPED_TRACE("byte " + std::to_string(at) + " xor " + std::to_string(flip) + " round " +
                 std::to_string(round));
    place(damaged, round % 2 == 0 ? "" : log_);
    ASSERT_NO_FATAL_FAILURE(expect_works());
    if (HasFailure()) return;
  }
}

// All of the file depends on it.
TEST_F(DamagedFileTest, OpensWhateverByteOfTheHeaderIsFlipped) {
  make_store();

  for (size_t at = 0; at < 100; ++at) {
    for (const int flip : {1, 0x80, 0xff}) {
      SCOPED_TRACE("byte " + std::to_string(at) + " xor " + std::to_string(flip));
      std::string damaged = file_;
      damaged[at] = static_cast<char>(damaged[at] ^ flip);
      place(damaged, "");
      ASSERT_NO_FATAL_FAILURE(expect_works());
    }
  }
}

TEST_F(DamagedFileTest, OpensWhateverByteOfTheLogIsFlipped) {
  make_store();
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);

  for (int round = 0; round < choose_rounds(50, 5'000); ++round) {
    std::string damaged = log_;
    const size_t at = random() % (round % 2 == 0 ? 56 : damaged.size());
    damaged[at] = static_cast<char>(damaged[at] ^ (1 + random() % 255));
    SCOPED_TRACE("byte " + std::to_string(at));
    place(file_with_log_, damaged);
    ASSERT_NO_FATAL_FAILURE(expect_works());
    EXPECT_TRUE(find_set_aside().empty());
  }
}

// As if the file were too large to be checked when it is opened.
TEST_F(DamagedFileTest, IsReplacedWhenAWriteMeetsTheDamage) {
  make_store();
  for (const char* name : {"series_by_key", "stacks", "call_stacks", "call_stacks_by_stack"}) {
    SCOPED_TRACE(name);
    place(file_, "");
    std::string damaged = file_;
    damaged.replace((read_root_page(name) - 1) * 8192, 64, std::string(64, '\xff'));
    place(damaged, "");
    options_.check_max_bytes = 0;
    const auto store = start();
    EXPECT_EQ(store->last_id(), 200u);
    StoredCall call = make_call(1'000);
    call.stacks = {make_stored_stack(2'000)};

    EXPECT_TRUE(write_and_wait(*store, call));

    EXPECT_EQ(find_set_aside().size(), 1u);
    EXPECT_EQ(*store->find(200), std::nullopt);
    EXPECT_EQ(*store->find(1'000), call);
    EXPECT_EQ(store->problem(), "");
  }
}

}  // namespace
}  // namespace gpuperf::testing
