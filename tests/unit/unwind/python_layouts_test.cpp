#include "daemon/unwind/python_layouts.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

#include "tests/unit/unwind/python_offsets.h"

namespace gpuperf {
namespace {

bool is_same(const gpuperf_python_layout& a, const gpuperf_python_layout& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

TEST(PythonLayoutsTest, HasOneForEachVersionThatDoesNotDescribeItself) {
  for (uint16_t version = PYTHON_OLDEST; version < PYTHON_FIRST_SELF_DESCRIBING; ++version) {
    const auto layout = find_python_layout(version);
    ASSERT_TRUE(layout) << version;
    EXPECT_EQ(layout->version, version);
    EXPECT_EQ(layout->code_qualified_name != 0, version >= 0x030b);
    EXPECT_EQ(layout->instruction_is_pointer != 0, layout->instruction_unit_bytes == 0);
  }
  EXPECT_FALSE(find_python_layout(0x0307));
  EXPECT_FALSE(find_python_layout(0x030d));
}

TEST(PythonLayoutsTest, DecodesTheTableOf313) {
  const gpuperf_python_layout expected{.version = 0x030d,
                                       .form = GPUPERF_PYTHON_CURRENT_FRAME,
                                       .first_c_owner = 3,
                                       .instruction_is_pointer = 1,
                                       .runtime_interpreters_head = 632,
                                       .interpreter_next = 7264,
                                       .interpreter_threads_head = 7344,
                                       .thread_next = 8,
                                       .thread_id = 152,
                                       .thread_frame = 72,
                                       .frame_previous = 8,
                                       .frame_code = 0,
                                       .frame_instruction = 56,
                                       .frame_owner = 70,
                                       .code_instructions = 200,
                                       .code_first_line = 68,
                                       .code_filename = 112,
                                       .code_name = 120,
                                       .code_qualified_name = 128,
                                       .code_lines = 136,
                                       .text_length = 16,
                                       .text_state = 32,
                                       .text_ascii = 40,
                                       .text_compact = 56,
                                       .bytes_length = 16,
                                       .bytes_data = 32};

  const auto layout = decode_python_debug_offsets(make_python_313_offsets());

  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_TRUE(is_same(*layout, expected));
}

TEST(PythonLayoutsTest, TakesAFreeThreadedBuildOf313Only) {
  PythonDebugOffsets offsets = make_python_313_offsets();
  offsets[2] = 1;
  EXPECT_EQ(decode_python_debug_offsets(offsets)->is_free_threaded, 1);

  offsets[1] = 0x030e00f0;
  const Status status = decode_python_debug_offsets(offsets).status();
  EXPECT_TRUE(absl::IsUnimplemented(status));
  EXPECT_EQ(status.message(), "Python 3.14, free-threaded: supported in 3.13 only");
}

TEST(PythonLayoutsTest, RefusesAVersionItDoesNotKnow) {
  PythonDebugOffsets offsets = make_python_313_offsets();
  offsets[1] = 0x031000a1;

  const Status status = decode_python_debug_offsets(offsets).status();

  EXPECT_TRUE(absl::IsUnimplemented(status));
  EXPECT_EQ(status.message(), "Python 3.16: newer than those whose frames are known");
}

TEST(PythonLayoutsTest, RefusesWhatCannotBe) {
  // Word, value.
  const std::vector<std::pair<size_t, uint64_t>> changes = {
      {0, 0},   {1, 0},       {1, 0x030c00f0}, {1, uint64_t{1} << 32},
      {2, 2},   {5, 283'369}, {5, UINT64_MAX}, {3, UINT64_MAX},
      {6, 0},   {8, 65'536},  {33, 88},        {39, 205},
      {70, 64}, {67, 40},     {67, 48},        {67, 1'000'000}};
  for (const auto& [word, value] : changes) {
    PythonDebugOffsets offsets = make_python_313_offsets();
    offsets[word] = value;

    EXPECT_TRUE(absl::IsDataLoss(decode_python_debug_offsets(offsets).status())) << word;
  }
}

}  // namespace
}  // namespace gpuperf
