#include "client/render.h"

#include <gtest/gtest.h>

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
    "slow_threshold_ns": 0, "hit_cost": "unspecified", "exit_sites": 0, "cost_ns": 0})"));
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

TEST(JsonTest, ShowsUnsetMessagesAsEmptyOnes) {
  EXPECT_EQ(to_json(v1::GetStatusResponse())["probes"], ordered_json::parse(R"({
    "attached": 0, "entry_only": 0, "waiting": 0, "symbol_missing": 0, "failed": 0,
    "disabled": 0, "suspended": 0, "alias": 0})"));
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
            "3,,,0,0,,,,0,0,0,0,,\"[{\"\"name\"\":\"\"n\"\",\"\"value\"\":\"\"1\"\"}]\",,[],,,\n");
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
