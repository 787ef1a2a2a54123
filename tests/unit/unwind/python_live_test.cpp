#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "daemon/resolve/python_names.h"
#include "daemon/unwind/python_walk.h"
#include "tests/unit/unwind/python_process.h"

// Frames of real Pythons, walked from outside while their threads stand still in C code, against
// what Python says of the same frames itself.

namespace gpuperf {

// For GoogleTest.
void PrintTo(const PythonCommand& command, std::ostream* out) { *out << command.command; }

void PrintTo(const ReportedFrame& frame, std::ostream* out) {
  *out << frame.function << " at " << frame.file << ":" << frame.line;
}

namespace {

using Clock = std::chrono::steady_clock;

double count_us(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

// Names of the script's functions that only C code calls.
bool is_called_by_c(const std::string& function) {
  return function == "callback_by_c" || function.ends_with("_by_c.<locals>.<lambda>");
}

class PythonLiveTest : public testing::TestWithParam<PythonCommand> {
 protected:
  void SetUp() override {
    Result<std::vector<ReportedThread>> report = process_.read_report();
    ASSERT_TRUE(report.ok()) << report.status();
    threads_ = *std::move(report);
    const Result<PythonRuntime> runtime = process_.find_runtime();
    ASSERT_TRUE(runtime.ok()) << runtime.status();
    runtime_ = *runtime;
  }

  std::vector<PythonFrame> walk(const ReportedThread& thread) const {
    return walk_python(runtime_, thread.ident, read_);
  }

  std::vector<ReportedFrame> name(const std::vector<PythonFrame>& frames) {
    std::vector<ReportedFrame> named;
    for (const PythonFrame& frame : frames) {
      const auto found = names_.find({.pid = process_.pid()}, runtime_.layout, frame, read_);
      named.push_back(found ? ReportedFrame{found->function, found->file, found->line}
                            : ReportedFrame{.function = "(no name)"});
    }
    return named;
  }

  PythonProcess process_{GetParam()};
  const ReadMemory read_ = make_direct_reader(process_.pid());
  std::vector<ReportedThread> threads_;
  PythonRuntime runtime_;
  PythonNames names_;
};

TEST_P(PythonLiveTest, NamesEveryFrameAsPythonDoes) {
  ASSERT_GT(threads_.size(), 30u);
  for (const ReportedThread& thread : threads_) {
    EXPECT_EQ(name(walk(thread)), thread.frames) << thread.name;
  }
}

// Each C evaluation's frames come together, their C frame further out than that of those before.
TEST_P(PythonLiveTest, KnowsTheCFramesOfEvaluations) {
  if (runtime_.layout.form == GPUPERF_PYTHON_FRAME_OBJECTS) {
    GTEST_SKIP() << "before 3.11 frames do not say";
  }
  for (const ReportedThread& thread : threads_) {
    const std::vector<PythonFrame> frames = walk(thread);
    ASSERT_FALSE(frames.empty()) << thread.name;
    EXPECT_NE(frames.back().entry_sp, 0u) << thread.name;
    uint64_t last = 0;
    for (size_t i = 0; i < frames.size(); ++i) {
      if (frames[i].entry_sp == 0) {
        EXPECT_FALSE(is_called_by_c(thread.frames.at(i).function)) << thread.name << " " << i;
        continue;
      }
      EXPECT_GT(frames[i].entry_sp, last) << thread.name << " " << i;
      last = frames[i].entry_sp;
    }
  }
}

TEST_P(PythonLiveTest, KnowsThatPythonCallsPythonWithoutACFrame) {
  if (runtime_.layout.form == GPUPERF_PYTHON_FRAME_OBJECTS) {
    GTEST_SKIP() << "before 3.11 frames do not say";
  }
  const auto recursion = std::ranges::find(threads_, "recursion", &ReportedThread::name);
  ASSERT_NE(recursion, threads_.end());

  const std::vector<PythonFrame> frames = walk(*recursion);

  for (size_t i = 1; i <= 40; ++i) EXPECT_EQ(frames.at(i).entry_sp, 0u) << i;
}

TEST_P(PythonLiveTest, FindsTheEvaluationFunctionWhereFramesDoNotSayTheirs) {
  if (runtime_.layout.form != GPUPERF_PYTHON_FRAME_OBJECTS) {
    GTEST_SKIP() << "since 3.11 frames say so";
  }
  EXPECT_GT(runtime_.eval_begin, 0u);
  EXPECT_GT(runtime_.eval_end, runtime_.eval_begin + 4096);
}

TEST_P(PythonLiveTest, AnswersForAProcessThatHasGone) {
  const std::vector<PythonFrame> frames = walk(threads_.front());
  const std::vector<ReportedFrame> before = name(frames);
  std::vector<ReportedFrame> after;

  for (const PythonFrame& frame : frames) {
    const auto found = names_.find({.pid = process_.pid()}, runtime_.layout, frame,
                                   [](uint64_t, std::span<std::byte>) { return false; });
    ASSERT_TRUE(found);
    after.push_back({found->function, found->file, found->line});
  }

  EXPECT_EQ(after, before);
}

TEST_P(PythonLiveTest, PrintsWhatItCosts) {
  size_t count = 0;
  Clock::duration walked{};
  Clock::duration cold{};
  Clock::duration warm{};
  for (const ReportedThread& thread : threads_) {
    const auto start = Clock::now();
    const std::vector<PythonFrame> frames = walk(thread);
    const auto after_walk = Clock::now();
    PythonNames fresh;
    for (const PythonFrame& frame : frames) {
      ASSERT_TRUE(fresh.find({.pid = 1}, runtime_.layout, frame, read_));
    }
    const auto after_cold = Clock::now();
    for (const PythonFrame& frame : frames) {
      ASSERT_TRUE(fresh.find({.pid = 1}, runtime_.layout, frame, read_));
    }
    walked += after_walk - start;
    cold += after_cold - after_walk;
    warm += Clock::now() - after_cold;
    count += frames.size();
  }
  std::cout << GetParam().name << ": " << count << " frames, us per frame: walk "
            << count_us(walked) / count << ", name first " << count_us(cold) / count << ", again "
            << count_us(warm) / count << "\n";
}

INSTANTIATE_TEST_SUITE_P(Pythons, PythonLiveTest, testing::ValuesIn(list_python_commands()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace gpuperf
