#include "daemon/probe/attach/probe_report.h"
#include "tests/unit/matchers.h"

namespace gpuperf {
namespace {

class ProbeReportTest : public testing::Test {
 protected:
  static ProbeConfig make_config() {
    ProbeConfig config;
    for (const char* symbol : {"cudaMalloc", "cuInit", "cudnn*"}) {
      config.probes.push_back({.category = "cuda", .function = symbol, .symbol = symbol});
    }
    config.probes.push_back(
        {.category = "cuda", .function = "off", .symbol = "off", .enabled = false});
    return config;
  }

  std::shared_ptr<const ProbeReport> make(std::vector<FileReport> files) {
    return make_probe_report({.config = config_,
                              .functions = functions_,
                              .mechanism = "session",
                              .default_threshold_ns = 5,
                              .costs = {.at_return = {{.total_ns = 700}, {.total_ns = 4000}},
                                        .at_exits = {},
                                        .at_entry = {}},
                              .files = std::move(files)});
  }

  const ProbeConfig config_ = make_config();
  const FunctionList functions_ = {
      {.id = 0, .category = "cuda", .name = "cudaMalloc", .slow_threshold_ns = 9},
      {.id = 1, .category = "cuda", .name = "cudnnAdd"},
      {.id = 2, .category = "cuda", .name = "cudnnMul"},
  };
};

TEST_F(ProbeReportTest, HasARowForEveryEntryFromTheStart) {
  const auto report = make({});

  ASSERT_THAT(report->probes, SizeIs(4));
  EXPECT_EQ(report->probes[0].state, ProbeState::kWaiting);
  EXPECT_EQ(report->probes[0].slow_threshold_ns, 5u);
  EXPECT_EQ(report->probes[3].state, ProbeState::kDisabled);
  EXPECT_EQ(report->files, 0u);
  EXPECT_EQ(report->mechanism, "session");
}

TEST_F(ProbeReportTest, ShowsWhatIsProbedHowAndAtWhatCost) {
  const std::vector<FileProbe> probes = {
      {.spec = 0,
       .function_id = 0,
       .symbol = "cudaMalloc",
       .point = {.function_id = 0, .offset_bytes = 64, .exits = {{.offset_bytes = 80}}},
       .hit_cost = HitCost::kStepped,
       .state = ProbeState::kAttached}};

  const auto report = make({{"/l/libcudart.so", probes, {}}});

  EXPECT_EQ(report->probes[0], (ProbeRow{.function_id = 0,
                                         .category = "cuda",
                                         .function = "cudaMalloc",
                                         .symbol = "cudaMalloc",
                                         .state = ProbeState::kAttached,
                                         .library = "/l/libcudart.so",
                                         .offset_bytes = 64,
                                         .mechanism = "session",
                                         .slow_threshold_ns = 9,
                                         .hit_cost = HitCost::kStepped,
                                         .exit_sites = 1,
                                         .cost_ns = 4000}));
  EXPECT_EQ(report->files, 1u);
}

TEST_F(ProbeReportTest, GivesEachMatchOfAWildcardARow) {
  const std::vector<FileProbe> probes = {
      {.spec = 2, .function_id = 1, .symbol = "cudnnAdd", .state = ProbeState::kAttached},
      {.spec = 2,
       .function_id = 2,
       .symbol = "cudnnMul",
       .state = ProbeState::kSuspended,
       .reason = "too dear"}};

  const auto report = make({{"/l/libcudnn.so", probes, {}}});

  ASSERT_THAT(report->probes, SizeIs(5));
  EXPECT_EQ(report->probes[2].function, "cudnnAdd");
  EXPECT_EQ(report->probes[3].function, "cudnnMul");
  EXPECT_EQ(report->probes[3].reason, "too dear");
  EXPECT_EQ(report->probes[3].mechanism, "session");  // now and then
}

TEST_F(ProbeReportTest, CountsNoFileWithoutAProbe) {
  const std::vector<FileProbe> probes = {
      {.spec = 0, .function_id = 0, .state = ProbeState::kFailed, .reason = "written"}};

  const auto report = make({{"/l/libcudart.so", probes, {}}});

  EXPECT_EQ(report->files, 0u);
  EXPECT_EQ(report->probes[0].reason, "written");
}

TEST_F(ProbeReportTest, CallsASymbolMissingOnlyWhereItsOwnLibraryWasSeen) {
  const auto elsewhere = make({{"/l/libcudart.so.13", {}, {{1, ""}}}});
  const auto at_home =
      make({{"/l/libcudart.so.13", {}, {{1, ""}}}, {"/l/libcuda.so.1", {}, {{1, ""}}}});

  EXPECT_EQ(elsewhere->probes[1].state, ProbeState::kWaiting);
  EXPECT_EQ(elsewhere->probes[1].reason,
            "no process has loaded libcuda yet; not in libcudart.so.13");
  EXPECT_EQ(at_home->probes[1].state, ProbeState::kSymbolMissing);
  EXPECT_EQ(at_home->probes[1].reason, "not in libcuda.so.1, libcudart.so.13");
}

TEST_F(ProbeReportTest, SaysWhyAFileCouldNotBeSearched) {
  const auto report = make({{"/l/libcudart.so.13", {}, {{0, "truncated"}}}});

  EXPECT_EQ(report->probes[0].state, ProbeState::kFailed);
  EXPECT_EQ(report->probes[0].reason, "truncated");
  EXPECT_EQ(report->probes[0].library, "/l/libcudart.so.13");
}

TEST_F(ProbeReportTest, NamesAFewOfManyFiles) {
  std::vector<std::string> names;
  for (int i = 0; i < 7; ++i) names.push_back("/l/libcudart" + std::to_string(i) + ".so");
  std::vector<FileReport> files;
  for (const std::string& name : names) files.push_back({name, {}, {{0, ""}}});

  EXPECT_EQ(make(files)->probes[0].reason,
            "not in libcudart0.so, libcudart1.so, libcudart2.so, libcudart3.so, … 3 more");
}

TEST_F(ProbeReportTest, ExplainsThatNothingCanBeProbed) {
  const ProbeReport report = explain_no_probes(config_, "no BTF");

  EXPECT_EQ(report.probes[0].state, ProbeState::kFailed);
  EXPECT_EQ(report.probes[0].reason, "no BTF");
  EXPECT_EQ(report.probes[3].state, ProbeState::kDisabled);
}

}  // namespace
}  // namespace gpuperf
