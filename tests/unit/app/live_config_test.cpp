#include "daemon/app/live_config.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/matchers.h"

namespace gpuperf {
namespace {

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

using Thresholds = std::vector<std::optional<uint64_t>>;

// Of every configured function, in order; empty = slow.default_threshold_ms.
Thresholds list_thresholds(const LiveConfig& config) {
  Thresholds thresholds_ns;
  for (const ProbeSpec& probe : config.make_plan().config.probes) {
    thresholds_ns.push_back(probe.slow_threshold_ns);
  }
  return thresholds_ns;
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

TEST_F(LiveConfigTest, PassesOnWhatTheFileIsDoubtedFor) {
  const ProbeChange change = config_.replace_file(parse(R"({"cuda_fun_sym": {"a": "cudaA"}})"));

  ASSERT_EQ(change.warnings.size(), 1u);
  EXPECT_THAT(change.warnings[0], HasSubstr("did you mean \"cuda_func_sym\"?"));
}

TEST_F(LiveConfigTest, DoubtsANewSectionWithoutLibraries) {
  const auto add = [&](const char* category, const char* library) {
    ProbeSpec probe = spec("f", "f");
    probe.category = category;
    probe.library = library;
    return config_.add(probe)->warnings;
  };

  EXPECT_THAT(add("nosuch_section", ""),
              ElementsAre(HasSubstr("gpuperf knows cuda_func_sym, cublas_func_sym, ")));
  EXPECT_THAT(add("cublass", ""), ElementsAre(HasSubstr("did you mean \"cublas_func_sym\"?")));
  EXPECT_THAT(add("other", "libother.so"), IsEmpty());
  EXPECT_THAT(add("custom", ""), IsEmpty());
}

TEST_F(LiveConfigTest, RemovesWhatWasAddedAndNothingElse) {
  ASSERT_TRUE(config_.add(spec("c", "cudaC")).ok());

  EXPECT_EQ(*config_.remove("cuda_func_sym", "c"), (ProbeChange{.removed = 1, .unchanged = 2}));
  EXPECT_THAT(list_enabled(config_), ElementsAre("a", "b"));
  EXPECT_EQ(config_.remove("cuda", "c").status().message(),
            "no function \"c\" in category cuda was added: gpuperfctl probes lists them");
  EXPECT_EQ(config_.remove("cuda", "a").status().code(), absl::StatusCode::kFailedPrecondition);
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

// a has a threshold of its own, 3 ms.
class LiveThresholdTest : public testing::Test {
 protected:
  static constexpr uint64_t kConfiguredNs = 3'000'000;

  Result<ProbeChange> set(std::string function, std::optional<uint64_t> threshold_ns) {
    return config_.set_threshold({"cuda", std::move(function), threshold_ns}, {});
  }

  LiveConfig config_{parse(
      R"({"cuda_func_sym": {"a": {"symbol": "cudaA", "slow_threshold_ms": 3}, "b": "cudaB"}})")};
};

TEST_F(LiveThresholdTest, IsSetForTheNamedFunction) {
  const auto change = set("b", 7);

  ASSERT_TRUE(change.ok()) << change.status();
  EXPECT_EQ(*change, (ProbeChange{.changed = 1, .unchanged = 1}));
  EXPECT_EQ(list_thresholds(config_), (Thresholds{kConfiguredNs, 7}));
}

TEST_F(LiveThresholdTest, IsSetForEveryFunctionOfAPattern) {
  const auto change = set("*", 0);

  ASSERT_TRUE(change.ok()) << change.status();
  EXPECT_EQ(*change, (ProbeChange{.changed = 2}));
  EXPECT_EQ(list_thresholds(config_), (Thresholds{0, 0}));
}

TEST_F(LiveThresholdTest, IsSetInEveryCategoryWhereNoneIsNamed) {
  LiveConfig config(parse(R"({"cuda_func_sym": {"f": "f"}, "custom_sym": {"f": "g"}})"));

  ASSERT_TRUE(config.set_threshold({"", "f", 7}, {}).ok());

  EXPECT_EQ(list_thresholds(config), (Thresholds{7, 7}));
}

TEST_F(LiveThresholdTest, LeavesOtherCategoriesAlone) {
  LiveConfig config(parse(R"({"cuda_func_sym": {"f": "f"}, "custom_sym": {"f": "g"}})"));

  ASSERT_TRUE(config.set_threshold({"custom", "f", 7}, {}).ok());

  EXPECT_EQ(list_thresholds(config), (Thresholds{std::nullopt, 7}));
}

TEST_F(LiveThresholdTest, GoesBackToTheConfiguredOne) {
  (void)set("*", 7);

  const auto change = set("*", std::nullopt);

  ASSERT_TRUE(change.ok()) << change.status();
  EXPECT_EQ(*change, (ProbeChange{.changed = 2}));
  EXPECT_EQ(list_thresholds(config_), (Thresholds{kConfiguredNs, std::nullopt}));
}

TEST_F(LiveThresholdTest, IsThatOfTheLastChangeThatConcernsTheFunction) {
  (void)set("a", 5);
  (void)set("a*", 7);
  EXPECT_EQ(list_thresholds(config_), (Thresholds{7, std::nullopt}));

  (void)set("*", 9);
  (void)set("a", 11);
  EXPECT_EQ(list_thresholds(config_), (Thresholds{11, 9}));
}

TEST_F(LiveThresholdTest, OfANarrowerChangeGoesBackAlone) {
  (void)set("*", 9);

  (void)set("a", std::nullopt);

  EXPECT_EQ(list_thresholds(config_), (Thresholds{kConfiguredNs, 9}));
}

TEST_F(LiveThresholdTest, ForgetsChangesThatALaterOneCovers) {
  for (uint64_t i = 0; i < 100; ++i) {
    (void)set("a", i);
    (void)set("b", i);
  }
  EXPECT_EQ(config_.make_plan().config.thresholds.size(), 2u);

  (void)set("*", 1);

  EXPECT_EQ(config_.make_plan().config.thresholds,
            (std::vector<ThresholdOverride>{{"cuda", "*", 1}}));
}

TEST_F(LiveThresholdTest, StaysOverAReload) {
  (void)set("a", 7);

  const ProbeChange change = config_.replace_file(
      parse(R"({"cuda_func_sym": {"a": {"symbol": "cudaA", "slow_threshold_ms": 4},
                                  "b": {"symbol": "cudaB", "slow_threshold_ms": 5}}})"));

  EXPECT_EQ(change, (ProbeChange{.changed = 1, .unchanged = 1}));
  EXPECT_EQ(list_thresholds(config_), (Thresholds{7, 5'000'000}));
}

TEST_F(LiveThresholdTest, GoesBackToWhatAReloadConfigured) {
  (void)set("a", 7);
  (void)config_.replace_file(
      parse(R"({"cuda_func_sym": {"a": {"symbol": "cudaA", "slow_threshold_ms": 4}}})"));

  (void)set("a", std::nullopt);

  EXPECT_EQ(list_thresholds(config_), Thresholds{4'000'000});
}

TEST_F(LiveThresholdTest, ConcernsFunctionsThatAreAddedLater) {
  (void)set("*", 7);

  (void)config_.add(spec("c", "cudaC"));

  EXPECT_EQ(list_thresholds(config_), (Thresholds{7, 7, 7}));
}

TEST_F(LiveThresholdTest, OfAFunctionThatAWildcardFoundGoesByItsOwnName) {
  LiveConfig config(parse(R"({"cuda_func_sym": {"all": "cuda*"}})"));
  const FunctionList found = {{.category = "cuda", .name = "cudaMalloc"}};

  ASSERT_TRUE(config.set_threshold({"cuda", "cudaMalloc", 7}, found).ok());

  EXPECT_EQ(list_thresholds(config), Thresholds{std::nullopt});
  EXPECT_EQ(config.make_plan().config.thresholds,
            (std::vector<ThresholdOverride>{{"cuda", "cudaMalloc", 7}}));
}

TEST_F(LiveThresholdTest, SaysThatNothingMatches) {
  const auto change = set("none", 7);

  EXPECT_TRUE(absl::IsNotFound(change.status()));
  EXPECT_THAT(std::string(change.status().message()), HasSubstr("\"none\" in category cuda"));
  EXPECT_TRUE(config_.make_plan().config.thresholds.empty());
}

}  // namespace
}  // namespace gpuperf
