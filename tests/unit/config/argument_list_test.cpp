#include "daemon/config/argument_list.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "daemon/config/config.h"
#include "daemon/probe/arguments/argument_decoders.h"
#include "support.h"

namespace gpuperf {
namespace {

ProbeSpec parse_with_arguments(const std::string& arguments) {
  auto parsed = parse_probe("custom_sym", "f", R"({"symbol": "f", "args": )" + arguments + "}");
  if (const auto* errors = std::get_if<std::vector<ConfigError>>(&parsed)) {
    ADD_FAILURE() << render_config_errors("probe", *errors);
    return {};
  }
  return std::get<ProbeSpec>(std::move(parsed));
}

// What of a capture a list decides.
struct Capture {
  int source = 0;
  int loads = 0;
  int size_bytes = 8;
  int blob = 0;
  std::array<int32_t, GPUPERF_CHAIN> offset_bytes{};
  bool operator==(const Capture&) const = default;
};

void PrintTo(const Capture& capture, std::ostream* out) {
  *out << "source " << capture.source << " loads " << capture.loads << " size "
       << capture.size_bytes << " blob " << capture.blob << " offsets";
  for (const int32_t offset : capture.offset_bytes) *out << " " << offset;
}

Capture capture_of(const std::string& item) {
  const ProbeSpec spec = parse_with_arguments("[" + item + "]");
  if (!spec.arguments || spec.arguments->fields.size() != 1) return {.source = -1};
  const gpuperf_capture& capture = spec.arguments->fields[0].capture;
  EXPECT_EQ(capture.shift_bits, 0);
  Capture result{capture.source, capture.loads, capture.size_bytes, capture.blob, {}};
  std::ranges::copy(capture.offset_bytes, result.offset_bytes.begin());
  return result;
}

TEST(ArgumentListTest, TakesAnArgumentAsItIsPassed) {
  EXPECT_EQ(capture_of(R"({"name": "m", "arg": 3, "type": "i32"})"),
            (Capture{.source = 3, .size_bytes = 4}));
  EXPECT_EQ(capture_of(R"({"name": "m", "arg": 7, "type": "f64"})"), (Capture{.source = 7}));
  EXPECT_EQ(capture_of(R"({"name": "m", "arg": 63, "type": "bool"})"),
            (Capture{.source = 63, .size_bytes = 1}));
}

TEST(ArgumentListTest, LoadsAValueAtEachOffset) {
  EXPECT_EQ(capture_of(R"({"name": "m", "arg": 0, "type": "u16", "deref": [-8]})"),
            (Capture{.loads = 1, .size_bytes = 2, .offset_bytes = {-8}}));
  EXPECT_EQ(capture_of(R"({"name": "m", "arg": 1, "type": "f32", "deref": [8, 16, 24, 1e1]})"),
            (Capture{.source = 1, .loads = 4, .size_bytes = 4, .offset_bytes = {8, 16, 24, 10}}));
}

// The kernel side reads a blob at its last offset, after loading at those before.
TEST(ArgumentListTest, FindsAStringOrAnArrayAtTheLastOffset) {
  EXPECT_EQ(capture_of(R"({"name": "op", "arg": 0, "type": "string"})"), (Capture{.blob = 1}));
  EXPECT_EQ(capture_of(R"({"name": "op", "arg": 0, "type": "string", "deref": [16, 0]})"),
            (Capture{.loads = 1, .blob = 1, .offset_bytes = {16, 0}}));
  EXPECT_EQ(capture_of(R"({"name": "dims", "arg": 1, "type": "i64[4]", "deref": [8]})"),
            (Capture{.source = 1, .blob = 1, .offset_bytes = {8}}));
  EXPECT_EQ(capture_of(R"({"name": "ids", "arg": 1, "type": "u8[64]", "deref": [8, 0, 0, 4]})"),
            (Capture{.source = 1, .loads = 3, .blob = 1, .offset_bytes = {8, 0, 0, 4}}));
}

TEST(ArgumentListTest, NumbersBlobsAndFactorsAmongAllValues) {
  const ProbeSpec spec = parse_with_arguments(R"([
    {"name": "op", "arg": 0, "type": "string"},
    {"name": "rows", "arg": 1, "type": "u32", "bytes": true},
    {"name": "dims", "arg": 2, "type": "i32[3]"},
    {"name": "free", "arg": 3, "type": "u64", "bytes": false},
    {"name": "columns", "arg": 4, "type": "u64", "bytes": true}])");

