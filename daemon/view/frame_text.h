#pragma once

// Single frames as text, and what kind of thing each is.

#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/model/capture.h"
#include "daemon/view/call_path.h"

namespace gpuperf {

// `name` as an element of a path: valid UTF-8, ':' for ';', a space for each control character.
std::string to_path_text(std::string_view name);

// Machine code by its symbol, "[libfoo.so+0x1c0]" without one, "[0x7f0012340000]" without either;
// "forward (model.py)" for Python.
std::string make_frame_text(const StackFrame& frame, bool with_lines);

// What the CUDA runtime and driver call among themselves: such frames tell no one anything where
// they are innermost.
bool is_cuda_runtime(const StackFrame& frame);
FrameKind get_frame_kind(const StackFrame& frame);
FrameKind get_function_kind(const CaptureFunction& function);

// Whether its source lies where Python keeps what others wrote.
bool is_of_a_package(const StackFrame& frame);
// Whether it is a line of PyTorch or of Python's own library.
bool is_of_framework(const StackFrame& frame);
// Whether its source is of a package, module or file: "transformers" and "models.llama" by parts of
// the path, with or without ".py"; "/opt/app/*" as a pattern of the whole path.
bool is_of_module(const StackFrame& frame, std::string_view module);

// Whether it is the Python interpreter's own machine code.
bool is_of_interpreter(const StackFrame& frame);

// " m=1 n=1024 k=3072", with " batch=8" where there are several; empty = no shape.
std::string make_shape_text(const std::array<uint64_t, 4>& shape);

// Whether the frame's function is the probed one of that display name: the whole name, or its last
// components ("linear" is "at::_ops::linear::call(…)", too), whatever version ("cublasSgemm" is
// "cublasSgemm_v2").
bool is_frame_of(const StackFrame& frame, std::string_view function_name);

}  // namespace gpuperf
