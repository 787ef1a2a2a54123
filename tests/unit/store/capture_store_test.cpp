#include "daemon/store/capture_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/unit/matchers.h"
#include "tests/unit/store/capture_folder.h"

namespace gpuperf {
namespace {

class CaptureStoreTest : public testing::CaptureFolderTest {
 protected:
  std::string path(const std::string& name) const { return options_.folder + "/" + name; }
  std::vector<uint64_t> list_ids(const CaptureStore& store) {
    std::vector<uint64_t> ids;
    for (const CaptureRow& row : store.list()) ids.push_back(row.id);
    return ids;
  }
  std::vector<std::string> list_files() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(options_.folder)) {
      names.push_back(entry.path().filename().string());
    }
    std::ranges::sort(names);
    return names;
  }
};

TEST_F(CaptureStoreTest, GivesBackWhatWasWrittenAlsoAfterARestart) {
  const Capture capture = make(17);
  CaptureRow known;
  known.target = {.pid = 4242, .with_children = true};
  known.requester_uid = 1000;
  known.events = 21;
  known.lost_events = 2;
  auto store = open();

  const auto row = store->write(capture, known);

  ASSERT_TRUE(row.ok()) << row.status();
  CaptureRow expected = known;
  expected.id = 17;
  expected.name = capture.name;
  expected.trigger = capture.trigger;
  expected.state = CaptureState::kStored;
  expected.start_unix_ns = capture.start_unix_ns;
  expected.duration_ns = capture.duration_ns;
  expected.events =
      capture.calls.size() + capture.launches.size() + capture.work.size() + capture.waits.size();
  expected.launches = 9;
  expected.work = 9;
  expected.work_matched = 4;
  expected.ambiguous = 1;
  expected.stored_bytes = std::filesystem::file_size(path("17.capture"));
  EXPECT_TRUE(*row == expected);
  store.reset();
  store = open();
  EXPECT_TRUE(store->list() == std::vector<CaptureRow>{expected});
  const auto read = store->read(17);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(**read == capture);
  const auto head = store->read_head(17);
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_TRUE(head->row == expected);
  EXPECT_TRUE(head->matches == capture.matches);
}

