#include "daemon/model/display_text.h"

#include <gtest/gtest.h>

namespace gpuperf {
namespace {

using namespace std::string_view_literals;

TEST(DisplayTextTest, KeepsValidText) {
  for (const std::string_view text : {"", "python3", "a\nb\"c\\", "\u00e9\u20ac\U0001F600"}) {
    EXPECT_EQ(to_valid_utf8(text), text);
  }
}

TEST(DisplayTextTest, ReplacesEachByteThatIsNoUtf8) {
  const struct {
    std::string_view bytes;
    std::string_view expected;
  } cases[] = {
      {"a\xFFz", "a\uFFFDz"},                            // never valid
      {"\x80", "\uFFFD"},                                // continuation without a lead
      {"\xC0\xAF", "\uFFFD\uFFFD"},                      // overlong "/"
      {"\xE0\x80\xAF", "\uFFFD\uFFFD\uFFFD"},            // overlong, three bytes
      {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},            // surrogate
      {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},  // past U+10FFFF
      {"\xE2\x82", "\uFFFD\uFFFD"},                      // cut short, as a 15-byte comm cuts
      {"\xE2\x82z", "\uFFFD\uFFFDz"},                    // cut short, then text
      {"a\0b"sv,
       "a\uFFFD"
       "b"},
  };
  for (const auto& [bytes, expected] : cases) EXPECT_EQ(to_valid_utf8(bytes), expected);
}

TEST(DisplayTextTest, FormatsFramesByWhatIsKnown) {
  EXPECT_EQ(format_frame({.symbol = "f(int)", .module = "/l.so", .offset_bytes = 28}),
            "f(int)+0x1c");
  EXPECT_EQ(format_frame({.module = "/l.so", .offset_bytes = 448}), "/l.so+0x1c0");
  EXPECT_EQ(format_frame({.address = 0x7f0012340000}), "0x7f0012340000");
}

TEST(DisplayTextTest, FormatsFramesWithTheirSource) {
  StackFrame frame{.symbol = "f(int)", .module = "/l.so", .offset_bytes = 28};
  frame.file = "/src/train.cpp";
  EXPECT_EQ(format_frame(frame), "f(int)+0x1c");
  frame.line = 12;
  EXPECT_EQ(format_frame(frame), "f(int)+0x1c at train.cpp:12");
  frame.file = "train.h";
  frame.is_inlined = true;
  EXPECT_EQ(format_frame(frame), "f(int) (inlined) at train.h:12");
  EXPECT_EQ(
      format_frame({.symbol = "fit", .file = "t.py", .line = 3, .kind = StackFrameKind::kPython}),
      "fit at t.py:3");
}

TEST(DisplayTextTest, FormatsAStatusFromTheLowerHalfOfTheRegister) {
  SlowCall call{.status = StatusKind::kCudaRuntime};
  call.event.return_value = 0xdeadbeef'00000002;

  EXPECT_EQ(format_return_value(call), "cudaErrorMemoryAllocation");
}

TEST(DisplayTextTest, LeavesAReturnValueOutThatWasNotSeen) {
  EXPECT_EQ(format_return_value(SlowCall{.status = StatusKind::kCudaRuntime}), "");
}

TEST(DisplayTextTest, FormatsOtherReturnValuesAsRegisters) {
  SlowCall call{.status = StatusKind::kNone};
  call.event.return_value = 0x7f0012340000;

  EXPECT_EQ(format_return_value(call), "0x7f0012340000");
}

}  // namespace
}  // namespace gpuperf
