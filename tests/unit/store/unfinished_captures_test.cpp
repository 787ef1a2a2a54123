#include "daemon/store/unfinished_captures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/unit/files.h"

namespace gpuperf {
namespace {

using ::testing::HasSubstr;

TEST(UnfinishedCapturesTest, AreFailedAtTheNextStartAndSayWhy) {
  const TempFolder folder;
  const std::string path = folder / "unfinished.json";
  const CaptureRow running{
      .id = 7,
      .name = "a \"name\"\n",
      .trigger = "request",
      .target = {.pid = 71, .with_children = true, .container = "c", .pod = "p"},
      .state = CaptureState::kRunning,
      .start_unix_ns = UINT64_MAX,
      .requester_uid = 1000};

  ASSERT_EQ(write_unfinished_captures(path, {.last_id = 9, .captures = {running}}),
            absl::OkStatus());
  const auto read = read_unfinished_captures(path);

  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->last_id, 9u);
  ASSERT_EQ(read->captures.size(), 1u);
  EXPECT_THAT(read->captures[0].problem, HasSubstr("start it again"));
  CaptureRow expected = running;
  expected.state = CaptureState::kFailed;
  expected.problem = read->captures[0].problem;
  EXPECT_EQ(read->captures[0], expected);
}

TEST(UnfinishedCapturesTest, ADamagedFileIsRefused) {
  const TempFolder folder;
  const std::string path = folder / "unfinished.json";
  EXPECT_TRUE(absl::IsNotFound(read_unfinished_captures(path).status()));
  for (const char* text :
       {"", "[]", "{}", "{\"last_id\":-1,\"captures\":[]}", "{\"last_id\":1}",
        "{\"last_id\":1,\"captures\":[{}]}", "{\"last_id\":1,\"captures\":[7]}"}) {
    std::ofstream(path) << text;
    EXPECT_TRUE(absl::IsInvalidArgument(read_unfinished_captures(path).status())) << text;
  }
}

}  // namespace
}  // namespace gpuperf
