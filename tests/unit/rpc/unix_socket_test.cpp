#include "daemon/base/unix_socket.h"

#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "daemon/base/fd.h"
#include "tests/unit/matchers.h"
#include "tests/unit/rpc/rpc_fixture.h"

namespace gpuperf {
namespace {

// A socket bound to `path`; its file stays when the descriptor is closed, as after kill -9.
Fd bind_socket(const std::string& path) {
  Fd bound(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  std::memcpy(address.sun_path, path.c_str(), path.size());
  EXPECT_EQ(bind(bound.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return bound;
}

mode_t get_mode(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(stat(path.c_str(), &status), 0) << path;
  return status.st_mode & 07777;
}

class UnixSocketTest : public ::testing::Test {
 protected:
  void expect_refused(const std::string& path, absl::StatusCode code, const std::string& why) {
    const Status status = prepare_unix_socket(path);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
  }

  TempFolder folder_;
};

TEST_F(UnixSocketTest, MakesTheFolderForEverybodyToEnterWhateverTheMask) {
  const std::string path = folder_ / "run/api.sock";
  const mode_t mask = umask(0077);

  const Status status = prepare_unix_socket(path);
  (void)umask(mask);

  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(get_mode(folder_ / "run"), 0755u);
}

TEST_F(UnixSocketTest, LeavesAFolderThatExistsAsItIs) {
  ASSERT_EQ(mkdir((folder_ / "run").c_str(), 0700), 0);

  EXPECT_TRUE(prepare_unix_socket(folder_ / "run/api.sock").ok());

  EXPECT_EQ(get_mode(folder_ / "run"), 0700u);
}

TEST_F(UnixSocketTest, SaysWhenTheFoldersFolderIsMissing) {
  expect_refused(folder_ / "a/b/api.sock", absl::StatusCode::kNotFound, "/a/b: make folder");
}

TEST_F(UnixSocketTest, RemovesASocketNobodyAnswersOn) {
  const std::string path = folder_ / "api.sock";
  bind_socket(path).reset();
  ASSERT_TRUE(find_file_id(path).has_value());

  EXPECT_TRUE(prepare_unix_socket(path).ok());

  EXPECT_FALSE(find_file_id(path).has_value());
}

TEST_F(UnixSocketTest, LeavesASocketSomebodyAnswersOnAndNamesThem) {
  const std::string path = folder_ / "api.sock";
  const Fd listening = bind_socket(path);
  ASSERT_EQ(listen(listening.get(), 1), 0);

  expect_refused(path, absl::StatusCode::kAlreadyExists,
                 "socket in use by unit_test (pid " + std::to_string(getpid()) + ")");

  EXPECT_TRUE(find_file_id(path).has_value());
}

TEST_F(UnixSocketTest, LeavesASocketWhoseOwnerDoesNotAccept) {
  const std::string path = folder_ / "api.sock";
  const Fd listening = bind_socket(path);
  ASSERT_EQ(listen(listening.get(), 0), 0);
  std::vector<Fd> waiting;
  // The first connections fill the backlog.
  while (prepare_unix_socket(path).message().find("does not accept") == std::string_view::npos) {
    waiting.emplace_back(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    std::memcpy(address.sun_path, path.c_str(), path.size());
    (void)connect(waiting.back().get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
    ASSERT_LT(waiting.size(), 10u);
  }

  expect_refused(path, absl::StatusCode::kAlreadyExists, "socket in use by a program");
}

TEST_F(UnixSocketTest, LeavesWhatIsNoSocket) {
  std::ofstream(folder_ / "file") << "precious";
  ASSERT_EQ(symlink("elsewhere", (folder_ / "link").c_str()), 0);

  expect_refused(folder_ / "file", absl::StatusCode::kAlreadyExists, "not a socket");
  expect_refused(folder_ / "link", absl::StatusCode::kAlreadyExists, "not a socket");

  EXPECT_TRUE(find_file_id(folder_ / "file").has_value());
  EXPECT_TRUE(find_file_id(folder_ / "link").has_value());
}

TEST_F(UnixSocketTest, RefusesPathsThatCannotBeSockets) {
  expect_refused("relative.sock", absl::StatusCode::kInvalidArgument, "must begin with /");
  expect_refused("", absl::StatusCode::kInvalidArgument, "must begin with /");
  expect_refused("/tmp/a%20b", absl::StatusCode::kInvalidArgument, "letters");
  expect_refused("/" + std::string(107, 'a'), absl::StatusCode::kInvalidArgument, "at most 107");
}

TEST_F(UnixSocketTest, OpensTheSocketToAGroupThatExists) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to give a file to another group";
  const struct group* daemon = getgrnam("daemon");
  if (daemon == nullptr) GTEST_SKIP() << "this host has no group daemon";
  const gid_t gid = daemon->gr_gid;
  const std::string path = folder_ / "api.sock";
  const Fd bound = bind_socket(path);
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);

  EXPECT_TRUE(open_socket_to_group(path, "daemon").ok());

  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_gid, gid);
  EXPECT_EQ(get_mode(path), 0660u);
}

TEST_F(UnixSocketTest, KeepsTheSocketPrivateWithoutTheGroup) {
  const std::string path = folder_ / "api.sock";
  const Fd bound = bind_socket(path);
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);

  EXPECT_TRUE(open_socket_to_group(path, "no-such-group-here").ok());

  EXPECT_EQ(get_mode(path), 0600u);
}

}  // namespace
}  // namespace gpuperf
