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

}  // namespace
}  // namespace gpuperf::client
