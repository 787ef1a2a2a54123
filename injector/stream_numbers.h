#pragma once

// CUPTI's number of a stream, for threads that are about to launch on it.
//
// The driver gives each stream a number that never comes again (cuStreamGetId, 23 ns), and CUPTI
// another (cuptiGetStreamIdEx, 180 ns): both count up, with a distance that differs (H100, driver
// 580, CUPTI 13.0). So CUPTI is asked once for each of the driver's numbers. It is called on
// threads of the program then, and must not end meanwhile: set_stream_asker(nullptr) waits for
// them.

#include <cupti.h>

#include <cstdint>

namespace gpuperf::injector {

// A stream whose number is not known.
constexpr uint32_t kNoStream = UINT32_MAX;

// Finds the driver's cuStreamGetId (CUDA 12.0) and cuStreamIsCapturing. False: one is missing.
bool set_up_stream_numbers(void* driver);

// What CUPTI is asked by; null = it is not to be asked. What was learned is forgotten, for CUPTI
// numbers anew after its end. Thread: any, one at a time; waits 2 ms at most for those that ask.
using AskStream = decltype(&::cuptiGetStreamIdEx);
void set_stream_asker(AskStream ask);
// A thread is still asking.
bool are_streams_asked();

// Of a stream by its handle; `is_per_thread`: handle 0 is the thread's own default stream. Clears
// `has_work` where the stream is being captured. The thread that is about to use it.
uint32_t find_stream_number(uint64_t handle, bool is_per_thread, bool& has_work);

}  // namespace gpuperf::injector
