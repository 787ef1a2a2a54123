#include "daemon/base/lock_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "tests/unit/files.h"

namespace gpuperf {
namespace {

class LockFileTest : public testing::Test {
 protected:
  const TempFolder folder_;
  const std::string path_ = folder_ / "lock";
};

TEST_F(LockFileTest, KeepsASecondOwnerOutAndNamesTheFirst) {
  const auto first = LockFile::acquire(path_, "--runtime-dir");
  ASSERT_TRUE(first.ok()) << first.status();

  const auto second = LockFile::acquire(path_, "--runtime-dir");

  EXPECT_TRUE(absl::IsAlreadyExists(second.status()));
  EXPECT_THAT(std::string(second.status().message()),
              testing::HasSubstr("pid " + std::to_string(getpid()) + " holds " + path_));
  EXPECT_THAT(std::string(LockFile::acquire(path_, "storage.path").status().message()),
              testing::EndsWith("; stop it, or give this one its own storage.path"));
}

TEST_F(LockFileTest, RemovesTheFileAndFreesTheLock) {
  { ASSERT_TRUE(LockFile::acquire(path_, "--runtime-dir").ok()); }

  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_TRUE(LockFile::acquire(path_, "--runtime-dir").ok());
}

TEST_F(LockFileTest, TakesOverFromAProcessThatWasKilled) {
  const pid_t child = fork();
  if (child == 0) {
    const auto held = LockFile::acquire(path_, "--runtime-dir");
    (void)raise(SIGKILL);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  ASSERT_TRUE(std::filesystem::exists(path_));

  const auto lock = LockFile::acquire(path_, "--runtime-dir");

  ASSERT_TRUE(lock.ok()) << lock.status();
  std::string pid;
  std::ifstream(path_) >> pid;
  EXPECT_EQ(pid, std::to_string(getpid()));
}

// As one that was killed and that the kernel does not let end is, or whoever locks what he may
// open.
TEST_F(LockFileTest, ReplacesTheFileOfAnOwnerThatIsGone) {
  const Fd held(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  ASSERT_EQ(flock(held.get(), LOCK_EX), 0);
  const pid_t child = fork();
  if (child == 0) _exit(0);  // a zombie from now on
  struct stat own {};
  ASSERT_EQ(stat("/proc/self/ns/pid", &own), 0);
  std::ofstream(path_) << child << " 0 " << own.st_ino << "\n";
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);

  const auto lock = LockFile::acquire(path_, "--runtime-dir");

  ASSERT_TRUE(lock.ok()) << lock.status();
  EXPECT_TRUE(absl::IsAlreadyExists(LockFile::acquire(path_, "--runtime-dir").status()));
  EXPECT_FALSE(std::filesystem::exists(path_ + ".new"));
  EXPECT_EQ(std::filesystem::status(path_).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
}

TEST_F(LockFileTest, FollowsNoLink) {
  std::ofstream(folder_ / "victim") << "precious";
  std::filesystem::create_symlink(folder_ / "victim", path_);

  EXPECT_FALSE(LockFile::acquire(path_, "--runtime-dir").ok());

  std::string text;
  std::ifstream(folder_ / "victim") >> text;
  EXPECT_EQ(text, "precious");
}

TEST_F(LockFileTest, SaysWhereItCannotWrite) {
  const auto lock = LockFile::acquire(folder_ / "missing/lock", "--runtime-dir");

  EXPECT_THAT(std::string(lock.status().message()),
              testing::HasSubstr(folder_ / "missing/lock: open: No such file or directory"));
}

// Another pid namespace, whose pid 1 is somebody else here and whose others are nobody.
TEST_F(LockFileTest, JudgesNoOwnerOfAnotherPidNamespace) {
  const Fd held(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  ASSERT_EQ(flock(held.get(), LOCK_EX), 0);
  std::ofstream(path_) << "4194304 5 1\n";

  EXPECT_TRUE(absl::IsAlreadyExists(LockFile::acquire(path_, "--runtime-dir").status()));
}

}  // namespace
}  // namespace gpuperf