  ASSERT_NE(spec.arguments, nullptr);
  const gpuperf_plan plan = to_contract(*spec.arguments);
  EXPECT_EQ(plan.capture_count, 5);
  EXPECT_EQ(plan.captures[0].blob, 1);
  EXPECT_EQ(plan.captures[1].blob, 0);
  EXPECT_EQ(plan.captures[2].blob, 2);
  EXPECT_EQ(plan.byte_factors[0], 2);
  EXPECT_EQ(plan.byte_factors[1], 5);
  EXPECT_EQ(plan.byte_factors[2], 0);
  EXPECT_EQ(plan.byte_slot, GPUPERF_BYTES_PLAIN);
  EXPECT_EQ(plan.element_bytes[0], 1);
}

TEST(ArgumentListTest, ReadsBackWhatTheKernelKept) {
  const ProbeSpec spec = parse_with_arguments(R"([
    {"name": "op", "arg": 0, "type": "string", "deref": [16, 0]},
    {"name": "delta", "arg": 1, "type": "i32"},
    {"name": "scale", "arg": 2, "type": "f32", "deref": [4]},
    {"name": "on", "arg": 3, "type": "bool"},
    {"name": "where", "arg": 4, "type": "pointer"},
    {"name": "dims", "arg": 5, "type": "i16[3]"},
    {"name": "weights", "arg": 5, "type": "f64[1]", "deref": [8]}])");
  CallValues values;
  values.values = {0x1000, 0xffffffff, 0x3fc00000, 1, 0x7f00, 0x2000, 0x3000};
  values.blobs = {std::string("conv\0xx", 7), std::string("\1\0\2\0\xfe\xff", 6),
                  std::string("\0\0\0\0\0\0\x04\xc0", 8)};

  const std::vector<ArgumentText> expected = {
      {"op", "conv"},      {"delta", "-1"},        {"scale", "1.5"},     {"on", "true"},
      {"where", "0x7f00"}, {"dims", "[1, 2, -2]"}, {"weights", "[-2.5]"}};
  EXPECT_EQ(render_arguments(spec.arguments.get(), values, {}), expected);
}

TEST(ArgumentListTest, TakesADecoderByName) {
  EXPECT_EQ(parse_with_arguments(R"("cudaMemcpyAsync")").arguments,
            find_argument_decoder("cudaMemcpyAsync"));
  EXPECT_FALSE(parse_with_arguments(R"("cudaMemcpyAsync")").raw_arguments);
}

TEST(ArgumentListTest, KeepsRawRegistersApartFromNothingSaid) {
  EXPECT_TRUE(parse_with_arguments(R"("raw")").raw_arguments);
  EXPECT_EQ(parse_with_arguments(R"("raw")").arguments, nullptr);
  EXPECT_FALSE(std::get<ProbeSpec>(parse_probe("custom_sym", "f", R"("f")")).raw_arguments);
}

TEST(ArgumentListTest, StandsBesideAWildcard) {
  const auto parsed = parse_probe(
      "custom_sym", "all", R"({"symbol": "f*", "args": [{"name": "n", "arg": 0, "type": "u8"}]})");

  const auto* spec = std::get_if<ProbeSpec>(&parsed);
  ASSERT_NE(spec, nullptr);
  EXPECT_EQ(spec->form, SymbolForm::kWildcard);
  ASSERT_NE(spec->arguments, nullptr);
  EXPECT_EQ(spec->arguments->fields.size(), 1u);
}

// A reload parses the same list again: it must not look like a change.
TEST(ArgumentListTest, IsTheSamePlanWhenParsedAgain) {
  const std::string list = R"([{"name": "n", "arg": 0, "type": "u8[4]", "deref": [8]}])";
  const std::string other = R"([{"name": "n", "arg": 0, "type": "u8[4]", "deref": [9]}])";

  EXPECT_TRUE(
      is_same_plan(parse_with_arguments(list).arguments, parse_with_arguments(list).arguments));
  EXPECT_FALSE(
      is_same_plan(parse_with_arguments(list).arguments, parse_with_arguments(other).arguments));
  EXPECT_FALSE(is_same_plan(parse_with_arguments(list).arguments, nullptr));
}

}  // namespace
}  // namespace gpuperf
