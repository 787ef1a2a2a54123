#pragma once

#include "daemon/model/capture.h"

namespace gpuperf::testing {

// A small capture with one of everything: two processes, one in a pod and one with a hostile name;
// two GPUs; nested calls, a GEMM, copies, a set, a graph with its nodes and one as a whole, waits,
// a gap; launches that are ambiguous, without a hit and without work, and one before the window;
// work that nobody launched, that overlaps on its stream, and that begins before its call.
//
// Times are microseconds after the window's begin, so that every expected number can be added up
// from the source.
Capture make_example_capture();

}  // namespace gpuperf::testing
