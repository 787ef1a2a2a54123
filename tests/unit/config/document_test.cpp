#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "daemon/config/config.h"
#include "support.h"

namespace gpuperf {
namespace {

std::vector<ConfigError> errors_of(std::string_view text) {
  const auto parsed = parse_config(text);
  const auto* errors = std::get_if<std::vector<ConfigError>>(&parsed);
  return errors ? *errors : std::vector<ConfigError>{};
}

// Texts that are no good as files of the source tree.

TEST(ConfigDocumentTest, RefusesBytesThatAreNotUtf8) {
  const std::vector<ConfigError> expected = {
      {"line 2, column 14",
       "syntax error while parsing value - invalid string: ill-formed UTF-8 byte",
       "save the file as UTF-8"}};

  EXPECT_EQ(errors_of("{\"x_sym\":\n  {\"f\": \"caf\xe9\"}}"), expected);
}

TEST(ConfigDocumentTest, CountsColumnsInCharacters) {
  const std::vector<ConfigError> errors = errors_of("{\"größe_sym\": x}");

  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].path, "line 1, column 15");
}

TEST(ConfigDocumentTest, RefusesANulByteInsteadOfEndingThere) {
  using std::string_literals::operator""s;
  const std::vector<ConfigError> expected = {
      {"line 2, column 1", "contains a NUL byte, so it is not text", "save the file as UTF-8"}};

  EXPECT_EQ(errors_of("{\"x_sym\": {\"f\": \"f\"}}\n\0garbage"s), expected);
}

TEST(ConfigDocumentTest, RefusesATextLargerThanTheBound) {
  const std::string fitting = R"({"x_sym": {"f": "f"}})" + std::string(kConfigMaxBytes - 21, ' ');
  const std::vector<ConfigError> expected = {
      {"$", "the file has 1048577 bytes, at most 1048576 are read",
       "keep only the functions you want to see"}};

  EXPECT_EQ(errors_of(fitting), std::vector<ConfigError>{});
  EXPECT_EQ(errors_of(fitting + ' '), expected);
}

TEST(ConfigDocumentTest, StopsAtTheDepthBoundHoweverDeepTheTextIs) {
  const std::string text = R"({"x_sym": )" + std::string(kConfigMaxBytes - 20, '[');

  const std::vector<ConfigError> errors = errors_of(text);

  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].message, "nested deeper than 16 levels");
}

TEST(ConfigDocumentTest, RefusesNamesLongerThanTheirBounds) {
  const std::string name(257, 'n');
  const std::string symbol(4097, 's');
  const std::string library(4096, 'l');

  const std::vector<ConfigError> errors =
      errors_of(R"({"x_sym": {")" + name + R"(": "f", "g": ")" + symbol +
                R"(", "h": {"symbol": "h", "library": ")" + library + R"("}}, ")" + name +
                R"(_sym": {"f": "f"}})");

  ASSERT_EQ(errors.size(), 4u);
  EXPECT_EQ(errors[0].message, "the display name must be at most 256 bytes long");
  EXPECT_EQ(errors[1].message, "must be at most 4096 bytes long");
  EXPECT_EQ(errors[2].message, "must be at most 4095 bytes long");
  EXPECT_EQ(errors[3].message, "the section's name must be at most 256 bytes long");
}

TEST(ConfigDocumentTest, CutsLongTextInMessagesBetweenCharacters) {
  std::string level;
  for (int i = 0; i < 40; ++i) level += "€";

  const std::vector<ConfigError> errors =
      errors_of(R"({"x_sym": {"f": "f"}, "log": {"level": ")" + level + R"("}})");

  std::string shown;
  for (int i = 0; i < 20; ++i) shown += "€";
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].message,
            "must be one of trace, debug, info, warn and error, is \"" + shown + "...\"");
}

}  // namespace
}  // namespace gpuperf
