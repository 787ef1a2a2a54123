#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "daemon/base/fd.h"
#include "daemon/config/config.h"
#include "tests/unit/files.h"

namespace gpuperf {
namespace {

class ReadConfigFileTest : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_ / name; }
  std::string error_of(const std::string& path) const {
    const Result<std::string> text = read_config_file(path);
    return text.ok() ? "no error" : std::string(text.status().message());
  }

  const TempFolder folder_;
};

TEST_F(ReadConfigFileTest, ReadsAFileToTheByteAndFollowsLinks) {
  const std::string text = "{\n\"x\": \"\xc3\xa9\"}\n";
  std::ofstream(path("config.json"), std::ios::binary) << text;
  std::filesystem::create_symlink(path("config.json"), path("link.json"));

  EXPECT_EQ(read_config_file(path("config.json")).value(), text);
  EXPECT_EQ(read_config_file(path("link.json")).value(), text);
}

TEST_F(ReadConfigFileTest, SaysWhatIsWrongWithAFile) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  std::ofstream(path("file")) << "{}";

  EXPECT_EQ(error_of(path("missing")),
            path("missing") + ": read configuration: No such file or directory");
  EXPECT_EQ(error_of(path("file/below")),
            path("file/below") + ": read configuration: Not a directory");
  EXPECT_EQ(
      error_of(folder_.path().string()),
      folder_.path().string() + ": read configuration: is a directory, must be a regular file");
  EXPECT_EQ(error_of(path("pipe")),
            path("pipe") + ": read configuration: is a pipe, must be a regular file");
  EXPECT_EQ(error_of("/dev/zero"),
            "/dev/zero: read configuration: is a device, must be a regular file");
}

TEST_F(ReadConfigFileTest, StopsAtTheSizeBound) {
  std::ofstream(path("fitting")) << std::string(kConfigMaxBytes, ' ');
  std::ofstream(path("larger")) << std::string(kConfigMaxBytes + 1, ' ');
  std::ofstream(path("sparse")).close();
  std::filesystem::resize_file(path("sparse"), uint64_t{1} << 40);
  const std::string reason =
      ": read configuration: is larger than 1048576 bytes; keep only the functions you want to see";

  EXPECT_EQ(read_config_file(path("fitting")).value().size(), kConfigMaxBytes);
  EXPECT_EQ(error_of(path("larger")), path("larger") + reason);
  EXPECT_EQ(error_of(path("sparse")), path("sparse") + reason);
}

TEST_F(ReadConfigFileTest, SaysThatItMayNotRead) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read every file";
  std::ofstream(path("secret")) << "{}";
  ASSERT_EQ(::chmod(path("secret").c_str(), 0), 0);

  EXPECT_EQ(error_of(path("secret")), path("secret") + ": read configuration: Permission denied");
}

TEST(RenderConfigErrorsTest, WritesOneLinePerError) {
  const std::vector<ConfigError> errors = {{"$.slow.recent", "must be 5, is 6", "five"},
                                           {"line 1, column 2", "no JSON", ""}};

  EXPECT_EQ(render_config_errors("a.json", errors),
            "a.json: $.slow.recent: must be 5, is 6; hint: five\n"
            "a.json: line 1, column 2: no JSON\n");
}

}  // namespace
}  // namespace gpuperf
