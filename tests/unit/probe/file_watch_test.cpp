#include "daemon/probe/discovery/file_watch.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string>

#include "tests/unit/files.h"
#include "tests/unit/matchers.h"

namespace gpuperf {
namespace {

class FileWatchTest : public testing::Test {
 protected:
  FileWatchTest() {
    std::ofstream(path_) << "old content";
    auto watch = FileWatch::open();
    EXPECT_TRUE(watch.ok()) << watch.status();
    watch_.emplace(std::move(*watch));
  }

  int add(const std::string& path) {
    const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    const auto id = watch_->add(file.get());
    EXPECT_TRUE(id.ok()) << id.status();
    return id.value_or(-1);
  }
  std::set<int> drain() {
    std::set<int> written;
    EXPECT_TRUE(watch_->drain([&](int id) { written.insert(id); }));
    return written;
  }

  const TempFolder folder_;
  const std::string path_ = folder_ / "library.so";
  std::optional<FileWatch> watch_;
};

TEST_F(FileWatchTest, HearsOfAWrite) {
  const int id = add(path_);

  std::ofstream(path_, std::ios::in | std::ios::out) << "new";

  EXPECT_THAT(drain(), ElementsAre(id));
  EXPECT_THAT(drain(), IsEmpty());
}

TEST_F(FileWatchTest, HearsOfATruncation) {
  const int id = add(path_);

  ASSERT_EQ(truncate(path_.c_str(), 0), 0);

  EXPECT_THAT(drain(), ElementsAre(id));
}

TEST_F(FileWatchTest, SaysNothingOfReadsNamesAndModes) {
  (void)add(path_);

  std::string text;
  std::getline(std::ifstream(path_), text);
  ASSERT_EQ(chmod(path_.c_str(), 0600), 0);
  std::ofstream(folder_ / "next") << "replacement";
  std::filesystem::rename(folder_ / "next", path_);

  EXPECT_THAT(drain(), IsEmpty());
}

TEST_F(FileWatchTest, GivesOneFileOneIdUnderEveryName) {
  const int id = add(path_);
  std::filesystem::create_hard_link(path_, folder_ / "other.so");
  std::ofstream(folder_ / "different.so") << "x";

  EXPECT_EQ(add(folder_ / "other.so"), id);
  EXPECT_NE(add(folder_ / "different.so"), id);
}

TEST_F(FileWatchTest, RefusesADescriptorThatIsNone) { EXPECT_FALSE(watch_->add(-1).ok()); }

}  // namespace
}  // namespace gpuperf
