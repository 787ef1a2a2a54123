#include "daemon/web/secret.h"

#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/matchers.h"
#include "tests/unit/rpc/rpc_fixture.h"

namespace gpuperf {
namespace {

std::string read_word(const std::string& path) {
  std::string text;
  std::ifstream(path) >> text;
  return text;
}

struct stat look_at(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(stat(path.c_str(), &status), 0) << path;
  return status;
}

TEST(SecretTest, IsNewEachTime) {
  const std::string a = *make_secret(), b = *make_secret();

  EXPECT_THAT(a, MatchesRegex("[0-9a-f]{64}"));
  EXPECT_NE(a, b);
}

TEST(SecretTest, ComparesAllOfIt) {
  EXPECT_TRUE(is_same_secret("abc", "abc"));
  EXPECT_FALSE(is_same_secret("abc", "abd"));
  EXPECT_FALSE(is_same_secret("abc", "ab"));
  EXPECT_FALSE(is_same_secret("", ""));
}

TEST(SecretTest, IsInAFileOfItsOwnerOnly) {
  const TempFolder folder;

  const auto file = SecretFile::make(folder / "token", "");

  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(look_at(folder / "token").st_mode & 07777, 0600u);
  EXPECT_TRUE(file->matches(read_word(folder / "token")));
  EXPECT_FALSE(file->matches(""));
}

TEST(SecretTest, IsReadByItsGroup) {
  const group* own = getgrgid(getegid());
  if (own == nullptr) GTEST_SKIP() << "this group has no name";
  const TempFolder folder;

  const auto file = SecretFile::make(folder / "token", own->gr_name);

  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(look_at(folder / "token").st_mode & 07777, 0640u);
  EXPECT_EQ(look_at(folder / "token").st_gid, own->gr_gid);
}

TEST(SecretTest, IsItsOwnersWhereTheGroupDoesNotExist) {
  const TempFolder folder;

  const auto file = SecretFile::make(folder / "token", "no-such-group-at-all");

  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(look_at(folder / "token").st_mode & 07777, 0600u);
}

TEST(SecretTest, GoesWithItsDaemon) {
  const TempFolder folder;
  {
    auto file = SecretFile::make(folder / "token", "");
    ASSERT_TRUE(file.ok());
    const SecretFile moved = *std::move(file);
    EXPECT_TRUE(std::filesystem::exists(folder / "token"));
  }

  EXPECT_FALSE(std::filesystem::exists(folder / "token"));
}

TEST(SecretTest, NeverWritesThroughALink) {
  const TempFolder folder;
  std::ofstream(folder / "victim") << "mine";
  std::filesystem::create_symlink(folder / "victim", folder / "token");

  const auto file = SecretFile::make(folder / "token", "");

  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(read_word(folder / "victim"), "mine");
  EXPECT_FALSE(std::filesystem::is_symlink(folder / "token"));
}

TEST(SecretTest, SaysWhereItCouldNotBeWritten) {
  const TempFolder folder;

  const auto file = SecretFile::make(folder / "missing/token", "");

  ASSERT_FALSE(file.ok());
  EXPECT_THAT(std::string(file.status().message()), HasSubstr(folder / "missing/token: create"));
}

}  // namespace
}  // namespace gpuperf
