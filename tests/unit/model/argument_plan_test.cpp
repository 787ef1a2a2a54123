#include "daemon/model/argument_plan.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "daemon/model/data_types.h"

namespace gpuperf {

void PrintTo(const ArgumentText& text, std::ostream* out) {
  *out << text.name << "=" << text.value;
}

namespace {

ArgumentField make_field(std::string name, ArgumentFormat format, uint8_t size_bytes = 8) {
  ArgumentField field;
  field.name = std::move(name);
  field.format = format;
  field.capture.size_bytes = size_bytes;
  return field;
}

ArgumentField make_blob(std::string name, ArgumentFormat format, uint8_t blob) {
  ArgumentField field = make_field(std::move(name), format);
  field.capture.blob = blob;
  return field;
}

// What one field shows for one value.
std::string show(const ArgumentField& field, uint64_t value, const ArgumentNames& names = {}) {
  ArgumentPlan plan;
  plan.fields = {field};
  CallValues values;
  values.values[0] = value;
  const std::vector<ArgumentText> texts = render_arguments(&plan, values, names);
  return texts.size() == 1 ? texts[0].value : "no text";
}

// What one blob field shows for these bytes.
std::string show_blob(const ArgumentField& field, std::string bytes) {
  ArgumentPlan plan;
  plan.fields = {field};
  CallValues values;
  values.blobs = {std::move(bytes)};
  return render_arguments(&plan, values, {}).at(0).value;
}

std::string bytes_of(const std::vector<int32_t>& numbers) {
  std::string bytes(numbers.size() * sizeof(int32_t), '\0');
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

TEST(RenderArgumentsTest, ShowsTheRegistersWithoutAPlan) {
  CallValues values;
  values.values = {1, 0x10, 0xffffffffffffffff, 0, 0, 6, 7};

  const std::vector<ArgumentText> expected = {
      {"arg0", "0x1"}, {"arg1", "0x10"}, {"arg2", "0xffffffffffffffff"},
      {"arg3", "0x0"}, {"arg4", "0x0"},  {"arg5", "0x6"}};
  EXPECT_EQ(render_arguments(nullptr, values, {}), expected);
}

TEST(RenderArgumentsTest, ShowsNothingForAFunctionWithoutArguments) {
  const ArgumentPlan plan;
  EXPECT_EQ(render_arguments(&plan, {}, {}), std::vector<ArgumentText>{});
}

TEST(RenderArgumentsTest, ShowsNumbersByTheirSizeAndSign) {
  EXPECT_EQ(show(make_field("n", ArgumentFormat::kUnsigned, 4), 0xffffffff), "4294967295");
  EXPECT_EQ(show(make_field("n", ArgumentFormat::kSigned, 4), 0xffffffff), "-1");
  EXPECT_EQ(show(make_field("n", ArgumentFormat::kSigned, 2), 0x8000), "-32768");
  EXPECT_EQ(show(make_field("n", ArgumentFormat::kSigned, 1), 0x7f), "127");
  EXPECT_EQ(show(make_field("n", ArgumentFormat::kSigned, 8), ~uint64_t{0}), "-1");
  EXPECT_EQ(show(make_field("n", ArgumentFormat::kUnsigned, 8), ~uint64_t{0}),
            "18446744073709551615");
  EXPECT_EQ(show(make_field("n", ArgumentFormat::kHex), 0x7f00), "0x7f00");
  EXPECT_EQ(show(make_field("n", ArgumentFormat::kBool, 1), 1), "true");
  EXPECT_EQ(show(make_field("n", ArgumentFormat::kBool, 1), 0), "false");
}

TEST(RenderArgumentsTest, LooksAtNoBitBeyondAValuesSize) {
  EXPECT_EQ(show(make_field("n", ArgumentFormat::kUnsigned, 1), 0xabcdef01), "1");
  EXPECT_EQ(show(make_field("n", ArgumentFormat::kBool, 1), 0x100), "false");
  EXPECT_EQ(show(make_field("n", ArgumentFormat::kSigned, 4), 0x7fffffff00000005), "5");
}

TEST(RenderArgumentsTest, ShowsFloats) {
  EXPECT_EQ(show(make_field("f", ArgumentFormat::kFloat, 4), std::bit_cast<uint32_t>(1.5f)), "1.5");
  EXPECT_EQ(show(make_field("f", ArgumentFormat::kFloat, 8), std::bit_cast<uint64_t>(-1e300)),
            "-1e+300");
  EXPECT_EQ(show(make_field("f", ArgumentFormat::kFloat, 8), 0x7ff8000000000000), "nan");
}

TEST(RenderArgumentsTest, NamesCodesAndShowsUnknownOnesAsNumbers) {
  static constexpr CodeName kCodes[] = {{0, "none"}, {-2, "minus_two"}};
  ArgumentField code = make_field("c", ArgumentFormat::kCode, 4);
  code.codes = kCodes;
  ArgumentField pointer = make_field("c", ArgumentFormat::kHex);
  pointer.codes = kCodes;

  EXPECT_EQ(show(code, 0), "none");
  EXPECT_EQ(show(code, 0xfffffffe), "minus_two");
  EXPECT_EQ(show(code, 7), "7");
  EXPECT_EQ(show(pointer, 0), "none");
  EXPECT_EQ(show(pointer, 0x7f00), "0x7f00");
}

TEST(RenderArgumentsTest, NamesKernels) {
  const ArgumentNames names = {.find_kernel = [](uint64_t handle) -> std::optional<std::string> {
                                 if (handle == 0x100) return "gemm";
                                 return std::nullopt;
                               },
                               .find_symbol = [](uint64_t address) -> std::optional<std::string> {
                                 if (address == 0x200) return "vectorAdd(float*)";
                                 return std::nullopt;
                               }};
  const ArgumentField handle = make_field("kernel", ArgumentFormat::kKernelHandle);
  const ArgumentField function = make_field("kernel", ArgumentFormat::kKernelFunction);

  EXPECT_EQ(show(handle, 0x100, names), "gemm");
  EXPECT_EQ(show(handle, 0x200, names), "0x200");
  EXPECT_EQ(show(function, 0x200, names), "vectorAdd(float*)");
  EXPECT_EQ(show(function, 0x100, names), "gemm") << "the runtime takes handles too";
  EXPECT_EQ(show(function, 0x300, names), "0x300");
  EXPECT_EQ(show(function, 0x200), "0x200") << "nobody to ask";
}

TEST(RenderArgumentsTest, ShowsFieldsWithoutANameWithTheOneBefore) {
  ArgumentPlan plan;
  plan.fields = {make_field("grid", ArgumentFormat::kUnsigned, 4),
                 make_field("", ArgumentFormat::kUnsigned, 4),
                 make_field("", ArgumentFormat::kUnsigned, 4),
                 make_field("shared_bytes", ArgumentFormat::kUnsigned)};
  CallValues values;
  values.values = {128, 2, 1, 4096};
  values.unread = 1 << 1;

  const std::vector<ArgumentText> expected = {{"grid", "(128, unreadable, 1)"},
                                              {"shared_bytes", "4096"}};
  EXPECT_EQ(render_arguments(&plan, values, {}), expected);
}

TEST(RenderArgumentsTest, LeavesHiddenFieldsOutAndCountsTheirPlace) {
  ArgumentPlan plan;
  plan.fields = {make_field("a", ArgumentFormat::kUnsigned),
                 make_field("", ArgumentFormat::kHidden),
                 make_field("b", ArgumentFormat::kUnsigned)};
  CallValues values;
  values.values = {1, 2, 3};

  const std::vector<ArgumentText> expected = {{"a", "1"}, {"b", "3"}};
  EXPECT_EQ(render_arguments(&plan, values, {}), expected);
}

TEST(RenderArgumentsTest, SaysWhatCouldNotBeRead) {
  ArgumentPlan plan;
  plan.fields = {
      make_field("a", ArgumentFormat::kUnsigned), make_blob("name", ArgumentFormat::kString, 1),
      make_blob("dims", ArgumentFormat::kArray, 2), make_blob("later", ArgumentFormat::kString, 3)};
  CallValues values;
  values.unread = 0b0011;
  values.blobs = {"name", ""};

  const std::vector<ArgumentText> expected = {
      {"a", "unreadable"}, {"name", "unreadable"}, {"dims", "unreadable"}, {"later", "unreadable"}};
  EXPECT_EQ(render_arguments(&plan, values, {}), expected);
}

TEST(RenderArgumentsTest, ShowsStringsUpToTheirEndAndMarksCutOnes) {
  const ArgumentField field = make_blob("s", ArgumentFormat::kString, 1);

  EXPECT_EQ(show_blob(field, std::string("vectorAdd\0behind", 16)), "vectorAdd");
  EXPECT_EQ(show_blob(field, std::string("\0", 1)), "");
  EXPECT_EQ(show_blob(field, std::string(GPUPERF_BLOB_BYTES, 'x')),
            std::string(GPUPERF_BLOB_BYTES, 'x') + "…");
}

TEST(RenderArgumentsTest, ShowsArraysElementByElement) {
  ArgumentField field = make_blob("dims", ArgumentFormat::kArray, 1);
  field.element = ArgumentFormat::kSigned;
  field.element_bytes = 4;
  field.count = 3;

  EXPECT_EQ(show_blob(field, bytes_of({2, -3, 512, 99})), "[2, -3, 512]");
  EXPECT_EQ(show_blob(field, bytes_of({2, -3})), "[2, -3, …]");
  EXPECT_EQ(show_blob(field, "xy"), "[…]");
  field.count = 0;
  EXPECT_EQ(show_blob(field, bytes_of({2, -3})), "[2, -3]");
}

TEST(RenderArgumentsTest, PutsTransposedDimensionsRight) {
  ArgumentPlan plan;
  plan.fields = {make_field("m", ArgumentFormat::kUnsigned),
                 make_field("n", ArgumentFormat::kUnsigned),
                 make_field("k", ArgumentFormat::kUnsigned),
                 make_field("transa", ArgumentFormat::kUnsigned, 4)};
  plan.rules.shape_swap = 4;
  CallValues values;
  values.values = {10, 20, 30, 0};
  const std::vector<ArgumentText> plain = {{"m", "10"}, {"n", "20"}, {"k", "30"}, {"transa", "0"}};
  EXPECT_EQ(render_arguments(&plan, values, {}), plain);

  values.values[3] = 1;
  const std::vector<ArgumentText> swapped = {
      {"m", "30"}, {"n", "20"}, {"k", "10"}, {"transa", "1"}};
  EXPECT_EQ(render_arguments(&plan, values, {}), swapped);
}

TEST(RenderArgumentsTest, KeepsToTheValuesThereAre) {
  ArgumentPlan plan;
  for (int i = 0; i < GPUPERF_VALUES + 3; ++i)
    plan.fields.push_back(make_field("a" + std::to_string(i), ArgumentFormat::kUnsigned));

  EXPECT_EQ(render_arguments(&plan, {}, {}).size(), size_t{GPUPERF_VALUES});
  EXPECT_EQ(to_contract(plan).capture_count, GPUPERF_VALUES);
}

TEST(ArgumentPlanTest, BecomesTheContractWithItsRulesAndCaptures) {
  ArgumentPlan plan;
  plan.fields = {make_field("a", ArgumentFormat::kUnsigned, 4),
                 make_blob("b", ArgumentFormat::kString, 1)};
  plan.fields[1].capture.source = 7;
  plan.rules.byte_factors[0] = 1;
  plan.rules.element_bytes[0] = 4;

  const gpuperf_plan contract = to_contract(plan);

  EXPECT_EQ(contract.capture_count, 2);
  EXPECT_EQ(contract.captures[0].size_bytes, 4);
  EXPECT_EQ(contract.captures[1].source, 7);
  EXPECT_EQ(contract.captures[1].blob, 1);
  EXPECT_EQ(contract.byte_factors[0], 1);
  EXPECT_EQ(contract.element_bytes[0], 4);
}

TEST(ArgumentPlanTest, IsEqualByContents) {
  const auto make = [] {
    auto plan = std::make_shared<ArgumentPlan>();
    plan->fields = {make_field("a", ArgumentFormat::kUnsigned)};
    return plan;
  };
  const auto first = make();
  for (const auto& change : std::vector<std::function<void(ArgumentPlan&)>>{
           [](ArgumentPlan& plan) { plan.fields[0].name = "b"; },
           [](ArgumentPlan& plan) { plan.fields[0].format = ArgumentFormat::kHex; },
           [](ArgumentPlan& plan) { plan.fields[0].capture.offset_bytes[3] = 1; },
           [](ArgumentPlan& plan) { plan.fields[0].codes = nccl_type_codes(); },
           [](ArgumentPlan& plan) { plan.fields[0].count = 1; },
           [](ArgumentPlan& plan) { plan.fields.clear(); },
           [](ArgumentPlan& plan) { plan.rules.byte_slot = 1; },
           [](ArgumentPlan& plan) {
             plan.shape_types = {1, 2, 3, 4};
           },
           [](ArgumentPlan& plan) { plan.rules.shape_swap = 1; }}) {
    const auto changed = make();
    EXPECT_TRUE(is_same_plan(first, changed));
    change(*changed);
    EXPECT_FALSE(is_same_plan(first, changed));
  }
  EXPECT_TRUE(is_same_plan(nullptr, nullptr));
  EXPECT_FALSE(is_same_plan(first, nullptr));
}

TEST(DataTypesTest, HaveNamesAndUnknownOnesNone) {
  EXPECT_EQ(get_data_type_name(0), "f32");
  EXPECT_EQ(get_data_type_name(14), "bf16");
  EXPECT_EQ(get_data_type_name(28), "f8_e4m3");
  EXPECT_EQ(get_data_type_name(999), "");
  EXPECT_EQ(get_compute_type_name(68), "f32");
  EXPECT_EQ(get_compute_type_name(77), "f32_fast_tf32");
  EXPECT_EQ(get_compute_type_name(0), "f32");
  EXPECT_EQ(get_compute_type_name(66), "");
}

}  // namespace
}  // namespace gpuperf
