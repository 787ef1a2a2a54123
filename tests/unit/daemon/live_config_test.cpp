#include "daemon/live_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpuperf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Config parse(std::string_view text) { return std::get<Config>(parse_config(text)); }

ProbeSpec spec(std::string name, std::string symbol) {
  return {.category = "cuda", .function = std::move(name), .symbol = std::move(symbol)};
}

std::vector<std::string> list_enabled(const LiveConfig& config) {
  std::vector<std::string> names;
  for (const ProbeSpec& probe : config.make_plan().config.probes) {
    if (probe.enabled) names.push_back(probe.function);
  }
  return names;
}

class LiveConfigTest : public testing::Test {
 protected:
  LiveConfig config_{parse(R"({"cuda_func_sym": {"a": "cudaA", "b": "cudaB"}})")};
};

TEST_F(LiveConfigTest, TellsWhatAReloadChanges) {
  const ProbeChange change = config_.replace_file(parse(
      R"({"cuda_func_sym": {"a": "cudaA", "b": {"symbol": "cudaB", "slow_threshold_ms": 3},
                            "c": "cudaC"},
          "grpc": {"listen": "unix:/run/other.sock"}, "slow": {"default_threshold_ms": 7}})"));

  EXPECT_EQ(change, (ProbeChange{.added = 1,
                                 .removed = 0,
                                 .changed = 1,
                                 .unchanged = 1,
                                 .restart_needed = {"grpc.listen"}}));
  EXPECT_EQ(config_.make_plan().default_threshold_ns, 7'000'000u);
}

TEST_F(LiveConfigTest, TellsAChangedArgumentListFromTheSameOne) {
  const char* const kText =
      R"({"custom_sym": {"f": {"symbol": "f", "args": [{"name": "n", "arg": 0, "type": "i32"}]}}})";
  LiveConfig config(parse(kText));

  EXPECT_EQ(config.replace_file(parse(kText)).unchanged, 1u);
  EXPECT_EQ(config
                .replace_file(parse(R"({"custom_sym": {"f": {"symbol": "f",
                "args": [{"name": "n", "arg": 1, "type": "i32"}]}}})"))
                .changed,
            1u);
}

TEST_F(LiveConfigTest, KeepsWhatWasAddedOverAReload) {
  const auto added = config_.add(spec("c", "cudaC"));
  (void)config_.replace_file(parse(R"({"cuda_func_sym": {"a": "cudaA"}})"));

  ASSERT_TRUE(added.ok());
  EXPECT_EQ(added->added, 1u);
  EXPECT_THAT(list_enabled(config_), ElementsAre("a", "c"));
}

TEST_F(LiveConfigTest, LetsTheFileTakeOverAnAddedName) {
  (void)config_.add(spec("c", "cudaC"));
  (void)config_.replace_file(parse(R"({"cuda_func_sym": {"c": "cudaOther"}})"));

  const auto probes = config_.make_plan().config.probes;
  ASSERT_EQ(probes.size(), 1u);
  EXPECT_EQ(probes[0].symbol, "cudaOther");
}

TEST_F(LiveConfigTest, RefusesANameThatIsTaken) {
  const auto added = config_.add(spec("a", "cudaOther"));

  EXPECT_TRUE(absl::IsAlreadyExists(added.status()));
  EXPECT_THAT(list_enabled(config_), ElementsAre("a", "b"));
}

TEST_F(LiveConfigTest, SwitchesByPatternAndBack) {
  const auto off = config_.set_enabled({"cuda", "*", false}, {});
  EXPECT_THAT(list_enabled(config_), ElementsAre());
  const auto on = config_.set_enabled({"", "b", true}, {});

  ASSERT_TRUE(off.ok() && on.ok());
  EXPECT_EQ(off->removed, 2u);
  EXPECT_EQ(on->added, 1u);
  EXPECT_THAT(list_enabled(config_), ElementsAre("b"));
}

TEST_F(LiveConfigTest, ForgetsSwitchesThatALaterOneCovers) {
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(config_.set_enabled({"cuda", "a", i % 2 == 0}, {}).ok());
  }

  EXPECT_EQ(config_.make_plan().config.overrides.size(), 1u);
}

TEST_F(LiveConfigTest, KnowsFunctionsThatOnlyAWildcardFound) {
  LiveConfig config(parse(R"({"cuda_func_sym": {"all": "cuda*"}})"));
  const FunctionList found = {{.category = "cuda", .name = "cudaMalloc"}};

  EXPECT_TRUE(config.set_enabled({"cuda", "cudaMalloc", false}, found).ok());
  EXPECT_THAT(list_enabled(config), ElementsAre("all"));
}

TEST_F(LiveConfigTest, SaysThatNothingMatches) {
  const auto change = config_.set_enabled({"cuda", "none", true}, {});

  EXPECT_TRUE(absl::IsNotFound(change.status()));
  EXPECT_THAT(std::string(change.status().message()), HasSubstr("\"none\" in category cuda"));
}

}  // namespace
}  // namespace gpuperf
