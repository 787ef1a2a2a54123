#include <gtest/gtest.h>

#include <cstring>

#include "injector/session_abi.h"
#include "layouts.h"

namespace {

TEST(SessionAbiTest, LongestNameFitsTheLengthOfARecordAndOfAMessage) {
  const size_t longest = sizeof(gpuperf_session_name) + GPUPERF_NAME_BYTES_MAX;

  EXPECT_LE(longest, 0xffffu);
  EXPECT_LE(sizeof(gpuperf_batch) + longest, GPUPERF_MESSAGE_BYTES_MAX);
}

TEST(SessionAbiTest, KernelRecordIsTheseBytes) {
  const gpuperf_session_kernel kernel{.record = {.kind = GPUPERF_SESSION_KERNEL,
                                                 .length_bytes = sizeof(gpuperf_session_kernel),
                                                 .id = 0x01020304},
                                      .start_unix_ns = 0x1112131415161718,
                                      .duration_ns = 0x2122232425262728,
                                      .name_id = 0x31323334,
                                      .shape_id = 0x41424344,
                                      .place_id = 0x51525354,
                                      .graph_id = 0x61626364,
                                      .node_id = 0x71727374,
                                      .flags = GPUPERF_KERNEL_FROM_GRAPH};

  const unsigned char expected[] = {
      5,    0,    48,   0,    4,    3,    2,    1,     // kind, length, correlation
      0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,  // start
      0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21,  // duration
      0x34, 0x33, 0x32, 0x31, 0x44, 0x43, 0x42, 0x41,  // name, shape
      0x54, 0x53, 0x52, 0x51, 0x64, 0x63, 0x62, 0x61,  // place, graph
      0x74, 0x73, 0x72, 0x71, 1,    0,    0,    0,     // node, flags
  };
  static_assert(sizeof(expected) == sizeof(kernel));
  EXPECT_EQ(std::memcmp(&kernel, expected, sizeof(expected)), 0);
}

}  // namespace
