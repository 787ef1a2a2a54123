#include "daemon/store/slow_call_database.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/unit/matchers.h"
#include "tests/unit/store/store_fixture.h"

namespace gpuperf::testing {
namespace {

using SlowCallDatabaseTest = StoreTest;

mode_t get_mode(const std::string& path) {
  struct stat file {};
  return stat(path.c_str(), &file) == 0 ? file.st_mode & 07777 : 0;
}

TEST_F(SlowCallDatabaseTest, FindsWhatWasWrittenAlsoAfterItWasOpenedAgain) {
  StoredCall call = make_call(5);
  call.body = std::string("\0\x01\xff", 3);
  call.function = std::string("f\0g", 3);
  StoredCall empty;
  empty.id = 6;
  const StoredCall largest{.id = INT64_MAX,
                           .start_unix_ns = INT64_MAX,
                           .duration_ns = INT64_MAX,
                           .pid = UINT32_MAX,
                           .process_start_boot_ns = INT64_MAX,
                           .stacks = {{.id = 1}, {.id = INT64_MAX, .body = std::string("\0", 1)}}};
  const StoredCall calls[] = {call, empty, largest};
  auto database = open();

  ASSERT_EQ(database->write(calls), absl::OkStatus());
  for (const StoredCall& written : calls) EXPECT_EQ(*database->find(written.id), written);
  database.reset();
  database = open();

  for (const StoredCall& written : calls) EXPECT_EQ(*database->find(written.id), written);
  EXPECT_EQ(*database->find(7), std::nullopt);
  EXPECT_EQ(*database->find(UINT64_MAX), largest);  // no id is larger than 2^63 - 1
}

TEST_F(SlowCallDatabaseTest, ReplacesACallByOneWithItsId) {
  StoredCall begun = make_call(1, 10 * kSecond);
  begun.in_flight = true;
  begun.pod = "";
  const StoredCall returned = make_call(1, 3 * kHour);
  const auto database = open();
  ASSERT_EQ(database->write({{begun, make_call(2)}}), absl::OkStatus());
  EXPECT_EQ(*database->find(1), begun);

  ASSERT_EQ(database->write({{returned}}), absl::OkStatus());

  EXPECT_EQ(*database->query({}), (std::vector<StoredCall>{returned, make_call(2)}));
}

TEST_F(SlowCallDatabaseTest, WritesAllOrNone) {
  StoredCall bad = make_call(2);
  bad.body = std::string(SlowCallDatabase::kMaxBodyBytes + 1, 'x');
  const auto database = open();

  EXPECT_TRUE(absl::IsInvalidArgument(database->write({{make_call(1), bad}})));

  EXPECT_EQ(read_ids(*database), Ids());
}

TEST_F(SlowCallDatabaseTest, SaysWhatItDoesNotTake) {
  const auto check = [](auto change) {
    StoredCall call = make_call(3);
    change(call);
    return std::string(SlowCallDatabase::check(call).message());
  };

  EXPECT_EQ(check([](StoredCall&) {}), "");
  EXPECT_EQ(check([](StoredCall& call) { call.id = 0; }), "slow call 0: store: it has no id");
  EXPECT_THAT(check([](StoredCall& call) { call.id = uint64_t{1} << 63; }), HasSubstr("2^63"));
  EXPECT_THAT(check([](StoredCall& call) { call.start_unix_ns = UINT64_MAX; }), HasSubstr("2^63"));
  EXPECT_THAT(check([](StoredCall& call) { call.duration_ns = UINT64_MAX; }), HasSubstr("2^63"));
  EXPECT_THAT(check([](StoredCall& call) { call.process_start_boot_ns = UINT64_MAX; }),
              HasSubstr("2^63"));
  EXPECT_THAT(check([](StoredCall& call) { call.function = std::string(70'000, 'x'); }),
              HasSubstr("a name of 70000 bytes is too long"));
  EXPECT_THAT(check([](StoredCall& call) { call.body = std::string(2'000'000, 'x'); }),
              HasSubstr("a body of 2000000 bytes, its stacks included, is too long"));
  EXPECT_THAT(check([](StoredCall& call) {
                call.body = std::string(600'000, 'x');
                call.stacks = {make_stored_stack(1, 500'000)};
              }),
              HasSubstr("a body of 1100000 bytes, its stacks included, is too long"));
  EXPECT_THAT(check([](StoredCall& call) {
                for (uint64_t id = 1; id <= SlowCallDatabase::kMaxStacks + 1; ++id) {
                  call.stacks.push_back(make_stored_stack(id));
                }
              }),
              HasSubstr("17 stacks are too many"));
  for (const auto& [first, second] : {std::pair{0, 1}, {2, 2}, {2, 1}}) {
    EXPECT_THAT(check([first, second](StoredCall& call) {
                  call.stacks = {make_stored_stack(first), make_stored_stack(second)};
                }),
                HasSubstr("its stacks are not in the order of their ids"));
  }
  EXPECT_THAT(check([](StoredCall& call) { call.stacks = {make_stored_stack(uint64_t{1} << 63)}; }),
              HasSubstr("9223372036854775808 is 2^63 or more"));
}

TEST_F(SlowCallDatabaseTest, RemembersTheLastIdWhenItsCallIsGone) {
  auto database = open();
  EXPECT_EQ(*database->read_last_id(), 0u);
  ASSERT_EQ(database->write({{make_call(9), make_call(4)}}), absl::OkStatus());
  ASSERT_EQ(database->write({{make_call(3)}}), absl::OkStatus());
  EXPECT_EQ(*database->read_last_id(), 9u);

  ASSERT_EQ(database->prune(kNow + 1000 * kHour), absl::OkStatus());
  ASSERT_EQ(read_ids(*database), Ids());
  database.reset();

  EXPECT_EQ(*open()->read_last_id(), 9u);
}

TEST_F(SlowCallDatabaseTest, MarksCallsThatWereInFlightWhenItsDaemonDied) {
  StoredCall in_flight = make_call(1);
  in_flight.in_flight = true;
  auto database = open();
  ASSERT_EQ(database->write({{in_flight, make_call(2)}}), absl::OkStatus());

  database.reset();
  database = open();

  StoredCall unfinished = in_flight;
  unfinished.in_flight = false;
  unfinished.unfinished = true;
  EXPECT_EQ(*database->find(1), unfinished);
  EXPECT_EQ(*database->find(2), make_call(2));
}

TEST_F(SlowCallDatabaseTest, MakesItsFoldersAndFileForItselfAndItsGroup) {
  options_.path = folder_ + "/a/b/slow_calls.db";
  const mode_t before = umask(077);

  const auto database = open();
  ASSERT_EQ(database->write({{make_call(1)}}), absl::OkStatus());

  umask(before);
  EXPECT_EQ(get_mode(options_.path), 0640u);
  EXPECT_EQ(get_mode(options_.path + "-wal"), 0640u);
  umask(0);
  options_.path = folder_ + "/c/d/slow_calls.db";
  (void)open();
  umask(before);
  EXPECT_EQ(get_mode(folder_ + "/c"), 0750u);
  EXPECT_EQ(get_mode(folder_ + "/c/d"), 0750u);
  EXPECT_EQ(get_mode(options_.path), 0640u);
}

TEST_F(SlowCallDatabaseTest, FollowsNoLinkAndTakesRegularFilesOnly) {
  const std::string victim = folder_ + "/victim";
  write_file(victim, "precious");
  std::filesystem::create_symlink(victim, path_);
  EXPECT_THAT(std::string(SlowCallDatabase::open(options_).status().message()),
              HasSubstr(path_ + ": open: Too many levels of symbolic links; "));
  EXPECT_EQ(read_file(victim), "precious");

  std::filesystem::remove(path_);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(std::string(SlowCallDatabase::open(options_).status().message()),
              HasSubstr(path_ + ": open: not a regular file; "));
}

TEST_F(SlowCallDatabaseTest, RefusesABoundBelowWhatItNeedsItself) {
  options_.max_bytes = 1000;

  EXPECT_TRUE(absl::IsInvalidArgument(SlowCallDatabase::open(options_).status()));
}

TEST_F(SlowCallDatabaseTest, KeepsItsLogBounded) {
  const auto database = open();
  StoredCall call = make_call(1);
  call.body = std::string(100'000, 'x');

  for (uint64_t i = 0; i < 400; ++i) {  // 40 MB
    call.id = i + 1;
    ASSERT_EQ(database->write({{call}}), absl::OkStatus());
    ASSERT_LT(std::filesystem::file_size(path_ + "-wal"), 6u << 20);
  }

  ASSERT_EQ(database->checkpoint(), absl::OkStatus());
  EXPECT_EQ(std::filesystem::file_size(path_ + "-wal"), 0u);
}

TEST_F(SlowCallDatabaseTest, CutsItsLogBackAfterALargeWrite) {
  const auto database = open();
  std::vector<StoredCall> calls;
  for (uint64_t id = 1; id <= 20; ++id) {
    calls.push_back(make_call(id));
    calls.back().body = std::string(1'000'000, 'x');
  }
  ASSERT_EQ(database->write(calls), absl::OkStatus());
  ASSERT_GT(std::filesystem::file_size(path_ + "-wal"), 16u << 20);

  ASSERT_EQ(database->write({{make_call(21)}}), absl::OkStatus());

  EXPECT_LE(std::filesystem::file_size(path_ + "-wal"), 4u << 20);
}

}  // namespace
}  // namespace gpuperf::testing
