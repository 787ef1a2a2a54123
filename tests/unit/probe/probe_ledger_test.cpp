#include "daemon/probe/probe_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

namespace gpuperf {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

class ProbeLedgerTest : public testing::Test {
 protected:
  static ProbeConfig make_config() {
    ProbeConfig config;
    for (const char* symbol : {"cudaMalloc", "cuInit", "_Z3foov"}) {
      config.probes.push_back({.category = "cuda", .function = symbol, .symbol = symbol});
    }
    config.probes.push_back(
        {.category = "cuda", .function = "off", .symbol = "off", .enabled = false});
    return config;
  }
  static std::shared_ptr<const std::vector<Function>> make_functions(const ProbeConfig& config) {
    auto functions = std::make_shared<std::vector<Function>>();
    for (const ProbeSpec& spec : config.probes) {
      functions->push_back({.id = static_cast<uint32_t>(functions->size()),
                            .category = spec.category,
                            .name = spec.function,
                            .symbol = spec.symbol});
    }
    return functions;
  }

  ProbeRow row(size_t index) { return ledger_.make_report({})->probes.at(index); }

  const ProbeConfig config_ = make_config();
  ProbeLedger ledger_{config_, make_functions(config_), "session"};
};

TEST_F(ProbeLedgerTest, HasARowForEveryFunctionFromTheStart) {
  const auto report = ledger_.make_report({});

  ASSERT_THAT(report->probes, SizeIs(4));
  EXPECT_EQ(report->probes[0].state, ProbeState::kWaiting);
  EXPECT_EQ(report->probes[3].state, ProbeState::kDisabled);
  EXPECT_EQ(report->files, 0u);
  EXPECT_EQ(report->mechanism, "session");
}

TEST_F(ProbeLedgerTest, TellsTimedFromEntryOnlyFromFailed) {
  ledger_.note_outcome(1, "/l/libcudart.so",
                       {{.function_id = 0, .offset_bytes = 64}, absl::OkStatus()});
  ledger_.note_outcome(1, "/l/libcudart.so",
                       {{.function_id = 2, .timed = false}, absl::OkStatus()});
  ledger_.note_outcome(2, "/l/libcuda.so", {{.function_id = 1}, absl::InternalError("attach: no")});
  const auto report = ledger_.make_report({});

  EXPECT_EQ(report->probes[0], (ProbeRow{.category = "cuda",
                                         .function = "cudaMalloc",
                                         .symbol = "cudaMalloc",
                                         .state = ProbeState::kAttached,
                                         .library = "/l/libcudart.so",
                                         .offset_bytes = 64,
                                         .mechanism = "session"}));
  EXPECT_EQ(report->probes[2].state, ProbeState::kEntryOnly);
  EXPECT_THAT(report->probes[2].reason, HasSubstr("exception"));
  EXPECT_EQ(report->probes[1].state, ProbeState::kFailed);
  EXPECT_EQ(report->probes[1].reason, "attach: no");
  EXPECT_EQ(report->files, 1u);
}

TEST_F(ProbeLedgerTest, CallsASymbolMissingOnlyWhereItsOwnLibraryWasSeen) {
  ledger_.note_missing("/l/libcudart.so.13", 1);
  EXPECT_EQ(row(1).state, ProbeState::kWaiting);
  EXPECT_EQ(row(1).reason, "no process maps libcuda yet; not in libcudart.so.13");

  ledger_.note_missing("/l/libcuda.so.1", 1);
  EXPECT_EQ(row(1).state, ProbeState::kSymbolMissing);
  EXPECT_EQ(row(1).reason, "not in libcuda.so.1, libcudart.so.13");
}

TEST_F(ProbeLedgerTest, FailsAndForgetsOneFileAlone) {
  for (const int file : {1, 2}) {
    ledger_.note_outcome(file, "/l/" + std::to_string(file), {{.function_id = 0}, {}});
  }

  ledger_.fail_file(1, "written");
  const auto failed = ledger_.make_report({});
  ledger_.forget_file(1);
  const auto forgotten = ledger_.make_report({});

  ASSERT_THAT(failed->probes, SizeIs(5));
  EXPECT_EQ(failed->probes[0].reason, "written");
  EXPECT_EQ(failed->probes[0].mechanism, "");
  EXPECT_EQ(failed->probes[1].state, ProbeState::kAttached);
  EXPECT_EQ(failed->files, 1u);
  EXPECT_THAT(forgotten->probes, SizeIs(4));
}

TEST_F(ProbeLedgerTest, NamesAFewOfManyFiles) {
  for (int i = 0; i < 7; ++i) ledger_.note_missing("/l/lib" + std::to_string(i) + ".so", 3);
  for (int i = 0; i < 7; ++i) ledger_.note_missing("/l/lib" + std::to_string(i) + ".so", 2);

  EXPECT_EQ(row(2).reason, "not in lib0.so, lib1.so, lib2.so, lib3.so, … 3 more");
}

}  // namespace
}  // namespace gpuperf
