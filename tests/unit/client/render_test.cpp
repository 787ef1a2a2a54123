#include "client/render.h"

#include <gtest/gtest.h>

#include "example_calls.h"
#include "gpuperf/v1/control.pb.h"
#include "gpuperf/v1/observe.pb.h"

namespace gpuperf::client {
namespace {

using nlohmann::ordered_json;

v1::Probe make_probe() {
  v1::Probe probe;
  probe.set_category("cuda");
  probe.set_function("cudaMalloc");
  probe.set_symbol("cudaMalloc");
  probe.set_state(v1::PROBE_STATE_ENTRY_ONLY);
  probe.set_offset_bytes(UINT64_MAX);
  return probe;
}

TEST(JsonTest, HasEveryFieldUnderItsProtoName) {
  EXPECT_EQ(to_json(make_probe()), ordered_json::parse(R"({
    "category": "cuda", "function": "cudaMalloc", "symbol": "cudaMalloc", "state": "entry_only",
    "reason": "", "library": "", "offset_bytes": 18446744073709551615, "mechanism": "",
    "slow_threshold_ns": 0, "hit_cost": "unspecified", "exit_sites": 0, "cost_ns": 0,
    "adaptive_threshold_ns": 0})"));
}

TEST(JsonTest, KeepsTheOrderOfTheProto) {
  const ordered_json json = to_json(v1::ErrorCount());

  std::string names;
  for (const auto& [name, value] : json.items()) names += name + " ";

  EXPECT_EQ(names, "error code count ");
}

TEST(JsonTest, ConvertsEveryKindOfFieldThatTheProtoHas) {
  v1::FunctionStats stats;
  stats.set_pid(4294967295U);
  stats.set_coverage(0.25);
  stats.set_exited(true);
  stats.add_error_counts()->set_code(-7);

  const ordered_json json = to_json(stats);

  EXPECT_EQ(json["pid"], 4294967295U);
  EXPECT_EQ(json["coverage"], 0.25);
  EXPECT_EQ(json["exited"], true);
  EXPECT_EQ(json["error_counts"],
            ordered_json::parse(R"([{"error": "", "code": -7, "count": 0}])"));
}

TEST(JsonTest, ShowsAbsentMessagesAsNull) {
  v1::SlowCall call;
  EXPECT_EQ(to_json(call)["time_split"], nullptr);

  call.mutable_time_split()->set_blocked_ns(5);
  EXPECT_EQ(to_json(call)["time_split"]["blocked_ns"], 5);
  EXPECT_EQ(to_json(call)["time_split"]["waker"], nullptr);
}

TEST(JsonTest, ShowsAbsentNumbersAsNull) {
  v1::SetSlowThresholdRequest request;
  EXPECT_EQ(to_json(request)["threshold_ns"], nullptr);

  request.set_threshold_ns(0);
  EXPECT_EQ(to_json(request)["threshold_ns"], 0);
}

TEST(JsonTest, CarriesEverythingThatIsNested) {
  const ordered_json json = to_json(make_futex_call());

  const ordered_json& wait = json["time_split"]["waits"][0];
  EXPECT_EQ(wait["kernel_stack"][1]["symbol"], "futex_wait");
  EXPECT_EQ(wait["waker"]["stack"][1]["symbol"], "load_batch");
  EXPECT_EQ(json["children"][0], ordered_json::parse(R"({
    "category": "cublas", "function": "cublasGemmEx", "calls": 3, "total_ns": 1200000})"));
  EXPECT_EQ(json["outer"], ordered_json::parse(R"(["forward", "cudnnConvolutionForward"])"));
}

TEST(JsonTest, ShowsEnumValuesItDoesNotKnowByNumber) {
  v1::Probe probe;
  probe.set_state(static_cast<v1::ProbeState>(77));

  EXPECT_EQ(to_json(probe)["state"], "77");
  EXPECT_EQ(make_short_name(probe.state()), "77");
}

TEST(JsonTest, ShortensEnumNames) {
  EXPECT_EQ(make_short_name(v1::PROBE_STATE_SYMBOL_MISSING), "symbol_missing");
  EXPECT_EQ(make_short_name(v1::PROBE_STATE_UNSPECIFIED), "unspecified");
}

TEST(JsonTest, WritesOneLineOrIndented) {
  const ordered_json json = {{"a", 1}, {"b", "x\ny"}};

  EXPECT_EQ(write_json(json, JsonShape::kOneLine), "{\"a\":1,\"b\":\"x\\ny\"}\n");
  EXPECT_EQ(write_json(json, JsonShape::kIndented), "{\n  \"a\": 1,\n  \"b\": \"x\\ny\"\n}\n");
}

TEST(JsonTest, StaysValidAndHarmlessWithHostileText) {
  const std::string hostile = "\x1b[2J\xc2\x9b\u202e\xff\"\\";

  const std::string text = write_json({{"comm", hostile}}, JsonShape::kOneLine);

  EXPECT_EQ(make_printable(text.substr(0, text.size() - 1)), text.substr(0, text.size() - 1));
  EXPECT_EQ(ordered_json::parse(text)["comm"], "\x1b[2J\xc2\x9b\u202e\ufffd\"\\");
}

TEST(CsvTest, HasTheProtoNamesAsHeader) {
  EXPECT_EQ(write_csv_header(*v1::ErrorCount::descriptor()), "error,code,count\n");
}

TEST(CsvTest, QuotesWhatNeedsIt) {
  v1::Argument argument;
  argument.set_name("say \"hi\", twice");
  argument.set_value("line 1\nline 2");

  EXPECT_EQ(write_csv_row(argument, {}), "\"say \"\"hi\"\", twice\",\"line 1\nline 2\"\n");
}

TEST(CsvTest, QuotesBlanksAtTheEdgesAndCarriageReturns) {
  v1::Argument argument;
  argument.set_name(" a");
  argument.set_value("b\r");

  EXPECT_EQ(write_csv_row(argument, {}), "\" a\",\"b\r\"\n");
}

TEST(CsvTest, WritesListsAsJsonText) {
  v1::SlowCall call;
  call.set_id(3);
  auto* argument = call.add_arguments();
  argument->set_name("n");
  argument->set_value("1");

  EXPECT_EQ(write_csv_row(call, {}),
            "3,,,0,0,,,,0,0,0,0,,\"[{\"\"name\"\":\"\"n\"\",\"\"value\"\":\"\"1\"\"}]\",,[],,,"
            ",,,[],[],false,,false,,,\n");
}

TEST(CsvTest, WritesNestedMessagesAsJsonText) {
  v1::Wait wait;
  wait.set_kind("io");
  wait.mutable_waker()->set_tid(7);

  EXPECT_EQ(write_csv_row(wait, {}),
            "0,0,io,,,,\"{\"\"pid\"\":0,\"\"tid\"\":7,\"\"comm\"\":\"\"\"\",\"\"kernel_thread\"\":"
            "false,\"\"stack\"\":[],\"\"stack_id\"\":\"\"\"\"}\",[],\n");
}

TEST(CsvTest, EscapesControlCharactersOnlyOnATerminal) {
  v1::Argument argument;
  argument.set_name("\x1b[2J");

  EXPECT_EQ(write_csv_row(argument, {}), "\x1b[2J,\n");
  EXPECT_EQ(write_csv_row(argument, {.terminal = true}), "\\x1b[2J,\n");
}

TEST(RenderTest, ShowsNoRowsAsAnEmptyArrayOrAHeader) {
  const std::vector<v1::ErrorCount> none;

  EXPECT_EQ(render_rows(none, Format::kJson, JsonShape::kIndented, {}), "[]\n");
  EXPECT_EQ(render_rows(none, Format::kCsv, JsonShape::kIndented, {}), "error,code,count\n");
}

}  // namespace
}  // namespace gpuperf::client
