#include "daemon/config/qos_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace gpuperf {
namespace {

using ::testing::HasSubstr;
using Reading = QosRule::Reading;
using Kind = OverheadDemand::Kind;

QosRule parse_good_rule(const std::string& text) {
  const auto rule = parse_qos_rule("name", text);
  EXPECT_TRUE(rule.ok()) << rule.status();
  return rule.ok() ? *rule : QosRule{};
}

TEST(QosRuleTest, ReadsEveryPart) {
  const std::string text =
      "p99 gpuperf_step_seconds{phase=decode, function=\"llama*\"} > 5e-2 over 3s: freeze, "
      "detail,check";
  EXPECT_EQ(parse_good_rule(text), (QosRule{.name = "name",
                                            .text = text,
                                            .metric = Metric::kStepDuration,
                                            .labels = {{"phase", "decode"}, {"function", "llama*"}},
                                            .reading = Reading::kQuantile,
                                            .quantile = 0.99,
                                            .is_upper = true,
                                            .limit = 0.05,
                                            .window_ns = 3'000'000'000,
                                            .freezes = true,
                                            .checks = true,
                                            .demand = Kind::kDetail}));
}

TEST(QosRuleTest, ReadsTheShortestRulesOfEachTypeOfMetric) {
  const QosRule gauge = parse_good_rule("gpuperf_gpu_temperature_celsius>85:freeze");
  EXPECT_EQ(gauge.reading, Reading::kValue);
  EXPECT_EQ(gauge.window_ns, 2'000'000'000);
  EXPECT_EQ(gauge.demand, Kind::kNone);
  const QosRule counter =
      parse_good_rule("rate gpuperf_step_tokens_total < 100 over 10m: stand-down");
  EXPECT_EQ(counter.reading, Reading::kRate);
  EXPECT_FALSE(counter.is_upper);
  EXPECT_EQ(counter.window_ns, 600'000'000'000);
  EXPECT_EQ(counter.demand, Kind::kStandDown);
  EXPECT_EQ(parse_good_rule("mean gpuperf_kernel_duration_seconds > 1: freeze").reading,
            Reading::kMean);
  EXPECT_EQ(parse_good_rule("rate gpuperf_step_seconds < 1: freeze").reading, Reading::kRate);
}

TEST(QosRuleTest, ReadsMetricsOfOtherPrograms) {
  const std::string text =
      "p99 vllm:ttft{model_name=m*, a=b} of http://[::1]:8000/metrics > 2 over 10s: freeze";
  EXPECT_EQ(parse_good_rule(text), (QosRule{.name = "name",
                                            .text = text,
                                            .foreign_metric = "vllm:ttft",
                                            .url = "http://[::1]:8000/metrics",
                                            .labels = {{"model_name", "m*"}, {"a", "b"}},
                                            .reading = Reading::kQuantile,
                                            .quantile = 0.99,
                                            .is_upper = true,
                                            .limit = 2,
                                            .window_ns = 10'000'000'000,
                                            .freezes = true}));
  const QosRule gauge = parse_good_rule("queue of http://localhost:1/>8:detail");
  EXPECT_EQ(gauge.foreign_metric, "queue");
  EXPECT_EQ(gauge.url, "http://localhost:1/");
  EXPECT_EQ(gauge.limit, 8);
}

TEST(QosRuleTest, SaysWhatIsWrongAndWhatIsPossible) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "no metric \"\""},
      {"p98 gpuperf_step_seconds > 1: freeze", "rate, mean, p50, p90, p95 and p99"},
      {"vllm:ttft > 1: freeze", "no metric \"vllm\"; of another program's, say where"},
      {"p99 a of https://h:1/m > 1: freeze", "does not begin with http://"},
      {"p99 a of http://engine:1/m > 1: freeze", "must be an IP address or localhost"},
      {"p99 a of http://127.0.0.1/m > 1: freeze", "no port"},
      {"p99 a{b=c} d of http://127.0.0.1:1/m > 1: freeze", "between the labels and of stands"},
      {"p99 a-b of http://127.0.0.1:1/m > 1: freeze", "\"a-b\" is no name of a metric"},
      {"p99 a{b-c=d} of http://127.0.0.1:1/m > 1: freeze", "\"b-c\" is no name of a label"},
      {"p99 a of http://127.0.0.1:1/m: freeze", "comes > or < and the limit"},
      {"p99 gpuperf_step_second > 1: freeze", "did you mean \"gpuperf_step_seconds\"?"},
      {"gpuperf_step_seconds > 1: freeze", "write rate, mean or a quantile before it"},
      {"p99 gpuperf_kernel_duration_seconds > 1: freeze", "of others write mean or rate"},
      {"gpuperf_step_tokens_total > 1: freeze", "is a counter: write rate before it"},
      {"rate gpuperf_gpu_temperature_celsius > 1: freeze", "only its value can be read"},
      {"p99 gpuperf_step_seconds{phase=decode > 1: freeze", "has no }"},
      {"p99 gpuperf_step_seconds{gpu=0} > 1: freeze", "its labels: category, function and phase"},
      {"gpuperf_processes{gpu=0} > 1: freeze", "the metric has none"},
      {"p99 gpuperf_step_seconds{phase} > 1: freeze", "label \"phase\" needs a value"},
      {"p99 gpuperf_step_seconds = 1: freeze", "no metric \"gpuperf_step_seconds = 1\""},
      {"p99 gpuperf_step_seconds{phase=x} = 1: freeze", "comes > or < and the limit"},
      {"p99 gpuperf_step_seconds > fast: freeze", "\"fast\" is no number"},
      {"p99 gpuperf_step_seconds > nan: freeze", "\"nan\" is no number"},
      {"p99 gpuperf_step_seconds > 1", "what is to be done are missing"},
      {"p99 gpuperf_step_seconds > 1 over 500ms: freeze", "a time from 1s to 10m"},
      {"p99 gpuperf_step_seconds > 1 over 11m: freeze", "a time from 1s to 10m"},
      {"p99 gpuperf_step_seconds > 1 over 5: freeze", "a time from 1s to 10m"},
      {"p99 gpuperf_step_seconds > 1:", "no action \"\""},
      {"p99 gpuperf_step_seconds > 1: freeze, shout",
       "there are freeze, detail, stand-down and check"},
      {"p99 gpuperf_step_seconds > 1: detail, stand-down", "exclude each other"},
      {"p99 gpuperf_step_seconds > 1: stand-down, check", "nothing is left to be checked"},
  };
  for (const auto& [text, words] : cases) {
    const auto rule = parse_qos_rule("name", text);
    ASSERT_FALSE(rule.ok()) << text;
    EXPECT_THAT(std::string(rule.status().message()), HasSubstr(words)) << text;
  }
}

TEST(QosRuleTest, TakesNamesThatAreLabelsEverywhere) {
  const std::string text = "gpuperf_processes > 1: freeze";
  EXPECT_TRUE(parse_qos_rule("decode-p99.1_a", text).ok());
  for (const std::string& name : {std::string(), std::string(65, 'a'), std::string("a b")}) {
    EXPECT_FALSE(parse_qos_rule(name, text).ok()) << name;
  }
  EXPECT_EQ(find_qos_rule_fault("a", "x"),
            "a: no metric \"x\"; of another program's, say where it is served: METRIC of "
            "http://127.0.0.1:8000/metrics > NUMBER");
  EXPECT_EQ(find_qos_rule_fault("a", text), std::nullopt);
  EXPECT_THAT(*find_qos_rule_fault("a", text + std::string(1'000, ' ')), HasSubstr("1,000 bytes"));
}

}  // namespace
}  // namespace gpuperf
