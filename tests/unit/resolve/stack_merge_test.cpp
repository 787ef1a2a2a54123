#include "daemon/resolve/stack_merge.h"

#include <string>

#include "tests/unit/matchers.h"

namespace gpuperf {
namespace {

// One native frame of 100 bytes each, named n0, n1 and so on, from address 1000 up.
struct Native {
  std::vector<NativeFrame> frames;
  std::vector<FrameGroup> groups;
};
Native make_native(size_t count) {
  Native native;
  for (size_t i = 0; i < count; ++i) {
    native.frames.push_back({.pc = 0x5000 + 16 * i, .sp = 1000 + 100 * i});
    native.groups.push_back({{.symbol = "n" + std::to_string(i)}});
  }
  return native;
}

std::vector<StackFrame> make_names(const std::vector<PythonFrame>& python) {
  std::vector<StackFrame> names;
  for (size_t i = 0; i < python.size(); ++i) names.push_back({.symbol = "p" + std::to_string(i)});
  return names;
}

std::vector<std::string> merge(const Native& native, const std::vector<PythonFrame>& python,
                               const std::optional<EvaluationCode>& code = std::nullopt) {
  std::vector<std::string> symbols;
  for (const StackFrame& frame :
       merge_stacks(native.frames, native.groups, python, make_names(python), code)) {
    symbols.push_back(frame.symbol);
  }
  return symbols;
}

TEST(StackMerge, LeavesANativeStackAsItIs) {
  EXPECT_THAT(merge(make_native(3), {}), ElementsAre("n0", "n1", "n2"));
}

TEST(StackMerge, PutsEachEvaluationInThePlaceOfItsCFrame) {
  const std::vector<PythonFrame> python = {
      {.code = 1}, {.code = 2, .entry_sp = 1150}, {.code = 3, .entry_sp = 1300}};

  EXPECT_THAT(merge(make_native(5), python), ElementsAre("n0", "p0", "p1", "n2", "p2", "n4"));
}

TEST(StackMerge, TakesAnEntryAtAFramesEdgeForThatFrames) {
  EXPECT_THAT(merge(make_native(3), {{.code = 1, .entry_sp = 1100}}),
              ElementsAre("n0", "p0", "n2"));
}

TEST(StackMerge, FindsPlacesOfSeveralInterpretersInAnyOrder) {
  const std::vector<PythonFrame> python = {{.code = 1, .entry_sp = 1310},
                                           {.code = 2, .entry_sp = 1110}};

  EXPECT_THAT(merge(make_native(5), python), ElementsAre("n0", "p1", "n2", "p0", "n4"));
}

TEST(StackMerge, KeepsFunctionsInlinedIntoANativeFrame) {
  Native native = make_native(2);
  native.groups[0] = {{.symbol = "inner", .is_inlined = true}, {.symbol = "outer"}};

  EXPECT_THAT(merge(native, {}), ElementsAre("inner", "outer", "n1"));
}

TEST(StackMerge, AppendsPythonBeyondAnIncompleteNativeStack) {
  const std::vector<PythonFrame> python = {
      {.code = 1, .entry_sp = 1050}, {.code = 2, .entry_sp = 9000}, {.code = 3}};

  EXPECT_THAT(merge(make_native(2), python), ElementsAre("p0", "n1", "p1", "p2"));
}

TEST(StackMerge, GivesOldPythonsOneFrameForEachOfTheEvaluationFunction) {
  // n1 and n3 return into it, n3 exactly at its end: the call before belongs to it.
  const EvaluationCode code{.begin = 0x500f, .end = 0x5030};
  Native native = make_native(5);
  native.frames[2].pc = 0x9000;
  const std::vector<PythonFrame> python = {{.code = 1}, {.code = 2}};

  EXPECT_THAT(merge(native, python, code), ElementsAre("n0", "p0", "n2", "p1", "n4"));
}

TEST(StackMerge, TakesAFrameInterruptedBehindTheEvaluationFunctionForNone) {
  const EvaluationCode code{.begin = 0x4f00, .end = 0x5010};
  Native native = make_native(2);
  native.frames[1].is_exact = true;

  EXPECT_THAT(merge(native, {{.code = 1}, {.code = 2}}, code), ElementsAre("p0", "n1", "p1"));
}

}  // namespace
}  // namespace gpuperf
