#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "bpf/records.h"
#include "injector/session_abi.h"
#include "session_abi_layout.h"

namespace {

// Structure, field, offset, size.
using Row = std::tuple<std::string, std::string, size_t, size_t>;

std::vector<Row> get_written_layout() {
  return {
#define X(structure, field, offset, size) {#structure, #field, offset, size},
#include "session_abi_layout.inc"
#undef X
  };
}

std::vector<Row> get_layout_in_cpp() {
  return {
#define X(structure, field, offset, size) \
  {#structure, #field, offsetof(structure, field), sizeof(structure::field)},
#include "session_abi_layout.inc"
#undef X
  };
}

std::vector<Row> get_layout_in_c() {
  std::vector<Row> rows;
  for (size_t i = 0; i < kLayoutInCRows; ++i) {
    const field_layout& row = kLayoutInC[i];
    rows.emplace_back(row.structure, row.field, row.offset_bytes, row.field_bytes);
  }
  return rows;
}

// Sizes of all structs of the contract.
std::map<std::string, size_t> get_struct_sizes() {
  return {
#define X(structure, field, offset, size) {#structure, sizeof(structure)},
#include "session_abi_layout.inc"
#undef X
  };
}

TEST(SessionAbiTest, LayoutIsTheWrittenOneInCpp) {
  EXPECT_EQ(get_layout_in_cpp(), get_written_layout());
}

TEST(SessionAbiTest, CompilersOfCAndCppAgree) { EXPECT_EQ(get_layout_in_c(), get_layout_in_cpp()); }

TEST(SessionAbiTest, StructsHaveNoHiddenPaddingAndKeepRecordsAligned) {
  std::map<std::string, size_t> end;  // of the last field so far
  for (const auto& [structure, field, offset, size] : get_written_layout()) {
    EXPECT_EQ(offset, end[structure]) << structure << "." << field << " leaves a gap";
    end[structure] = offset + size;
  }

  EXPECT_EQ(end, get_struct_sizes());
  for (const auto& [structure, size] : end) EXPECT_EQ(size % 8, 0u) << structure;
}

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
