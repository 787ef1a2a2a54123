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

}  // namespace
}  // namespace gpuperf::client
