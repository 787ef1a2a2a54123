// What the kernel side tells of operators, on tensors of this very program.

#include <gmock/gmock.h>

#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <vector>

#include "daemon/probe/attach/file_layouts.h"
#include "tests/kernel/probe_fixture.h"
#include "tests/kernel/probe_targets.h"
#include "tests/unit/probe/elf_builder.h"

namespace gpuperf {
namespace {

// A tensor, and how it is told: nothing lies where another has it.
struct Tensor {
  uint64_t pad = 0;
  uint64_t data = 0;
  int64_t dimensions[4] = {};
  uint64_t strides[4] = {};
  const Tensor* sources[3] = {};
  char name[64] = {};
  uint32_t operation = 0;
};
constexpr gpuperf_tensor_layout kTensorLayout = {
    .dimensions_at = offsetof(Tensor, dimensions),
    .strides_at = offsetof(Tensor, strides),
    .operation_at = offsetof(Tensor, operation),
    .sources_at = offsetof(Tensor, sources),
    .data_at = offsetof(Tensor, data),
    .name_at = offsetof(Tensor, name),
    .routed_operation = 30,
};
struct OperatorParams {
  int32_t thread = 0;
  int32_t threads = 2;
};

class OperatorProbeTest : public FunctionProbeTest {
 protected:
  void SetUp() override {
    FunctionProbeTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    auto plan = std::make_shared<ArgumentPlan>();
    plan->step_role = StepRole::kOperator;
    plan->report = CallReport::kStep;
    programs_->set_function({.id = 0, .arguments = plan}, true);
    ASSERT_TRUE(programs_->set_tensor_layout(3, kTensorLayout).ok());
  }
  void attach_with(uint8_t layout) {
    attach(1, {{.offset_bytes = find_offset(reinterpret_cast<const void*>(target_operator)),
                .timing = Timing::kNone,
                .tensor_layout = layout}});
  }
  static void begin_operator(const OperatorParams& params, const Tensor& tensor) {
    (void)target_operator(&params, &tensor);
  }
};

TEST_P(OperatorProbeTest, TheFirstThreadOfAPoolSaysWhichOperatorBegins) {
  attach_with(3);
  Tensor tensor{.operation = 29};
  strcpy(tensor.name, "a name that is longer than fits into a record");

  begin_operator({0, 2}, tensor);
  begin_operator({1, 2}, tensor);

  const auto records = drain<gpuperf_operator_call>("report_ring");
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].header.kind, uint32_t{GPUPERF_RECORD_OPERATOR_CALL});
  EXPECT_EQ(records[0].header.length_bytes, sizeof(gpuperf_operator_call));
  EXPECT_EQ(records[0].pid, static_cast<uint32_t>(getpid()));
  EXPECT_EQ(records[0].tid, static_cast<uint32_t>(gettid()));
  EXPECT_NE(records[0].start_mono_ns, 0u);
  EXPECT_EQ(records[0].layout, 3u);
  EXPECT_EQ(records[0].operation, 29u);
  EXPECT_STREQ(records[0].name, "a name that is longer than fits");
  EXPECT_EQ(count(0), (Counted{.calls = 2, .untimed = 2}));
}

TEST_P(OperatorProbeTest, ReadsTheExpertsOfTheFirstTokensByTheirStride) {
  attach_with(3);
  constexpr int64_t kTokens = 70, kExperts = 8;
  std::vector<int32_t> sorted(kTokens * kExperts);
  for (size_t i = 0; i < sorted.size(); ++i) sorted[i] = static_cast<int32_t>(i);
  Tensor ids{.data = reinterpret_cast<uint64_t>(sorted.data()),
             .dimensions = {2, kTokens, 1, 1},
             .strides = {4, kExperts * 4}};
  const Tensor matrices{.dimensions = {64, 128, kExperts, 1}};
  Tensor tensor{.sources = {&matrices, nullptr, &ids}, .operation = 30};
  strcpy(tensor.name, "ffn_moe_down-12");

  begin_operator({}, tensor);
  strcpy(tensor.name, "ffn_moe_up-12");
  begin_operator({}, tensor);

  const auto records = drain("report_ring");
  ASSERT_EQ(records.size(), 3u);
  const auto routing = as<gpuperf_routing>(records[0]);
  EXPECT_EQ(routing.header.kind, uint32_t{GPUPERF_RECORD_ROUTING});
  EXPECT_STREQ(routing.name, "ffn_moe_down-12");
  EXPECT_EQ(routing.pid, static_cast<uint32_t>(getpid()));
  EXPECT_EQ(routing.tokens, 70u);
  EXPECT_EQ(routing.experts_per_token, 2u);
  EXPECT_EQ(routing.expert_count, uint32_t{kExperts});
  EXPECT_EQ(routing.read_tokens, uint32_t{GPUPERF_ROUTED_TOKENS});
  for (int32_t token = 0; token < GPUPERF_ROUTED_TOKENS; ++token) {
    EXPECT_EQ(routing.experts[token][0], token * kExperts);
    EXPECT_EQ(routing.experts[token][1], token * kExperts + 1);
  }
  EXPECT_STREQ(as<gpuperf_operator_call>(records[1]).name, "ffn_moe_down-12");
  EXPECT_STREQ(as<gpuperf_operator_call>(records[2]).name, "ffn_moe_up-12");
}

TEST_P(OperatorProbeTest, ReadsNothingOfAnUnknownLayoutAndCountsAllTheSame) {
  attach_with(0);
  begin_operator({}, {});
  EXPECT_TRUE(drain("report_ring").empty());
  EXPECT_EQ(count(0).calls, 1u);
  EXPECT_EQ(programs_->losses()[GPUPERF_LOSS_OPERATOR_UNREAD], 0u);
}

