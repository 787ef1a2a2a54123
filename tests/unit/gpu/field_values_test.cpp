#include "daemon/gpu/field_values.h"

#include <gtest/gtest.h>

#include <vector>

namespace gpuperf {
namespace {

NvmlFieldValue make_field(unsigned id, unsigned type, unsigned long long value,
                          NvmlReturn result = kNvmlSuccess) {
  NvmlFieldValue field{.field_id = id, .value_type = type, .result = result};
  field.value.as_unsigned_long_long = value;
  return field;
}

std::vector<NvmlFieldValue> make_row(unsigned first, unsigned type,
                                     NvmlReturn result = kNvmlSuccess) {
  return {make_field(first, type, 1, result), make_field(first + 1, type, 2, result),
          make_field(first + 2, type, 3, result)};
}

std::vector<NvmlFieldValue> join(std::vector<NvmlFieldValue> a,
                                 const std::vector<NvmlFieldValue>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(FieldValuesTest, ReadsWholeNumbersOfEveryType) {
  EXPECT_EQ(read_field(make_field(1, kNvmlUnsignedInt, 0xffff'ffff'0000'0007)), 7u);
  EXPECT_EQ(read_field(make_field(1, kNvmlUnsignedLong, 8)), 8u);
  EXPECT_EQ(read_field(make_field(1, kNvmlUnsignedLongLong, 1ULL << 40)), 1ULL << 40);
  EXPECT_EQ(read_field(make_field(1, kNvmlSignedInt, 9)), 9u);
  EXPECT_EQ(read_field(make_field(1, kNvmlSignedLongLong, 10)), 10u);
}

TEST(FieldValuesTest, LeavesOutWhatIsNotToldOrMakesNoSense) {
  EXPECT_EQ(read_field(make_field(1, kNvmlUnsignedInt, 7, kNvmlNotSupported)), std::nullopt);
  EXPECT_EQ(read_field(make_field(1, kNvmlSignedLongLong, ~0ULL)), std::nullopt);
  EXPECT_EQ(read_field(make_field(1, 77, 7)), std::nullopt);
  EXPECT_EQ(find_field({}, 1), std::nullopt);
}

TEST(FieldValuesTest, FindsTheNumbersUnderWhichADriverHasItsDurations) {
  const auto old_row = make_row(kFieldSwThermalNsOld, kNvmlUnsignedLongLong);
  const auto new_row = make_row(kFieldSwThermalNsNew, kNvmlUnsignedLongLong);
  const auto no_new = make_row(kFieldSwThermalNsNew, kNvmlUnsignedLongLong, kNvmlNotSupported);

  EXPECT_EQ(find_thermal_fields(join(old_row, no_new)), kFieldSwThermalNsOld);
  EXPECT_EQ(find_thermal_fields(new_row), kFieldSwThermalNsNew);
  EXPECT_EQ(find_thermal_fields(no_new), 0u);
}

TEST(FieldValuesTest, DoesNotTakeTheSwitchesOfPowerSmoothingForDurations) {
  const auto switches = make_row(kFieldSwThermalNsOld, kNvmlUnsignedInt);
  const auto new_row = make_row(kFieldSwThermalNsNew, kNvmlUnsignedLongLong);

  EXPECT_EQ(find_thermal_fields(join(switches, new_row)), kFieldSwThermalNsNew);
  EXPECT_EQ(find_thermal_fields(switches), 0u);
}

TEST(FieldValuesTest, BelievesNeitherWhereBothLookLikeDurations) {
  EXPECT_EQ(find_thermal_fields(join(make_row(kFieldSwThermalNsOld, kNvmlUnsignedLongLong),
                                     make_row(kFieldSwThermalNsNew, kNvmlUnsignedLongLong))),
            0u);
}

}  // namespace
}  // namespace gpuperf