TEST_F(CaptureStoreTest, KeepsFilesFromOthersEyes) {
  auto store = open();
  ASSERT_TRUE(store->write(make(1), CaptureTarget{}).ok());

  struct stat status {};
  ASSERT_EQ(stat(path("1.capture").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07, 0u);
  ASSERT_EQ(stat(options_.folder.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07, 0u);
}

TEST_F(CaptureStoreTest, NeverGivesAnIdTwice) {
  auto store = open();
  EXPECT_EQ(store->last_id(), 0u);
  ASSERT_TRUE(store->write(make(3), CaptureTarget{}).ok());
  ASSERT_TRUE(store->write(make(9), CaptureTarget{}).ok());
  ASSERT_TRUE(store->remove(9).ok());

  store = open();

  EXPECT_EQ(store->last_id(), 9u);
  EXPECT_THAT(list_ids(*store), ElementsAre(3u));
  EXPECT_EQ(store->write(make(3), CaptureTarget{}).status().code(),
            absl::StatusCode::kAlreadyExists);
}

TEST_F(CaptureStoreTest, RemovesWhatAnInterruptedWriteLeft) {
  open();
  std::ofstream(path("4.capture.unfinished")) << "half";
  std::ofstream(path("notes.txt")) << "somebody's";

  const auto store = open();

  EXPECT_THAT(list_files(), ElementsAre("notes.txt"));
  EXPECT_THAT(store->list(), IsEmpty());
}

TEST_F(CaptureStoreTest, LetsTheOldestGoWhereRoomIsMissing) {
  auto store = open();
  const uint64_t bytes = store->write(make(1), CaptureTarget{})->stored_bytes;
  options_.max_bytes = 3 * bytes + bytes / 2;
  store = open();
  for (uint64_t id = 2; id <= 4; ++id) ASSERT_TRUE(store->write(make(id), CaptureTarget{}).ok());

  EXPECT_THAT(list_ids(*store), ElementsAre(2u, 3u, 4u));
  EXPECT_LE(store->used_bytes(), options_.max_bytes);
  EXPECT_EQ(store->read(1).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(CaptureStoreTest, RefusesACaptureLargerThanTheStore) {
  auto store = open();
  ASSERT_TRUE(store->write(make(1), CaptureTarget{}).ok());
  options_.max_bytes = 100;
  store = open();

  const auto row = store->write(make(2), CaptureTarget{});

  EXPECT_EQ(row.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(row.status().message()), HasSubstr("capture for a shorter time"));
  EXPECT_THAT(list_ids(*store), ElementsAre(1u)) << "nothing may go for what cannot be kept";
}

TEST_F(CaptureStoreTest, LetsGoWhatIsTooOld) {
  options_.retention = std::chrono::hours(2);
  auto store = open();
  ASSERT_TRUE(store->write(make(1), CaptureTarget{}).ok());
  clock_.advance(std::chrono::hours(1));
  store->expire();
  EXPECT_THAT(list_ids(*store), ElementsAre(1u));

  clock_.advance(std::chrono::hours(2));
  store->expire();

  EXPECT_THAT(store->list(), IsEmpty());
  EXPECT_THAT(list_files(), ElementsAre("last_id"));
  EXPECT_EQ(store->used_bytes(), 0u);
}

TEST_F(CaptureStoreTest, LeavesAloneAndTellsWhatItCannotRead) {
  auto store = open();
  ASSERT_TRUE(store->write(make(1), CaptureTarget{}).ok());
  std::ofstream(path("8.capture")) << "no capture";
  std::filesystem::copy_file(path("1.capture"), path("5.capture"));  // says that it is 1

  store = open();

  const std::vector<CaptureRow> rows = store->list();
  ASSERT_THAT(list_ids(*store), ElementsAre(1u, 5u, 8u));
  EXPECT_EQ(rows[1].state, CaptureState::kFailed);
  EXPECT_THAT(rows[1].problem, HasSubstr("it is capture 1 by its content"));
  EXPECT_EQ(rows[2].state, CaptureState::kFailed);
  EXPECT_THAT(rows[2].problem, HasSubstr("8.capture: no capture, or a damaged one"));
  EXPECT_THAT(rows[2].problem, HasSubstr("gpuperfctl trace delete 8"));
  EXPECT_EQ(store->read(8).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(store->read_head(8).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(store->last_id(), 8u);
  EXPECT_TRUE(store->remove(8).ok());
  EXPECT_THAT(list_ids(*store), ElementsAre(1u, 5u));
}

TEST_F(CaptureStoreTest, SaysWhichFileWasDamagedBehindItsHead) {
  auto store = open();
  ASSERT_TRUE(store->write(make(1), CaptureTarget{}).ok());
  std::filesystem::resize_file(path("1.capture"),
                               std::filesystem::file_size(path("1.capture")) - 1);

  const auto read = store->read(1);

  EXPECT_EQ(read.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(read.status().message()), HasSubstr("1.capture: no capture, or a"));
}

TEST_F(CaptureStoreTest, SurvivesAFileThatLeftMeanwhile) {
  auto store = open();
  ASSERT_TRUE(store->write(make(1), CaptureTarget{}).ok());
  ASSERT_EQ(unlink(path("1.capture").c_str()), 0);

  EXPECT_EQ(store->read(1).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(store->remove(1).ok());
  EXPECT_EQ(store->remove(1).code(), absl::StatusCode::kNotFound);
}

TEST_F(CaptureStoreTest, LeavesNothingWhereItCannotWrite) {
  auto store = open();
  // A folder stands where the file is to be.
  ASSERT_TRUE(std::filesystem::create_directory(path("2.capture")));

  const auto row = store->write(make(2), CaptureTarget{});

  EXPECT_FALSE(row.ok());
  EXPECT_THAT(std::string(row.status().message()), HasSubstr("2.capture: rename"));
  EXPECT_THAT(list_files(), ElementsAre("2.capture"));
  EXPECT_THAT(store->list(), IsEmpty());
}

TEST_F(CaptureStoreTest, GivesTheFileAsItIs) {
  auto store = open();
  const Capture capture = make(1);
  ASSERT_TRUE(store->write(capture, CaptureTarget{}).ok());

  const auto bytes = store->read_bytes(1);

  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const auto read = decode_capture(*bytes);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(*read == capture);
  EXPECT_EQ(store->read_bytes(2).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(CaptureStoreTest, IsWrittenAndReadByManyThreads) {
  auto store = open();
  std::vector<std::jthread> threads;
  for (uint64_t id = 1; id <= 8; ++id) {
    threads.emplace_back([&, id] {
      EXPECT_TRUE(store->write(make(id), CaptureTarget{}).ok());
      EXPECT_TRUE(store->read(id).ok());
      if (id % 2 == 0) {
        EXPECT_TRUE(store->remove(id).ok());
      }
    });
  }
  threads.clear();

  EXPECT_THAT(list_ids(*store), ElementsAre(1u, 3u, 5u, 7u));
  EXPECT_EQ(store->last_id(), 8u);
}

}  // namespace
}  // namespace gpuperf