TEST_P(OperatorProbeTest, CountsWhatCannotBeReadOrIsSomethingElse) {
  attach_with(3);
  const auto unreadable = reinterpret_cast<const void*>(0x10);
  const OperatorParams good;
  const Tensor tensor;
  (void)target_operator(unreadable, &tensor);
  (void)target_operator(&good, unreadable);
  begin_operator({5, 2}, tensor);
  begin_operator({-1, 2}, tensor);
  EXPECT_EQ(programs_->losses()[GPUPERF_LOSS_OPERATOR_UNREAD], 4u);
  EXPECT_TRUE(drain("report_ring").empty());
  begin_operator(good, tensor);
  EXPECT_EQ(drain<gpuperf_operator_call>("report_ring").at(0).lost, 4u);

  Tensor routed{.operation = 30};  // without sources
  strcpy(routed.name, "ffn_moe_down-1");
  begin_operator(good, routed);
  Tensor ids{.data = 0x10, .dimensions = {2, 1}, .strides = {4, 8}};
  routed.sources[2] = &ids;
  routed.sources[0] = &ids;
  begin_operator(good, routed);
  ids.dimensions[0] = GPUPERF_ROUTED_EXPERTS + 1;
  begin_operator(good, routed);
  EXPECT_EQ(programs_->losses()[GPUPERF_LOSS_OPERATOR_UNREAD], 7u);
  EXPECT_EQ(drain<gpuperf_operator_call>("report_ring").size(), 3u);
}

TEST_P(OperatorProbeTest, LeavesRoomForOtherReportsAndSaysThatSomeAreMissing) {
  attach_with(3);
  auto plan = std::make_shared<ArgumentPlan>();
  plan->report = CallReport::kMemory;
  probe(2, target_plain, {.arguments = plan});
  constexpr uint64_t kOperators = 30'000, kOthers = 1'000;

  for (uint64_t i = 0; i < kOperators; ++i) begin_operator({}, {});
  for (uint64_t i = 0; i < kOthers; ++i) (void)target_plain(0);

  const uint64_t lost = programs_->losses()[GPUPERF_LOSS_OPERATORS_FULL];
  EXPECT_GT(lost, 0u);
  EXPECT_EQ(programs_->losses()[GPUPERF_LOSS_REPORT_RING_FULL], 0u);
  EXPECT_EQ(drain("report_ring").size(), kOperators - lost + kOthers);

  begin_operator({}, {});
  const auto next = drain<gpuperf_operator_call>("report_ring");
  ASSERT_EQ(next.size(), 1u);
  EXPECT_EQ(next[0].lost, lost);
}

// A library with tensors, in which one operation has this name of three letters.
Fd make_build(const std::string& name) {
  std::ifstream file(TENSOR_SAMPLE, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), {});
  const size_t at = bytes.find(std::string("GLU\0", 4));
  EXPECT_NE(at, std::string::npos);
  return elf_builder::make_file(bytes.replace(at, 3, name));
}

TEST_P(OperatorProbeTest, AFileHasTheLayoutOfTheBuildBesideIt) {
  TensorLayouts layouts;
  FileLayouts files(layouts, *programs_);
  const FileLayouts::Folder folder{5, "/app/"};
  EXPECT_THAT(files.learn(1, folder, self_.get(), 0), testing::IsEmpty());
  EXPECT_EQ(files.find(1).number, 0u);
  EXPECT_THAT(files.find(1).fault, testing::HasSubstr("no libggml-base.so of its folder"));

  EXPECT_THAT(files.learn(2, folder, make_build("GLU").get(), 0), testing::ElementsAre(1));
  EXPECT_EQ(files.find(1).number, 1u);
  EXPECT_EQ(layouts.get_operation(1, 4), "GLU");
  EXPECT_EQ(layouts.get_operation(1, 5), "operation 5");

  (void)files.learn(3, {6, "/app/"}, self_.get(), 0);
  EXPECT_EQ(files.find(3).number, 0u);  // of another device

  (void)files.learn(4, folder, make_build("GLV").get(), 0);  // of another container, perhaps
  EXPECT_EQ(files.find(4).number, 2u);
  EXPECT_EQ(files.find(1).number, 0u);
  EXPECT_THAT(files.find(1).fault, testing::HasSubstr("several builds"));
  files.forget({4});
  EXPECT_EQ(files.find(1).number, 1u);
}

TEST_P(OperatorProbeTest, NoUserTakesTheRoomOfAllLayouts) {
  TensorLayouts layouts;
  FileLayouts files(layouts, *programs_);
  int id = 0;
  const auto learn = [&](uint32_t owner_uid) {
    const std::string name = std::string("X") + char('A' + id / 26) + char('A' + id % 26);
    ++id;
    (void)files.learn(id, {5, "/" + name + "/"}, make_build(name).get(), owner_uid);
    return files.find(id);
  };
  for (size_t i = 0; i < FileLayouts::kMaxLayoutsOfUser; ++i) EXPECT_NE(learn(7).number, 0u);
  EXPECT_EQ(learn(7).number, 0u);
  EXPECT_THAT(learn(7).fault, testing::HasSubstr("too many different builds"));

  while (learn(0).number != 0) EXPECT_LE(id, 100);
  EXPECT_EQ(id, GPUPERF_TENSOR_LAYOUTS + 3);  // the two refused, and this one
  (void)files.learn(200, {5, "/known/"}, make_build("XAA").get(), 7);
  EXPECT_EQ(files.find(200).number, 1u);  // one that is known needs no room
}

INSTANTIATE_TEST_SUITE_P(Mechanisms, OperatorProbeTest, testing::ValuesIn(kMechanisms),
                         [](const auto& info) {
                           return std::string(get_mechanism_name(info.param));
                         });

}  // namespace
}  // namespace gpuperf
