#include "daemon/unwind/python_walk.h"

#include <gtest/gtest.h>

#include <vector>

#include "daemon/unwind/python_layouts.h"
#include "tests/unit/unwind/fake_memory.h"

namespace gpuperf {
namespace {

constexpr uint64_t kRuntimeAt = 0x1000;
constexpr uint64_t kInterpreter = 0x2000;
constexpr uint64_t kThread = 0x3000;
constexpr uint64_t kFrames = 0x10000;  // 0x100 apart
constexpr uint64_t kCodes = 0x20000;   // likewise
constexpr uint64_t kCFrames = 0x30000;
constexpr uint64_t kPointer = 0x7f0000;  // of the thread looked for
constexpr uint8_t kByPython = 0;
constexpr uint8_t kByC = 3;

uint64_t frame_at(size_t index) { return kFrames + index * 0x100; }
uint64_t code_at(size_t index) { return kCodes + index * 0x100; }

// An interpreter with one thread, whose frames a test makes, innermost first.
class PythonWalkTest : public testing::Test {
 protected:
  void start(uint16_t version) {
    python_ = {.address = kRuntimeAt, .layout = *find_python_layout(version)};
    const gpuperf_python_layout& layout = python_.layout;
    put(kRuntimeAt + layout.runtime_interpreters_head, kInterpreter);
    put(kInterpreter + layout.interpreter_next, 0);
    put(kInterpreter + layout.interpreter_threads_head, kThread);
    put(kThread + layout.thread_next, 0);
    put(kThread + layout.thread_id, kPointer);
    put(kThread + layout.thread_frame,
        layout.form == GPUPERF_PYTHON_CFRAMES ? kCFrames : frame_at(0));
    put(kCFrames + layout.cframe_current_frame, frame_at(0));
  }
  void put(uint64_t address, uint64_t word) { memory_.put(address, word); }
  void put_frame(size_t index, uint8_t owner, uint64_t previous) {
    const gpuperf_python_layout& layout = python_.layout;
    put(frame_at(index) + layout.frame_previous, previous);
    put(frame_at(index) + layout.frame_code, code_at(index));
    memory_.put(frame_at(index) + layout.frame_owner, owner);
    memory_.put<uint32_t>(code_at(index) + layout.code_first_line, 10 + index);
    put(frame_at(index) + layout.frame_instruction, code_at(index) + layout.code_instructions + 6);
  }
  PythonFrame make_frame(size_t index, uint64_t entry_sp) {
    return {.code = code_at(index),
            .entry_sp = entry_sp,
            .instruction_bytes = 6,
            .first_line = 10 + static_cast<uint32_t>(index)};
  }
  std::vector<PythonFrame> walk() { return walk_python(python_, kPointer, memory_.reader()); }

  FakeMemory memory_;
  PythonRuntime python_;
};

TEST_F(PythonWalkTest, FollowsFrameObjects) {
  start(0x030a);
  const gpuperf_python_layout& layout = python_.layout;
  for (const size_t i : {0, 1}) {
    put(frame_at(i) + layout.frame_previous, i == 0 ? frame_at(1) : 0);
    put(frame_at(i) + layout.frame_code, code_at(i));
    memory_.put<int32_t>(frame_at(i) + layout.frame_instruction, 3);
    memory_.put<uint32_t>(code_at(i) + layout.code_first_line, 10 + i);
  }

  EXPECT_EQ(walk(), (std::vector{make_frame(0, 0), make_frame(1, 0)}));
}

TEST_F(PythonWalkTest, FindsTheCFramesOf311) {
  start(0x030b);
  put_frame(0, kByPython, frame_at(1));
  put_frame(1, 1, frame_at(2));  // is_entry
  put_frame(2, 1, 0);
  put(kCFrames + python_.layout.cframe_previous, kCFrames + 0x1000);
  put(kCFrames + 0x1000 + python_.layout.cframe_previous, 0);

  EXPECT_EQ(walk(), (std::vector{make_frame(0, 0), make_frame(1, kCFrames),
                                 make_frame(2, kCFrames + 0x1000)}));
}

TEST_F(PythonWalkTest, FindsTheCFramesOf312) {
  start(0x030c);
  put_frame(0, kByPython, frame_at(1));
  put_frame(1, kByPython, frame_at(2));
  put_frame(2, kByC, frame_at(3));
  put_frame(3, kByPython, frame_at(4));
  put_frame(4, kByC, 0);

  EXPECT_EQ(walk(), (std::vector{make_frame(0, 0), make_frame(1, frame_at(2)),
                                 make_frame(3, frame_at(4))}));
}

TEST_F(PythonWalkTest, LeavesOutTheInterpretersOwnCode) {
  start(0x030c);
  put_frame(0, kByPython, frame_at(1));
  put_frame(1, kByPython, frame_at(2));
  memory_.put<uint32_t>(code_at(1) + python_.layout.code_first_line, 0);
  put_frame(2, kByPython, 0);

  EXPECT_EQ(walk(), (std::vector{make_frame(0, 0), make_frame(2, 0)}));
}

TEST_F(PythonWalkTest, FindsTheThreadInAnyInterpreter) {
  start(0x030c);
  put_frame(0, kByPython, 0);
  constexpr uint64_t kOther = 0x50000;
  constexpr uint64_t kOtherThread = 0x60000;
  const gpuperf_python_layout& layout = python_.layout;
  put(kRuntimeAt + layout.runtime_interpreters_head, kOther);
  put(kOther + layout.interpreter_next, kInterpreter);
  put(kOther + layout.interpreter_threads_head, kOtherThread);
  put(kOtherThread + layout.thread_next, 0);
  put(kOtherThread + layout.thread_id, kPointer + 1);

  EXPECT_EQ(walk(), (std::vector{make_frame(0, 0)}));
  EXPECT_EQ(walk_python(python_, kPointer + 2, memory_.reader()), std::vector<PythonFrame>());
}

TEST_F(PythonWalkTest, IsEmptyBeforePythonStarts) {
  start(0x030c);
  put(kRuntimeAt + python_.layout.runtime_interpreters_head, 0);

  EXPECT_TRUE(walk().empty());
}

TEST_F(PythonWalkTest, KeepsWhatCameBeforeMemoryThatCannotBeRead) {
  start(0x030c);
  put_frame(0, kByPython, frame_at(1));
  memory_.put(frame_at(1) + python_.layout.frame_owner, kByPython);

  EXPECT_EQ(walk(), (std::vector{make_frame(0, 0)}));
}

TEST_F(PythonWalkTest, EndsWhereFramesOrThreadsLeadInACircle) {
  start(0x030c);
  put_frame(0, kByPython, frame_at(0));
  EXPECT_EQ(walk().size(), size_t{GPUPERF_PYTHON_FRAMES});

  put_frame(0, kByC, frame_at(0));
  EXPECT_TRUE(walk().empty());

  put(kThread + python_.layout.thread_next, kThread);
  EXPECT_TRUE(walk_python(python_, kPointer + 1, memory_.reader()).empty());
}

}  // namespace
}  // namespace gpuperf
