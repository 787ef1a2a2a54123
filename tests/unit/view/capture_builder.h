#pragma once

// Small captures, put together by what their parts are called.

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "daemon/model/capture.h"
#include "injector/session_abi.h"

namespace gpuperf::testing {

class CaptureBuilder {
 public:
  CaptureBuilder() {
    made.start_mono_ns = 1'000'000;
    made.duration_ns = 1'000'000'000;
    made.processes = {{.process = {42, 1}, .owner = {.comm = "train"}}};
    made.threads = {{.process = 0, .tid = 43, .comm = "main loop"}};
    made.devices = {{.uuid = {1}, .number = 0}};
    made.streams = {{.process = 0, .device = 0, .context = 1, .stream = 7}};
  }

  static StackFrame native(std::string symbol, std::string module = "/usr/bin/train") {
    return {.symbol = std::move(symbol),
            .module = std::move(module),
            .file = "/src/train.cpp",
            .line = 7};
  }
  static StackFrame python(std::string symbol, std::string file = "/app/model.py",
                           uint32_t line = 42) {
    return {.symbol = std::move(symbol),
            .file = std::move(file),
            .line = line,
            .kind = StackFrameKind::kPython};
  }

  uint32_t add_stack(std::vector<StackFrame> frames, StackEnd end = StackEnd::kComplete) {
    CaptureStack stack = {.end = end};
    for (StackFrame& frame : frames) {
      stack.frames.push_back(static_cast<uint32_t>(made.frames.size()));
      made.frames.push_back(std::move(frame));
    }
    made.stacks.push_back(std::move(stack));
    return static_cast<uint32_t>(made.stacks.size() - 1);
  }
  uint32_t add_function(std::string name, std::string category = "cuda") {
    made.functions.push_back({std::move(category), std::move(name)});
    return static_cast<uint32_t>(made.functions.size() - 1);
  }
  uint32_t add_kernel(std::string name) {
    made.kernels.push_back({name, name});
    return static_cast<uint32_t>(made.kernels.size() - 1);
  }
  uint32_t add_operation(uint32_t parent, uint32_t function, std::array<uint64_t, 4> shape = {}) {
    made.operations.push_back({.parent = parent, .function = function, .shape = shape});
    return static_cast<uint32_t>(made.operations.size() - 1);
  }
  uint32_t add_launch(CaptureLaunch launch) {
    made.launches.push_back(launch);
    return static_cast<uint32_t>(made.launches.size() - 1);
  }
  // A kernel of its own launch from the stack.
  void add_kernel_work(uint32_t stack, uint32_t api, uint32_t kernel, uint64_t duration_ns) {
    const uint32_t launch = add_launch({.thread = 0, .function = api, .stack = stack});
    made.work.push_back({.start_mono_ns = 2'000'000,
                         .duration_ns = duration_ns,
                         .kernel = kernel,
                         .stream = 0,
                         .launch = launch});
  }

  Capture made;
};

}  // namespace gpuperf::testing
