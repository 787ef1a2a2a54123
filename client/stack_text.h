#pragma once

#include <google/protobuf/repeated_ptr_field.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "gpuperf/v1/model.pb.h"

namespace gpuperf::client {

using Frames = google::protobuf::RepeatedPtrField<v1::StackFrame>;

// "main+0x33 at /src/train.cpp:12  (/usr/bin/train)", "clamp (inlined) at /src/clamp.h:7": as much
// of the frame as is known.
std::string describe_frame(const v1::StackFrame& frame);

// Takes out, of stacks with frames of Python, the interpreter's machine code. Returns how many.
int fold_interpreter_frames(Frames& frames);

// The `max` innermost ones, of Python where there are some, because they name the program's own
// code: "step at engine.py:12 <- main at serve.py:3"; printable. "no stack" without any.
std::string describe_innermost_frames(const Frames& frames, int max);

// A numbered line for each frame, behind `indent`.
std::string render_frames(const Frames& frames, std::string_view indent);

// The same for the first 8 of them; a line says how many more `call_id` has.
std::string render_innermost_frames(const Frames& frames, std::string_view indent,
                                    uint64_t call_id);

}  // namespace gpuperf::client
