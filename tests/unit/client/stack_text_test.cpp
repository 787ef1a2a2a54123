#include "client/stack_text.h"

#include <gtest/gtest.h>

namespace gpuperf::client {
namespace {

TEST(StackTextTest, DescribesFramesWithWhatIsKnown) {
  v1::StackFrame frame;
  frame.set_address(0x7f00);
  EXPECT_EQ(describe_frame(frame), "0x7f00");
  frame.set_offset_bytes(0x33);
  frame.set_module("/bin/train");
  EXPECT_EQ(describe_frame(frame), "0x7f00  /bin/train+0x33");
  frame.set_symbol("main");
  EXPECT_EQ(describe_frame(frame), "main+0x33  (/bin/train)");
  frame.set_module("");
  EXPECT_EQ(describe_frame(frame), "main+0x33");
}

TEST(StackTextTest, DescribesWhereTheSourceOfAFrameIs) {
  v1::StackFrame frame;
  frame.set_symbol("clamp");
  frame.set_offset_bytes(0x33);
  frame.set_file("/src/clamp.h");
  frame.set_line(7);
  EXPECT_EQ(describe_frame(frame), "clamp+0x33 at /src/clamp.h:7");
  frame.set_module("/bin/train");
  EXPECT_EQ(describe_frame(frame), "clamp+0x33 at /src/clamp.h:7  (/bin/train)");
  frame.set_inlined(true);
  EXPECT_EQ(describe_frame(frame), "clamp (inlined) at /src/clamp.h:7  (/bin/train)");
}

TEST(StackTextTest, DescribesFramesOfPythonByTheirLine) {
  v1::StackFrame frame;
  frame.set_kind("python");
  frame.set_symbol("fit");
  frame.set_file("/src/train.py");
  frame.set_line(3);
  EXPECT_EQ(describe_frame(frame), "fit at /src/train.py:3");
}

TEST(StackTextTest, FoldsTheInterpreterBetweenFramesOfPython) {
  Frames frames;
  const auto add = [&](const char* symbol, const char* module, const char* kind) {
    v1::StackFrame& frame = *frames.Add();
    frame.set_symbol(symbol);
    frame.set_module(module);
    frame.set_kind(kind);
  };
  add("at::linear", "/torch/libtorch_cpu.so", "native");
  add("PyObject_Call", "/usr/bin/python3.12", "native");

  EXPECT_EQ(fold_interpreter_frames(frames), 0);
  add("forward", "", "python");
  add("_PyEval_Vector", "/usr/lib/libpython3.12.so.1.0", "native");
  add("main", "/usr/bin/train", "native");

  EXPECT_EQ(fold_interpreter_frames(frames), 2);
  EXPECT_EQ(render_frames(frames, ""),
            "  0  at::linear+0x0  (/torch/libtorch_cpu.so)\n  1  forward\n"
            "  2  main+0x0  (/usr/bin/train)\n");
}

}  // namespace
}  // namespace gpuperf::client
