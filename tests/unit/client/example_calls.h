#pragma once

#include "gpuperf/v1/model.pb.h"

namespace gpuperf::client {

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kStartNs = 1'777'630'245'123'456'789;  // 2026-05-01T10:10:45Z

// Slow calls as the daemon reports them, with everything it may know of one.

// Number 12: returned after 412 ms, most of them in a futex that another process woke.
v1::SlowCall make_futex_call();
// Number 13: has waited in ioctl of a GPU for 31.2 s, and still does.
v1::SlowCall make_in_flight_call();

void add_frame(google::protobuf::RepeatedPtrField<v1::StackFrame>* stack, const char* symbol,
               const char* module, uint64_t offset_bytes);

}  // namespace gpuperf::client
