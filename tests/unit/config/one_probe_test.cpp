#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

#include "daemon/config/config.h"
#include "support.h"

namespace gpuperf {
namespace {

std::vector<ConfigError> errors_of(std::string_view section, std::string_view name,
                                   std::string_view value_json) {
  const auto parsed = parse_probe(section, name, value_json);
  const auto* errors = std::get_if<std::vector<ConfigError>>(&parsed);
  return errors ? *errors : std::vector<ConfigError>{};
}

TEST(OneProbeTest, IsReadAsItWouldStandInAFile) {
  const ProbeSpec expected{.category = "cuda",
                           .function = "malloc",
                           .symbol = "cudaMalloc",
                           .library = "libcudart.so*",
                           .slow_threshold_ns = 5'000'000};
  const std::string value =
      R"({"symbol": "cudaMalloc", "library": "libcudart.so*", "slow_threshold_ms": 5})";

  for (const char* section : {"cuda_func_sym", "cuda_sym", "cuda"}) {
    const auto parsed = parse_probe(section, "malloc", value);
    ASSERT_TRUE(std::holds_alternative<ProbeSpec>(parsed)) << section;
    EXPECT_EQ(std::get<ProbeSpec>(parsed), expected) << section;
  }
}

TEST(OneProbeTest, TakesTheUsersWordForExceptions) {
  const auto parsed = parse_probe("custom_sym", "f", R"({"symbol": "f", "may_throw": false})");

  ASSERT_TRUE(std::holds_alternative<ProbeSpec>(parsed));
  EXPECT_EQ(std::get<ProbeSpec>(parsed).may_throw, false);
  EXPECT_EQ(errors_of("custom_sym", "f", R"({"symbol": "f", "may_throw": 0})").size(), 1u);
  EXPECT_EQ(errors_of("custom_sym", "f", R"({"symbol": "f", "sample": 1})").size(), 1u);
}

TEST(OneProbeTest, MakesEachCallOfAFunctionWithARoleReported) {
  const auto parsed = parse_probe(
      "custom_sym", "f",
      R"({"role": "step", "symbol": "f", "args": [{"name": "tokens", "arg": 1, "type": "i32"}]})");

  ASSERT_TRUE(std::holds_alternative<ProbeSpec>(parsed));
  const auto plan = std::get<ProbeSpec>(parsed).arguments;
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(plan->report, CallReport::kStep);
  EXPECT_EQ(plan->step_role, StepRole::kStep);
  ASSERT_EQ(plan->fields.size(), 1u);
  EXPECT_EQ(plan->fields[0].name, "tokens");
}

TEST(OneProbeTest, RefusesARoleThatDoesNotExist) {
  EXPECT_EQ(errors_of("custom_sym", "f", R"({"symbol": "f", "role": "request"})"),
            (std::vector<ConfigError>{{"$.custom_sym.f.role",
                                       "must be one of step, step_part, step_wait, backward, "
                                       "optimizer, operator, result_copy and result_wait, is "
                                       "\"request\"",
                                       "docs/steps.md says what each is for"}}));
  EXPECT_EQ(errors_of("custom_sym", "f", R"({"symbol": "a:b", "role": "step"})").size(), 1u);
}

TEST(OneProbeTest, SaysWhatIsWrongUnderItsPath) {
  EXPECT_EQ(errors_of("cuda_func_sym", "malloc", R"({"symbol": "a b", "colour": 1})"),
            (std::vector<ConfigError>{
                {"$.cuda_func_sym.malloc.symbol", "must be a symbol without spaces: \"a b\"",
                 "`nm -D LIBRARY` lists the symbols a library exports"},
                {"$.cuda_func_sym.malloc.colour", "unknown key",
                 "the keys of a probe are symbol, library, slow_threshold_ms, args, role, "
                 "probe, sample and may_throw"}}));
}

TEST(OneProbeTest, SaysWhatIsWrongWithTheText) {
  const std::vector<ConfigError> bare = errors_of("cuda", "malloc", "cudaMalloc");
  ASSERT_EQ(bare.size(), 1u);
  EXPECT_EQ(bare[0].path, "line 1, column 1");
  EXPECT_TRUE(bare[0].hint.ends_with(R"(a symbol is written in quotes: "cudaMalloc")"));

  const std::vector<ConfigError> twice =
      errors_of("cuda", "malloc", R"({"symbol": "a", "symbol": "b"})");
  ASSERT_EQ(twice.size(), 1u);
  EXPECT_EQ(twice[0].path, "$.cuda.malloc.symbol");
  EXPECT_EQ(twice[0].message, "duplicate key");

  EXPECT_EQ(errors_of("cuda", "malloc", "").size(), 1u);
  EXPECT_EQ(errors_of("cuda", "malloc", std::string(kConfigMaxBytes + 1, ' ')).size(), 1u);
}

TEST(OneProbeTest, ChecksItsSectionAndItsName) {
  EXPECT_EQ(errors_of("my lib", "f", R"("f")").size(), 1u);
  EXPECT_EQ(errors_of("", "f", R"("f")").size(), 1u);
  EXPECT_EQ(errors_of("_sym", "f", R"("f")").size(), 1u);
  EXPECT_EQ(errors_of("cuda", "", R"("f")").size(), 1u);
  EXPECT_EQ(errors_of("cuda", std::string(257, 'f'), R"("f")").size(), 1u);
}

TEST(RestartSettingsTest, NamesWhatOnlyARestartPutsInForce) {
  Settings now;
  now.slow.default_threshold_ms = 5;
  now.slow.stacks = false;
  now.slow.log_per_second = 1;
  now.stats.keep_exited_seconds = 1;
  now.overhead.budget.percent = 0;
  now.log.level = "debug";
  EXPECT_EQ(list_restart_settings(Settings{}, now), std::vector<std::string>{});

  now.slow.recent = 7;
  now.stats.max_functions = 100;
  now.grpc.listen = "";
  EXPECT_EQ(list_restart_settings(Settings{}, now),
            (std::vector<std::string>{"slow.recent", "stats.max_functions", "grpc.listen"}));
  EXPECT_EQ(list_restart_settings(now, now), std::vector<std::string>{});
}

}  // namespace
}  // namespace gpuperf
