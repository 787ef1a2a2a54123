#pragma once

// CUPTI's stream number, for threads that are about to launch on the stream.
//
// The driver gives each stream a number that it never reuses (cuStreamGetId, 23 ns). CUPTI assigns
// another (cuptiGetStreamIdEx, 180 ns). Both count up, but their difference varies (H100, driver
// 580, CUPTI 13.0). So CUPTI is queried once per driver number. The query runs on the program's
// threads, and CUPTI must not be finalized meanwhile: set_stream_asker(nullptr) waits for them.

#include <cupti.h>

#include <cstdint>

namespace gpuperf::injector {

// Unknown stream number.
constexpr uint32_t kNoStream = UINT32_MAX;

// Resolves the driver's cuStreamGetId (CUDA 12.0) and cuStreamIsCapturing. False: one is missing.
bool set_up_stream_numbers(void* driver);

// Sets the function that queries CUPTI; null = do not query. Clears the cache, because CUPTI
// renumbers streams after it is finalized. Thread: any, one at a time; waits at most 2 ms for
// queries in flight.
using AskStream = decltype(&::cuptiGetStreamIdEx);
void set_stream_asker(AskStream ask);
// A query is still in flight.
bool are_streams_asked();

// The number of a stream, by handle. `is_per_thread`: handle 0 is the thread's own default stream.
// Clears `has_work` if the stream is being captured. Call on the thread that is about to use it.
uint32_t find_stream_number(uint64_t handle, bool is_per_thread, bool& has_work);

}  // namespace gpuperf::injector
