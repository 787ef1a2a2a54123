#include "daemon/probe/discovery/file_search.h"

#include <poll.h>

#include <future>

#include "tests/unit/matchers.h"
#include "tests/unit/probe/fake_proc.h"

namespace gpuperf {
namespace {

constexpr uint32_t kRootPid = 7;
constexpr uint32_t kLatePid = 8;

class FileSearchTest : public testing::Test {
 protected:
  FileSearchTest() {
    add_process(kRootPid, "/lib/libcudart.so.root", 0);
    add_process(kLatePid, "/lib/libcudart.so.late", 1'000);
  }

  void TearDown() override { let_go(); }

  void add_process(uint32_t pid, const std::string& library, uint32_t uid) {
    fake_.add_process(pid, "/bin/a");
    fake_.write_status(pid, uid);
    fake_.map(pid, fake_.add_file(pid, library, library), library);
  }

  static FileSearch::Query make_query(const std::string& library) {
    return {.config = {.probes = {{.category = "cuda", .function = "f", .symbol = "f"}},
                       .libraries = {{"cuda", {library}}}}};
  }

  // Reading the maps of kLatePid waits until let_go().
  ProcFiles make_proc() {
    const ProcFiles direct(fake_.proc());
    return {fake_.proc(),
            {.read_maps =
                 [this, direct](uint32_t pid, size_t max_bytes) {
                   if (pid == kLatePid) free_.wait_for(std::chrono::seconds(20));
                   return direct.read_maps(pid, max_bytes);
                 },
             .read_environment =
                 [direct](uint32_t pid, size_t max_bytes) {
                   return direct.read_environment(pid, max_bytes);
                 },
             .take_mapped =
                 [direct](uint32_t pid, const std::string& range) {
                   return direct.take_mapped(pid, range);
                 }}};
  }

  void let_go() {
    if (!std::exchange(is_free_, true)) let_go_.set_value();
  }

  FileSearch::News wait_for_news(FileSearch& search) {
    while (true) {
      if (auto news = search.take()) return *std::move(news);
      pollfd waited{.fd = search.descriptor(), .events = POLLIN};
      if (poll(&waited, 1, 10'000) != 1) throw std::runtime_error("no news within 10 s");
    }
  }

  std::string take_path(FileSearch& search) {
    return std::get<FileSearch::FileOpened>(wait_for_news(search)).found.path;
  }

  template <typename T>
  bool is_next(FileSearch& search) {
    return std::holds_alternative<T>(wait_for_news(search));
  }

  FakeProc fake_;
  DropCounters drops_;
  bool is_free_ = false;
  std::promise<void> let_go_;
  std::shared_future<void> free_{let_go_.get_future()};
};

const FileSearch::Listeners kListeners{.on_watched = [](uint32_t) {},
                                       .on_mapping = [](uint32_t, const std::string&) {}};

TEST_F(FileSearchTest, HandsOnWhatRootsProcessesMapWhileAnotherIsWaitedFor) {
  FileSearch search(make_proc(), make_query("libcudart.so*"), drops_, kListeners);
  ASSERT_TRUE(search.start().ok());

  EXPECT_TRUE(is_next<FileSearch::ScanBegan>(search));
  EXPECT_EQ(take_path(search), "/lib/libcudart.so.root");
  EXPECT_TRUE(is_next<FileSearch::RootHanded>(search));
  EXPECT_FALSE(search.take().has_value());

  let_go();
  EXPECT_EQ(take_path(search), "/lib/libcudart.so.late");
  const auto end = std::get<FileSearch::AllHanded>(wait_for_news(search));
  ASSERT_TRUE(end.scan.has_value());
  EXPECT_EQ(end.scan->processes, 2u);
  EXPECT_TRUE(end.is_all_read);
}

TEST_F(FileSearchTest, TellsNothingMoreOfWhatIsNoLongerLookedFor) {
  FileSearch search(make_proc(), make_query("libcudart.so*"), drops_, kListeners);
  ASSERT_TRUE(search.start().ok());
  EXPECT_TRUE(is_next<FileSearch::ScanBegan>(search));
  EXPECT_EQ(take_path(search), "/lib/libcudart.so.root");
  EXPECT_TRUE(is_next<FileSearch::RootHanded>(search));

  search.post_query(make_query("libcudart.so.late"));
  let_go();

  EXPECT_TRUE(is_next<FileSearch::ScanBegan>(search));
  EXPECT_TRUE(is_next<FileSearch::RootHanded>(search));
  EXPECT_EQ(take_path(search), "/lib/libcudart.so.late");
  EXPECT_TRUE(is_next<FileSearch::AllHanded>(search));
}

TEST_F(FileSearchTest, ScansAgainWhereItIsAsked) {
  let_go();
  FileSearch search(make_proc(), make_query("libnone.so"), drops_, kListeners);
  ASSERT_TRUE(search.start().ok());
  EXPECT_TRUE(is_next<FileSearch::ScanBegan>(search));
  EXPECT_TRUE(is_next<FileSearch::RootHanded>(search));
  EXPECT_TRUE(is_next<FileSearch::AllHanded>(search));

  search.post_scan(false);

  EXPECT_TRUE(is_next<FileSearch::ScanBegan>(search));
}

TEST_F(FileSearchTest, StopsWhileNobodyTakesItsNews) {
  let_go();
  FileSearch search(make_proc(), make_query("libcudart.so*"), drops_, kListeners);
  ASSERT_TRUE(search.start().ok());
  pollfd waited{.fd = search.descriptor(), .events = POLLIN};
  ASSERT_EQ(poll(&waited, 1, 10'000), 1);

  search.stop();
}

}  // namespace
}  // namespace gpuperf
