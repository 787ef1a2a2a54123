// Rules from descriptions made by hand: each form, each error, each bound.

#include "daemon/unwind/frame_rules.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bpf/frame_entry.h"
#include "daemon/probe/code/frame_memory.h"
#include "tests/unit/probe/elf_builder.h"
#include "tests/unit/unwind/frame_file.h"
#include "tests/unit/unwind/libdw_rules.h"
#include "tests/unit/unwind/rule_text.h"

namespace gpuperf {
namespace {

using namespace frame_file;

constexpr int kPc = 16;

Result<gpuperf_unwind_rule> find_in(const FrameFile& made, uint64_t distance = 0) {
  const Fd fd = elf_builder::make_file(made.build());
  ASSIGN_OR_RETURN(const CodeFile file, CodeFile::open(fd.get()));
  return find_unwind_rule(file, made.function() + distance);
}

struct RuleCase {
  const char* name;
  Bytes program;
  gpuperf_unwind_rule expected;
};

class RuleTest : public testing::TestWithParam<RuleCase> {};

TEST_P(RuleTest, IsRead) {
  const auto rule = find_in({.program = GetParam().program});

  ASSERT_TRUE(rule.ok()) << rule.status();
  EXPECT_EQ(*rule, GetParam().expected);
}

gpuperf_unwind_rule by_sp(int32_t cfa, int16_t bp = 0) {
  return {.kind = GPUPERF_UNWIND_SP, .bp_offset_bytes = bp, .cfa_offset_bytes = cfa};
}
constexpr gpuperf_unwind_rule kUnknown = {.kind = GPUPERF_UNWIND_UNKNOWN};
constexpr gpuperf_unwind_rule kEnd = {.kind = GPUPERF_UNWIND_END};
constexpr gpuperf_unwind_rule kSignal = {.kind = GPUPERF_UNWIND_SIGNAL};

Bytes plt(int push_end) {
  return def_cfa_expression(register_plus(kSp, 8) + register_plus(kPc, 0) +
                            bytes_of({0x3f, 0x1a, 0x30 + push_end, 0x2a, 0x33, 0x24, 0x22}));
}

Bytes repeat(const Bytes& bytes, size_t count) {
  Bytes all;
  for (size_t i = 0; i < count; ++i) all += bytes;
  return all;
}

std::vector<RuleCase> form_cases() {
  return {
      {"OfTheCommonEntry", "", by_sp(8)},
      {"BySp", def_cfa_offset(4096), by_sp(4096)},
      {"BySpWithBpSaved", def_cfa_offset(16) + offset(kBp, 2), by_sp(16, -16)},
      {"ByBp",
       def_cfa(kBp, 16) + offset(kBp, 2),
       {.kind = GPUPERF_UNWIND_BP, .bp_offset_bytes = -16, .cfa_offset_bytes = 16}},
      {"ByMemoryAtBp",
       expression(kBp, register_plus(kBp, 0)) +
           def_cfa_expression(register_plus(kBp, -8) + kDereference),
       {.kind = GPUPERF_UNWIND_BP_MEMORY,
        .bp_at = GPUPERF_UNWIND_BP_AT_BP,
        .cfa_offset_bytes = -8}},
      {"BpNextToBp",
       def_cfa(kBp, 16) + expression(kBp, register_plus(kBp, -1000)),
       {.kind = GPUPERF_UNWIND_BP,
        .bp_at = GPUPERF_UNWIND_BP_AT_BP,
        .bp_offset_bytes = -1000,
        .cfa_offset_bytes = 16}},
      {"Plt", plt(11), {.kind = GPUPERF_UNWIND_PLT, .cfa_offset_bytes = 11}},
      {"PltOfBranchTracking", plt(9), {.kind = GPUPERF_UNWIND_PLT, .cfa_offset_bytes = 9}},
      {"End", undefined(kPc), kEnd},
      {"EndWhateverElseIsSaid", def_cfa(3, 0) + undefined(kBp) + undefined(kPc), kEnd},
      {"BpOfTheSameValue", offset(kBp, 2) + same_value(kBp), by_sp(8)},
      {"OtherRegistersDoNotMatter",
       offset(3, 5) + undefined(12) + in_register(13, 3) + expression(14, "\x96"), by_sp(8)},
      {"LargestBpOffset", bytes_of({0x11, kBp}) + sleb(4096), by_sp(8, -32768)},
  };
}

std::vector<RuleCase> unknown_cases() {
  return {
      {"CfaByAnotherRegister", def_cfa(10, 0), kUnknown},
      {"CfaByAnotherExpression", def_cfa_expression(register_plus(kSp, 8)), kUnknown},
      {"CfaByTheMemoryOfSp", def_cfa_expression(register_plus(kSp, 8) + kDereference), kUnknown},
      {"CfaByALongerExpression",
       def_cfa_expression(register_plus(kBp, 8) + kDereference + kDereference), kUnknown},
      {"CfaByACutExpression", def_cfa_expression("\x76"), kUnknown},
      {"CfaByNoExpression", def_cfa_expression(""), kUnknown},
      {"CfaOfNoPlt", plt(-1), kUnknown},
      {"CfaTooFar", bytes_of({0x0e}) + uleb(uint64_t{1} << 31), kUnknown},
      {"PcInARegister", in_register(kPc, 5), kUnknown},
      {"PcElsewhere", offset(kPc, 2), kUnknown},
      {"PcByAnExpression", expression(kPc, register_plus(kSp, 0)), kUnknown},
      {"PcOfTheSameValue", same_value(kPc), kUnknown},
      {"BpUndefined", undefined(kBp), kUnknown},
      {"BpInARegister", in_register(kBp, 5), kUnknown},
      {"BpByAnotherExpression", expression(kBp, register_plus(kSp, 0)), kUnknown},
      {"BpAsAValue", bytes_of({0x14, kBp, 2}), kUnknown},
      {"BpAsASignedValue", bytes_of({0x15, kBp, 2}), kUnknown},
      {"BpAsTheValueOfAnExpression", bytes_of({0x16, kBp, 2, 0x76, 0}), kUnknown},
      {"BpAtTheCfa", offset(kBp, 0), kUnknown},
      {"BpTooFar", offset(kBp, 4097), kUnknown},
      {"BpTooFarFromBp", expression(kBp, register_plus(kBp, 32768)), kUnknown},
  };
}

std::vector<RuleCase> instruction_cases() {
  return {
      {"Nothing", Bytes(3, '\0') + def_cfa_offset(16), by_sp(16)},
      {"OffsetExtended", bytes_of({0x05, kBp, 2}), by_sp(8, -16)},
      {"OffsetExtendedSigned", bytes_of({0x11, kBp}) + sleb(-2), by_sp(8, 16)},
      {"NegativeOffsetExtended", bytes_of({0x2f, kBp, 2}), by_sp(8, 16)},
      {"Restore", offset(kBp, 2) + restore(kBp), by_sp(8)},
      {"RestoreExtended", undefined(kPc) + bytes_of({0x06, kPc}), by_sp(8)},
      {"RestoresWhatWasRemembered",
       def_cfa_offset(16) + offset(kBp, 2) + remember_state() + def_cfa(10, 0) + restore(kBp) +
           restore_state(),
       by_sp(16, -16)},
      {"RestoresInReverse",
       remember_state() + def_cfa_offset(24) + remember_state() + def_cfa_offset(32) +
           restore_state(),
       by_sp(24)},
      {"RestoresAllThatItRemembers",
       repeat(remember_state() + def_cfa_offset(24), 8) + repeat(restore_state(), 8), by_sp(8)},
      {"CfaRegister",
       def_cfa_offset(16) + def_cfa_register(kBp),
       {.kind = GPUPERF_UNWIND_BP, .cfa_offset_bytes = 16}},
      {"CfaSigned", bytes_of({0x12, kSp}) + sleb(-3), by_sp(24)},
      {"CfaOffsetSigned", bytes_of({0x13}) + sleb(-3), by_sp(24)},
      {"CfaAfterAnExpression", def_cfa_expression("\x96") + def_cfa(kSp, 24), by_sp(24)},
      {"ArgumentsSize", bytes_of({0x2e, 16}) + def_cfa_offset(16), by_sp(16)},
  };
}

const auto kCaseName = [](const auto& rule) { return std::string(rule.param.name); };
INSTANTIATE_TEST_SUITE_P(Forms, RuleTest, testing::ValuesIn(form_cases()), kCaseName);
INSTANTIATE_TEST_SUITE_P(Unknown, RuleTest, testing::ValuesIn(unknown_cases()), kCaseName);
INSTANTIATE_TEST_SUITE_P(Instructions, RuleTest, testing::ValuesIn(instruction_cases()), kCaseName);

struct ErrorCase {
  const char* name;
  FrameFile file;
  absl::StatusCode expected;
};

class RuleErrorTest : public testing::TestWithParam<ErrorCase> {};

TEST_P(RuleErrorTest, IsGiven) {
  EXPECT_EQ(find_in(GetParam().file).status().code(), GetParam().expected);
}

std::vector<ErrorCase> error_cases() {
  constexpr auto kDamaged = absl::StatusCode::kDataLoss;
  return {
      {"UnknownInstruction", {.program = "\x3f"}, absl::StatusCode::kUnimplemented},
      {"InstructionOfAnotherMachine", {.program = "\x2d"}, absl::StatusCode::kUnimplemented},
      {"CutInstruction", {.program = "\x0e"}, kDamaged},
      {"CutExpression", {.program = "\x0f\x05\x76"}, kDamaged},
      {"NumberTooLong", {.program = "\x0e" + Bytes(11, '\xff')}, kDamaged},
      {"RestoresWhatWasNotRemembered", {.program = restore_state()}, kDamaged},
      {"OffsetOfAnExpression",
       {.program = def_cfa_expression("\x96") + def_cfa_offset(8)},
       kDamaged},
      {"OffsetOfNothing", {.common_program = def_cfa_offset(8)}, kDamaged},
      {"RemembersTooMuch",
       {.program = repeat(remember_state(), 9)},
       absl::StatusCode::kResourceExhausted},
      {"TooLong",
       {.program = Bytes(FRAME_MAX_ENTRY_BYTES, '\0')},
       absl::StatusCode::kResourceExhausted},
      {"Version", {.version = 2}, kDamaged},
      {"Augmentation", {.augmentation = "eh"}, kDamaged},
      {"AugmentationOutside", {.augmentation = "zRLLLLLLLL", .common_program = ""}, kDamaged},
      {"PointerEncoding", {.augmentation_data = "\x2b"}, kDamaged},
      {"EntryLength", {.has_table = false, .entries_before = as_bytes(UINT32_MAX)}, kDamaged},
      {"NoEndInTheFile",
       {.has_table = false, .entries_before = as_bytes(uint32_t{0x7fffffff}) + Bytes(4, '\0')},
       absl::StatusCode::kResourceExhausted},
  };
}

INSTANTIATE_TEST_SUITE_P(Errors, RuleErrorTest, testing::ValuesIn(error_cases()), kCaseName);

TEST(FrameRulesTest, FollowsTheCodeFromRowToRow) {
  const FrameFile file{.program = advance(1) + def_cfa_offset(16) + bytes_of({0x02, 0x10}) +
                                  def_cfa_offset(24) + bytes_of({0x03, 0x20, 0}) +
                                  def_cfa_offset(32) + bytes_of({0x04, 0x20, 0, 0, 0}) +
                                  def_cfa_offset(40) + bytes_of({0x1d, 1, 0, 0, 0, 0, 0, 0, 0}) +
                                  def_cfa_offset(48)};

  for (const auto& [distance, cfa] :
       std::vector<std::pair<uint64_t, int32_t>>{{0, 8},
                                                 {1, 16},
                                                 {0x10, 16},
                                                 {0x11, 24},
                                                 {0x30, 24},
                                                 {0x31, 32},
                                                 {0x51, 40},
                                                 {0x52, 48},
                                                 {FrameFile::kFunctionBytes - 1, 48}}) {
    EXPECT_EQ(*find_in(file, distance), by_sp(cfa)) << distance;
  }
}

TEST(FrameRulesTest, FollowsLocationsThatAreSet) {
  FrameFile file{.program = "\x01" + as_bytes(int32_t{0}) + def_cfa_offset(16)};
  // Relative to itself: the program, then what follows up to the function.
  const uint64_t program = file.program_vaddr();
  const auto distance = static_cast<int32_t>(file.function() + 8 - (program + 1));
  file.program = "\x01" + as_bytes(distance) + def_cfa_offset(16);

  EXPECT_EQ(*find_in(file, 7), by_sp(8));
  EXPECT_EQ(*find_in(file, 8), by_sp(16));
}

TEST(FrameRulesTest, DoesNotReadBeyondTheRow) {
  EXPECT_EQ(*find_in({.program = advance(8) + "\x3f"}, 7), by_sp(8));
  EXPECT_FALSE(find_in({.program = advance(8) + "\x3f"}, 8).ok());
}

TEST(FrameRulesTest, GuessesWhereNothingIsDescribed) {
  EXPECT_EQ(*find_in({}, FrameFile::kFunctionBytes), kGuess);
  EXPECT_EQ(*find_in({}, UINT64_MAX), kGuess);
  EXPECT_EQ(*find_in({.has_table = false}, FrameFile::kFunctionBytes), kGuess);
  EXPECT_EQ(*find_in({.has_program_header = false}), kGuess);
}

TEST(FrameRulesTest, KnowsTheSignalTrampolineOnlyAsItIs) {
  const Bytes pc = expression(kPc, register_plus(kSp, 168));
  const Bytes bp = expression(kBp, register_plus(kSp, 120));
  const Bytes sp = def_cfa_expression(register_plus(kSp, 160) + kDereference);
  const auto find = [](const char* augmentation, const Bytes& program) {
    return find_in({.augmentation = augmentation, .program = program}).value();
  };

  EXPECT_EQ(find("zRS", sp + pc + bp), kSignal);
  EXPECT_EQ(find("zRS", pc + bp), kUnknown);
  EXPECT_EQ(find("zRS", sp + pc), kUnknown);
  EXPECT_EQ(find("zRS", sp + bp), kUnknown);
  EXPECT_EQ(find("zRS", sp + pc + expression(kBp, register_plus(kSp, 112))), kUnknown);
  EXPECT_EQ(find("zR", sp + pc + bp), kUnknown);
}

TEST(FrameRulesTest, KnowsNothingOfOtherReturnAddressRegisters) {
  EXPECT_EQ(*find_in({.return_address_register = 15}), kUnknown);
}

TEST(FrameRulesTest, ReadsOtherFormsOfCommonEntries) {
  EXPECT_EQ(*find_in({.version = 3}), by_sp(8));
  EXPECT_EQ(*find_in({.augmentation = "zPLR",
                      .augmentation_data = bytes_of({0x9b, 1, 2, 3, 4, 0xff, 0x1b})}),
            by_sp(8));
  EXPECT_EQ(*find_in({.data_alignment = -4, .common_program = def_cfa(kSp, 8) + offset(kPc, 2)}),
            by_sp(8));
}

// As NVIDIA's libraries have it; elfutils refuses it.
TEST(FrameRulesTest, RestoresInACommonEntryWhatWasSaidNowhere) {
  EXPECT_EQ(*find_in({.common_program =
                          def_cfa(kSp, 8) + offset(kPc, 1) + offset(kBp, 2) + restore(kBp)}),
            by_sp(8));
}

TEST(FrameRulesTest, ScansWhereThereIsNoTable) {
  const Bytes program = def_cfa_offset(64);

  EXPECT_EQ(*find_in({.program = program, .has_table = false}), by_sp(64));
  EXPECT_EQ(*find_in({.program = program, .has_table = false, .has_sections = true}), by_sp(64));
  EXPECT_EQ(*find_in({.program = program, .has_program_header = false, .has_sections = true}),
            by_sp(64));
}

TEST(FrameRulesTest, ScansBeyondOneBlock) {
  const Bytes common = entry(as_bytes(uint32_t{0}) + Bytes(40'000, '\0'));

  EXPECT_EQ(*find_in({.has_table = false, .entries_before = repeat(common, 5)}), by_sp(8));
}

}  // namespace
}  // namespace gpuperf
