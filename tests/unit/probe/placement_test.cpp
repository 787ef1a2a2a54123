// The rules, each on a function of samples/code_sample.S, which says beside it what is right.

#include "daemon/probe/code/placement.h"

#include <unistd.h>

#include <array>
#include <stdexcept>

#include "bpf/records.h"
#include "tests/unit/matchers.h"
#include "tests/unit/probe/code_sample.h"

namespace gpuperf {

void PrintTo(const Placement& placement, std::ostream* out) {
  *out << "at " << placement.offset_bytes << ", cost " << static_cast<int>(placement.hit_cost)
       << ", thunk to " << placement.thunk_target_offset_bytes.value_or(0);
}

void PrintTo(const ExitSite& exit, std::ostream* out) {
  *out << exit.offset_bytes << " when " << int{exit.condition} << " cost "
       << static_cast<int>(exit.hit_cost);
}

namespace {

CodeSample& sample() {
  static CodeSample sample(CODE_SAMPLE);
  return sample;
}

Result<Placement> place(const std::string& name) {
  return place_entry(sample().code(), sample().get(name));
}

struct PlaceCase {
  const char* name;
  HitCost hit_cost;
};

// Where nothing better stands in the sample, at the beginning.
constexpr PlaceCase kPlaces[] = {
    {"push_first", HitCost::kEmulated},
    {"behind_endbr64", HitCost::kEmulated},
    {"behind_compare", HitCost::kEmulated},
    {"behind_loads", HitCost::kEmulated},
    {"behind_refused_nop", HitCost::kEmulated},
    {"stack_first", HitCost::kStepped},
    {"endbr64_then_stack", HitCost::kStepped},
    {"writes_edi", HitCost::kStepped},
    {"writes_esi", HitCost::kStepped},
    {"writes_edx", HitCost::kStepped},
    {"writes_ecx", HitCost::kStepped},
    {"writes_r8d", HitCost::kStepped},
    {"writes_r9d", HitCost::kStepped},
    {"writes_half_of_rdx", HitCost::kStepped},
    {"writes_rcx_unseen", HitCost::kStepped},
    {"writes_frame_pointer", HitCost::kStepped},
    {"writes_memory", HitCost::kStepped},
    {"swaps_memory", HitCost::kStepped},
    {"enters_kernel", HitCost::kStepped},
    {"loop_to_the_probe", HitCost::kStepped},
    {"loop_into_the_skipped", HitCost::kStepped},
    {"loop_behind_the_probe", HitCost::kEmulated},
    {"switch_into_the_skipped", HitCost::kStepped},
    {"cold_part_into_the_skipped", HitCost::kStepped},
    {"push_in_unknown_body", HitCost::kEmulated},
    {"jump_in_unknown_body", HitCost::kStepped},
    {"load_in_unknown_body", HitCost::kStepped},
    {"cut_off", HitCost::kStepped},
    {"into_an_instruction", HitCost::kStepped},
    {"unsized_push", HitCost::kEmulated},
    {"unsized_jump", HitCost::kStepped},
    {"unsized_load", HitCost::kStepped},
};

class PlaceEntryTest : public testing::TestWithParam<PlaceCase> {};

TEST_P(PlaceEntryTest, FindsTheCheapestSafeAddress) {
  const std::string name = GetParam().name;
  const auto marked = sample().find("probe_" + name);
  const Placement expected{
      .offset_bytes = marked ? marked->file_offset_bytes : sample().get(name).file_offset_bytes,
      .hit_cost = GetParam().hit_cost};

  const auto placed = place(name);

  ASSERT_TRUE(placed.ok()) << placed.status();
  EXPECT_EQ(*placed, expected);
}

INSTANTIATE_TEST_SUITE_P(Rules, PlaceEntryTest, testing::ValuesIn(kPlaces),
                         [](const auto& rule) { return std::string(rule.param.name); });

TEST(PlaceEntryTest, SaysWhatTheKernelRefuses) {
  EXPECT_EQ(place("lock_first").status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(place("trap_first").status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(place("data_first").status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(PlaceEntryTest, RefusesAnAddressOutsideTheCode) {
  const auto placed = place_entry(sample().code(), {.file_offset_bytes = uint64_t{1} << 40});

  EXPECT_EQ(placed.status().code(), absl::StatusCode::kOutOfRange);
}

TEST(PlaceEntryTest, SeesWhereAThunkLeads) {
  const uint64_t target = sample().get("push_first").file_offset_bytes;
  const uint64_t local_target = sample().get("push_first_local").file_offset_bytes;

  EXPECT_EQ(place("thunk")->thunk_target_offset_bytes, local_target);
  EXPECT_EQ(place("thunk_behind_endbr64")->thunk_target_offset_bytes, local_target);
  EXPECT_EQ(place("thunk_behind_endbr64")->offset_bytes,
            sample().get("probe_thunk_behind_endbr64").file_offset_bytes);
  EXPECT_EQ(place("thunk_through_plt")->thunk_target_offset_bytes, target);
  EXPECT_EQ(place("thunk_through_got")->thunk_target_offset_bytes, target);
  EXPECT_EQ(place("thunk_to_elsewhere")->thunk_target_offset_bytes, std::nullopt);
  EXPECT_EQ(place("no_thunk")->thunk_target_offset_bytes, std::nullopt);
  EXPECT_EQ(place("tail_calls")->thunk_target_offset_bytes, std::nullopt);
}

TEST(PlaceEntryTest, KeepsClearOfTheExits) {
  const FunctionSymbol function = sample().get("behind_compare");
  const uint64_t jump = sample().get("probe_behind_compare").file_offset_bytes;
  const ExitSite exits[] = {{.offset_bytes = jump, .condition = 5}};

  const auto placed = place_entry(sample().code(), function, exits);

  ASSERT_TRUE(placed.ok()) << placed.status();
  EXPECT_EQ(placed->offset_bytes, function.file_offset_bytes);
}

bool is_return(uint64_t offset_bytes) {
  std::array<uint8_t, 3> code{};
  if (pread(sample().fd(), code.data(), code.size(), static_cast<off_t>(offset_bytes)) < 1) {
    throw std::runtime_error("the sample ends early");
  }
  const auto is_ret = [](uint8_t opcode) { return opcode == 0xc3 || opcode == 0xc2; };
  const bool is_prefix = code[0] == 0xf2 || code[0] == 0xf3;  // bnd, rep
  return is_ret(code[0]) || (is_prefix && is_ret(code[1]));
}

// Addresses of exit_NAME_1, exit_NAME_2 and so on, by rising address.
std::vector<ExitSite> read_truth(const std::string& name) {
  std::vector<ExitSite> exits;
  for (int number = 1;; ++number) {
    const std::string plain = "exit_" + name + "_" + std::to_string(number);
    std::optional<FunctionSymbol> found = sample().find(plain);
    ExitSite exit;
    for (int condition = 0; condition < 16 && !found; ++condition) {
      found = sample().find(plain + "_cc" + std::to_string(condition));
      exit.condition = static_cast<uint8_t>(1 + condition);
    }
    if (!found) break;
    exit.offset_bytes = found->file_offset_bytes;
    if (is_return(exit.offset_bytes)) exit.condition = GPUPERF_CONDITION_RETURN;
    exits.push_back(exit);
  }
  std::ranges::sort(exits, {}, &ExitSite::offset_bytes);
  return exits;
}

// The jumps are emulated, those through pointers and the returns are not.
std::vector<ExitSite> without_costs(std::vector<ExitSite> exits) {
  for (ExitSite& exit : exits) exit.hit_cost = HitCost::kUnknown;
  return exits;
}

class FindExitsTest : public testing::TestWithParam<const char*> {};

TEST_P(FindExitsTest, FindsEveryWayOut) {
  const auto found = find_exits(sample().code(), sample().get(GetParam()));

  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(without_costs(*found), read_truth(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Rules, FindExitsTest,
                         testing::Values("returns", "tail_calls", "pointer_calls", "switches",
                                         "cold_part", "again_from_the_beginning", "landing_pad",
                                         "never_returns"),
                         [](const auto& rule) { return std::string(rule.param); });

TEST(FindExitsTest, KnowsWhatEachCosts) {
  const auto found = find_exits(sample().code(), sample().get("tail_calls"));
  const auto returns = find_exits(sample().code(), sample().get("returns"));

  ASSERT_TRUE(found.ok() && returns.ok());
  for (const ExitSite& exit : *found) EXPECT_EQ(exit.hit_cost, HitCost::kEmulated);
  for (const ExitSite& exit : *returns) EXPECT_EQ(exit.hit_cost, HitCost::kStepped);
}

TEST(FindExitsTest, NeedsNoSymbolsForPartsSplitOff) {
  CodeSample stripped(CODE_SAMPLE_STRIPPED);

  for (const char* name : {"returns", "cold_part", "landing_pad", "switches"}) {
    const auto found = find_exits(stripped.code(), sample().get(name));
    ASSERT_TRUE(found.ok()) << name << ": " << found.status();
    EXPECT_EQ(without_costs(*found), read_truth(name)) << name;
  }
}

// Without its symbol it may as well be a part of the function: what leaves it leaves both.
TEST(FindExitsTest, FollowsAJumpToAFunctionWithoutSymbol) {
  CodeSample stripped(CODE_SAMPLE_STRIPPED);
  const FunctionSymbol local = sample().get("push_first_local");

  const auto found = find_exits(stripped.code(), sample().get("tail_calls"));

  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->size(), 3u);
  EXPECT_EQ(found->front().offset_bytes, local.file_offset_bytes + local.size_bytes - 1);
}

struct Refusal {
  const char* name;
  const char* reason;
};

constexpr Refusal kRefusals[] = {
    {"push_in_unknown_body", "no known instruction at +0x5"},
    {"cut_off", "no known instruction at +0x4"},
    {"into_an_instruction", "jump into an instruction at +0x7"},
    {"unsized_push", "its size is not known"},
    {"check_is_passed_by", "indirect jump at +0x18"},
    {"nothing_checked", "indirect jump at +0xf"},
    {"two_tables", "indirect jump at +0x1f"},
    {"table_leads_astray", "jump into an instruction at +0x15"},
    {"computed_jump", "indirect jump at +0x5"},
    {"label_in_a_register", "indirect jump at +0xc"},
    {"pointer_from_an_exception", "indirect jump at +0x9"},
    {"case_into_a_pointer_jump", "indirect jump at +0x1b"},
    {"returns_at_once", "leaves with its first instruction"},
    {"thunk", "leaves with its first instruction"},
    {"runs_on", "runs on past its end at +0x6"},
    {"leaves_on_a_count", "leaves on a count at +0x2"},
    {"leaves_for_undescribed_code", "jumps to code without unwind information"},
    {"leaves_for_data", "jumps to code without unwind information"},
    {"many_returns", "more than 512 exits"},
    {"too_long", "longer than 256 KiB"},
};

class RefuseExitsTest : public testing::TestWithParam<Refusal> {};

TEST_P(RefuseExitsTest, SaysWhy) {
  const auto found = find_exits(sample().code(), sample().get(GetParam().name));

  ASSERT_FALSE(found.ok());
  EXPECT_THAT(std::string(found.status().message()), HasSubstr(GetParam().reason));
}

INSTANTIATE_TEST_SUITE_P(Rules, RefuseExitsTest, testing::ValuesIn(kRefusals),
                         [](const auto& rule) { return std::string(rule.param.name); });

}  // namespace
}  // namespace gpuperf
