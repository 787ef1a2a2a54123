#include <gtest/gtest.h>
#include <prometheus/metric_family.h>

#include "daemon/otlp/otlp_exporter.h"
#include "tests/unit/otlp/fake_receiver.h"

namespace gpuperf::otlp {
namespace {

using testing::FakeReceiver;

struct OneCounter final : prometheus::Collectable {
  std::vector<prometheus::MetricFamily> Collect() const override {
    prometheus::MetricFamily family{.name = "gpuperf_function_calls_total",
                                    .help = "Calls begun.",
                                    .type = prometheus::MetricType::Counter,
                                    .metric = {}};
    family.metric.emplace_back().counter.value = 1;
    return {family};
  }
};

class OtlpExporterTest : public ::testing::Test {
 protected:
  std::unique_ptr<OtlpExporter> make_exporter(ExportOptions options = {}) {
    options.endpoint = {false, {"127.0.0.1", static_cast<uint16_t>(receiver_.port())}};
    options.attributes = {{"host.name", "as-configured"}};
    return std::make_unique<OtlpExporter>(std::move(options),
                                          OtlpExporter::Parts{.metrics = metrics_,
                                                              .clock = clock_,
                                                              .drops = drops_,
                                                              .start_unix_ns = 7,
                                                              .version = "1.2.3",
                                                              .host_name = "node",
                                                              .host_id = "abc"});
  }
  static std::shared_ptr<const SlowCall> make_call(const char* function) {
    SlowCall call{.id = 1, .function = function, .start_unix_ns = 10};
    call.event.duration_ns = 5;
    return std::make_shared<const SlowCall>(std::move(call));
  }

  FakeReceiver receiver_;
  OneCounter metrics_;
  SystemClock clock_;
  DropCounters drops_;
};

TEST_F(OtlpExporterTest, SendsSlowCallsOfOneMomentTogether) {
  const auto exporter = make_exporter();

  exporter->on_slow_call(make_call("a"));
  exporter->on_slow_call(make_call("b"));

  receiver_.wait_for_taken(1);
  const auto traces = receiver_.traces();
  ASSERT_EQ(traces.size(), 1u);
  const auto& spans = traces[0].resource_spans(0).scope_spans(0).spans();
  ASSERT_EQ(spans.size(), 2);
  EXPECT_EQ(spans[0].name() + spans[1].name(), "ab");
}

TEST_F(OtlpExporterTest, SendsMetricsEveryIntervalAndSaysWhoItIs) {
  const auto exporter = make_exporter({.interval = std::chrono::seconds(1)});

  receiver_.wait_for_taken(2);

  const auto metrics = receiver_.metrics();
  ASSERT_GE(metrics.size(), 2u);
  std::map<std::string, std::string> attributes;
  for (const auto& attribute : metrics[0].resource_metrics(0).resource().attributes()) {
    attributes[attribute.key()] = attribute.value().string_value();
  }
  EXPECT_EQ(attributes, (std::map<std::string, std::string>{{"service.name", "gpuperfd"},
                                                            {"service.version", "1.2.3"},
                                                            {"host.name", "as-configured"},
                                                            {"host.id", "abc"}}));
  const auto& scope = metrics[1].resource_metrics(0).scope_metrics(0);
  EXPECT_EQ(scope.metrics(0).sum().data_points(0).start_time_unix_nano(), 7u);
}

TEST_F(OtlpExporterTest, LeavesOutCallsInFlightUntilTheyEnd) {
  auto exporter = make_exporter();
  SlowCall call = *make_call("hung");
  call.event.in_flight = ThreadState::kBlocked;

  exporter->on_slow_call(std::make_shared<const SlowCall>(call));
  call.is_gone = true;
  exporter->on_slow_call(std::make_shared<const SlowCall>(call));
  exporter.reset();

  ASSERT_EQ(receiver_.traces().size(), 1u);
  EXPECT_EQ(receiver_.traces()[0].resource_spans(0).scope_spans(0).spans_size(), 1);
}

TEST_F(OtlpExporterTest, SendsWhatThereIsWhenItStops) {
  auto exporter = make_exporter();

  exporter->on_slow_call(make_call("last"));
  exporter.reset();

  EXPECT_EQ(receiver_.traces().size(), 1u);
  EXPECT_EQ(receiver_.metrics().size(), 1u);
}

TEST_F(OtlpExporterTest, SendsOnlyTheSignalsThatAreWanted) {
  auto exporter = make_exporter({.slow_calls = false});

  exporter->on_slow_call(make_call("a"));
  exporter.reset();

  EXPECT_EQ(receiver_.traces().size(), 0u);
  EXPECT_EQ(receiver_.metrics().size(), 1u);
}

TEST_F(OtlpExporterTest, NamesTheSignalThatDoesNotGetThrough) {
  receiver_.answer({{grpc::StatusCode::PERMISSION_DENIED, "no such tenant"}});
  auto exporter = make_exporter({.metrics = false});

  exporter->on_slow_call(make_call("a"));
  for (int i = 0; i < 3'000 && exporter->list_problems().empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }

  const auto problems = exporter->list_problems();
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].message, "slow calls to 127.0.0.1:" + std::to_string(receiver_.port()) +
                                     ": code 7: no such tenant");
}

}  // namespace
}  // namespace gpuperf::otlp
