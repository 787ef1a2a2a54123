#include "daemon/probe/discovery/process_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/probe/fake_proc.h"

namespace gpuperf {
namespace {

namespace fs = std::filesystem;
using absl::StatusCode;

constexpr uint32_t kUser = 12'345;
constexpr uint32_t kGroup = 23'456;

std::string read_text(const Fd& fd) {
  char bytes[64];
  const ssize_t count = ::pread(fd.get(), bytes, sizeof bytes, 0);
  return std::string(bytes, static_cast<size_t>(std::max<ssize_t>(count, 0)));
}

TEST(ProcessStatusTest, TakesTheRealIdsAndAllGroups) {
  const auto status = parse_process_status(
      "Name:\ta\\nUid:\\t7\nUid:\t71\t0\t0\t0\nGid:\t72\t0\t0\t0\nFDSize:\t64\n"
      "Groups:\t4 27 \nNStgid:\t9\t8\nNSpid:\t9\t1\n");

  EXPECT_EQ(status.value(), (ProcessStatus{.uid = 71, .groups = {72, 4, 27}, .pids = {9, 1}}));
  EXPECT_EQ(parse_process_status("Name:\ta\n").status().code(), StatusCode::kDataLoss);
}

// Process 7 is of kUser, who is in kGroup. Files are made as root: only root can give them away.
class ProcessFilesTest : public testing::Test {
 protected:
  ProcessFilesTest() {
    fake_.add_process(7, "/app");
    fake_.write(7, "status", "Name:\ta\nUid:\t12345\t0\t0\t0\nGid:\t1\t1\t1\t1\nGroups:\t23456 \n");
    fs::permissions(fake_.root(7), fs::perms(0755));
  }
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "gives files to other users: needs root";
  }

  fs::path add(const std::string& path, mode_t mode, uint32_t uid = 0, uint32_t gid = 0) {
    const fs::path real = fake_.add_file(7, path, "content of " + path);
    give(real, mode, uid, gid);
    return real;
  }
  void give(const fs::path& real, mode_t mode, uint32_t uid = 0, uint32_t gid = 0) {
    EXPECT_EQ(::chmod(real.c_str(), mode), 0);
    EXPECT_EQ(::chown(real.c_str(), uid, gid), 0);
  }
  void link(const std::string& target, const std::string& path, uint32_t uid) {
    const fs::path real = fake_.root(7) / path.substr(1);
    fs::create_symlink(target, real);
    EXPECT_EQ(::lchown(real.c_str(), uid, uid), 0);
  }
  // What is read, or why nothing is.
  std::string open(const std::string& path) {
    const Result<OpenedFile> opened = ProcessFiles::open(fake_.proc(), 7).value().open_file(path);
    return opened.ok() ? read_text(opened->fd) : absl::StatusCodeToString(opened.status().code());
  }

  FakeProc fake_;
};

TEST_F(ProcessFilesTest, OpensWhatTheProcessesUserMayRead) {
  add("/public", 0444);
  add("/own", 0400, kUser);
  add("/of_group", 0040, 0, kGroup);
  add("/roots", 0440);
  add("/closed_to_owner", 0077, kUser);
  add("/closed_to_group", 0404, 0, kGroup);

  EXPECT_EQ(open("/public"), "content of /public");
  EXPECT_EQ(open("/own"), "content of /own");
  EXPECT_EQ(open("/of_group"), "content of /of_group");
  EXPECT_EQ(open("/roots"), "PERMISSION_DENIED");
  EXPECT_EQ(open("/closed_to_owner"), "PERMISSION_DENIED");
  EXPECT_EQ(open("/closed_to_group"), "PERMISSION_DENIED");
  EXPECT_EQ(open("/missing"), "NOT_FOUND");
}

TEST_F(ProcessFilesTest, PassesNoFolderThatIsClosedToTheUser) {
  const fs::path folder = add("/closed/public", 0444).parent_path();
  give(folder, 0700);

  EXPECT_EQ(open("/closed/public"), "PERMISSION_DENIED");
  EXPECT_EQ(open("/closed/../closed/missing"), "PERMISSION_DENIED");

  give(folder, 0711);
  EXPECT_EQ(open("/closed/public"), "content of /closed/public");
}

TEST_F(ProcessFilesTest, FollowsLinksOfRootAndOfTheUserWithTheUsersRights) {
  add("/lib/public", 0444);
  add("/lib/roots", 0400);
  link("lib/public", "/by_user", kUser);
  link("/lib", "/by_root", 0);
  link("/lib/public", "/by_other", kUser + 1);
  link("/lib/roots", "/to_roots", kUser);
  link("/loop", "/loop", kUser);

  EXPECT_EQ(open("/by_user"), "content of /lib/public");
  EXPECT_EQ(open("/by_root/../by_root/public"), "content of /lib/public");
  EXPECT_EQ(open("/by_other"), "PERMISSION_DENIED");
  EXPECT_EQ(open("/to_roots"), "PERMISSION_DENIED");
  EXPECT_EQ(open("/by_root/roots"), "PERMISSION_DENIED");
  EXPECT_EQ(open("/loop"), "FAILED_PRECONDITION");
}

TEST_F(ProcessFilesTest, StaysBelowTheProcessesRoot) {
  const fs::path outside = fake_.root(8);
  fs::create_directories(outside);
  fake_.add_file(8, "/file", "outside");
  fs::permissions(outside, fs::perms(0755));
  link(outside / "file", "/absolute", kUser);
  link("../../" + outside.filename().string() + "/file", "/relative", kUser);

  EXPECT_EQ(open("/absolute"), "NOT_FOUND");
  EXPECT_EQ(open("/relative"), "NOT_FOUND");
  EXPECT_EQ(open("/../../" + outside.filename().string() + "/file"), "NOT_FOUND");
}

TEST_F(ProcessFilesTest, OpensRegularFilesOnly) {
  fs::create_directories(fake_.root(7) / "folder");
  ASSERT_EQ(::mkfifo((fake_.root(7) / "fifo").c_str(), 0666), 0);
  give(fake_.root(7) / "fifo", 0666);

  EXPECT_EQ(open("/folder"), "FAILED_PRECONDITION");
  EXPECT_EQ(open("/fifo"), "FAILED_PRECONDITION");
  EXPECT_NE(open("/"), "");
  EXPECT_NE(open(""), "");
}

TEST_F(ProcessFilesTest, LetsRootReadEverything) {
  fake_.write_status(7, 0);
  give(add("/closed/roots", 0400, kUser).parent_path(), 0700, kUser);

  EXPECT_EQ(open("/closed/roots"), "content of /closed/roots");
}

TEST_F(ProcessFilesTest, AppliesTheSameRulesToTheDaemonsOwnFiles) {
  add("/public", 0444);
  add("/roots", 0400);
  const ProcessStatus anybody{.uid = UINT32_MAX};

  EXPECT_TRUE(open_host_file(anybody, fake_.root(7), "/public").ok());
  EXPECT_EQ(open_host_file(anybody, fake_.root(7), "/roots").status().code(),
            StatusCode::kPermissionDenied);
}

TEST_F(ProcessFilesTest, SaysWhatItWantedAndAsWhom) {
  EXPECT_EQ(ProcessFiles::open(fake_.proc(), 7).value().open_file("/a/b").status().message(),
            "/a/b as user 12345: a: No such file or directory");
  fake_.remove_process(7);
  EXPECT_EQ(ProcessFiles::open(fake_.proc(), 7).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace gpuperf
