#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string>
#include <vector>

#include "daemon/config/config.h"
#include "support.h"

namespace gpuperf {
namespace {

std::vector<std::filesystem::path> bad_files() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(source_path("tests/unit/config/bad"))) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

class BadConfigTest : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(BadConfigTest, GivesExactlyTheExpectedErrors) {
  const auto parsed = parse_config(read_file(GetParam()));

  const auto* errors = std::get_if<std::vector<ConfigError>>(&parsed);
  ASSERT_NE(errors, nullptr) << "the file was accepted";
  ASSERT_FALSE(errors->empty());
  std::filesystem::path expected = GetParam();
  expected.replace_extension(".expected");
  expect_golden(expected, render_config_errors(GetParam().filename().string(), *errors));
}

TEST_P(BadConfigTest, PutsEveryErrorOnOneLineWithPathAndHint) {
  const auto parsed = parse_config(read_file(GetParam()));

  for (const ConfigError& error : std::get<std::vector<ConfigError>>(parsed)) {
    EXPECT_TRUE(error.path.starts_with("$") || error.path.starts_with("line ")) << error.path;
    EXPECT_FALSE(error.message.empty()) << error.path;
    EXPECT_FALSE(error.hint.empty()) << error.path << ": " << error.message;
    for (const std::string& text : {error.path, error.message, error.hint}) {
      EXPECT_TRUE(std::ranges::none_of(text, [](unsigned char c) { return std::iscntrl(c); }))
          << text;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, BadConfigTest, testing::ValuesIn(bad_files()),
                         [](const auto& info) { return info.param.stem().string(); });

TEST(BadConfigFilesTest, AreAtLeastTwentyWithoutLeftovers) {
  const auto folder = source_path("tests/unit/config/bad");

  EXPECT_GE(bad_files().size(), 20u);
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::filesystem::path config = entry.path();
    config.replace_extension(".json");
    EXPECT_TRUE(std::filesystem::exists(config)) << entry.path() << " belongs to no file";
  }
}

}  // namespace
}  // namespace gpuperf
