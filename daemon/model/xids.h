#pragma once

// Meanings of the error codes ("XID") that NVIDIA's driver gives out for a GPU.

#include <chrono>
#include <cstdint>
#include <span>
#include <string_view>

namespace gpuperf {

enum class XidWeight {
  kNotice,       // the GPU goes on as before
  kApplication,  // a program did something wrong, or was ended; the GPU is well
  kGpu,          // the GPU, its memory, its links or its firmware need attention
};

struct XidRow {
  uint32_t xid;
  XidWeight weight;
  std::string_view meaning;
  std::string_view advice;
};

// Ordered by code.
std::span<const XidRow> xid_rows();
// What is known of a code that has no row, too.
XidRow get_xid(uint32_t xid);

// How long a code speaks about the GPU as it is now. Programs come and go within minutes; a GPU in
// trouble stays so until it is reset or replaced, and a day covers who looks in the morning.
constexpr std::chrono::nanoseconds get_xid_weight_period(XidWeight weight) {
  switch (weight) {
    case XidWeight::kNotice:
      return std::chrono::nanoseconds(0);
    case XidWeight::kApplication:
      return std::chrono::minutes(10);
    case XidWeight::kGpu:
      return std::chrono::hours(24);
  }
  return std::chrono::nanoseconds(0);  // only reached with a value outside the enum
}

}  // namespace gpuperf
