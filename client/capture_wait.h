#pragma once

// Captures from their order to the disk: asking for them and waiting, with progress on a terminal.

#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "client/connection.h"
#include "client/options.h"
#include "gpuperf/v1/control.pb.h"
#include "gpuperf/v1/observe.pb.h"

namespace gpuperf::client {

// One line on standard error that is written over, and gone at the end. Nothing where that is no
// terminal.
class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void show(const std::string& text);

 private:
  bool terminal_;
  bool shown_ = false;
};

// Returns early, with false, when the user wants it to end.
using Sleep = std::function<bool(std::chrono::nanoseconds)>;

// Of a capture that was just asked for, until it is stored. `length_ns`: of its window, 0 = not
// known. Failed ones are an error; so is `sleep` saying false, with what to do next.
Result<v1::GetCaptureResponse> wait_until_stored(Connection& connection, const v1::Capture& begun,
                                                 uint64_t length_ns, const Sleep& sleep);

// The same, after asking for it.
Result<v1::GetCaptureResponse> capture_and_wait(Connection& connection,
                                                const v1::StartCaptureRequest& request,
                                                const Sleep& sleep);
Result<v1::GetCaptureResponse> freeze_and_wait(Connection& connection,
                                               const v1::FreezeRecorderRequest& request,
                                               const Sleep& sleep);

// Deletes a capture that was made only to be shown once. A failure is reported on stderr and
// changes nothing: the output is complete by then.
void discard_capture(Connection& connection, uint64_t id);
// --keep, of commands that make such a capture.
void add_keep_flag(CLI::App& app, bool& keep);

// --pid, --container, --pod.
v1::CaptureTarget make_target(const Options& options);
// A flag's duration in milliseconds; empty = 0. kInvalidArgument names the flag.
Result<uint64_t> parse_flag_ms(std::string_view flag, const std::string& text);

}  // namespace gpuperf::client
