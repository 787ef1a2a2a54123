#include "client/capture_wait.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "client/capture_text.h"
#include "client/duration.h"
#include "client/text.h"

namespace gpuperf::client {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kStep{200};
// The daemon shows a capture in its next snapshot; that may be a moment away.
constexpr std::chrono::seconds kUnseen{10};

std::string describe_left(const v1::Capture& capture, uint64_t length_ns) {
  if (capture.state() != v1::CAPTURE_STATE_RUNNING || length_ns == 0) return "";
  const uint64_t now_ns = read_wall_clock_ns();
  const uint64_t end_ns = capture.start_unix_ns() + length_ns;
  return end_ns > now_ns ? fmt::format(", {} left", format_duration(end_ns - now_ns)) : "";
}

}  // namespace

Progress::Progress() : terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (shown_) std::cerr << "\r\x1b[K" << std::flush;
}

void Progress::show(const std::string& text) {
  if (!terminal_) return;
  shown_ = true;
  std::cerr << "\r\x1b[K" << make_printable(text) << std::flush;
}

Result<v1::GetCaptureResponse> wait_until_stored(Connection& connection, const v1::Capture& begun,
                                                 uint64_t length_ns, const Sleep& sleep) {
  Progress progress;
  v1::GetCaptureRequest request;
  request.set_id(begun.id());
  const auto unseen_until = steady_clock::now() + kUnseen;
  for (;;) {
    v1::GetCaptureResponse response;
    const Status called =
        connection.call(fmt::format("wait for capture {}", begun.id()), request, &response);
    if (!called.ok() && !(absl::IsNotFound(called) && steady_clock::now() < unseen_until)) {
      return called;
    }
    const v1::Capture& capture = called.ok() ? response.capture() : begun;
    if (capture.state() == v1::CAPTURE_STATE_STORED) return response;
    if (capture.state() == v1::CAPTURE_STATE_FAILED) {
      return absl::InternalError(
          fmt::format("capture {} failed: {}", capture.id(), capture.problem()));
    }
    progress.show(fmt::format("capture {}: {}{}", capture.id(),
                              describe_progress(capture, read_wall_clock_ns()),
                              describe_left(capture, length_ns)));
    if (!sleep(kStep)) {
      return absl::AbortedError(
          fmt::format("interrupted; capture {} continues: gpuperfctl trace show {}; stop it: "
                      "gpuperfctl trace stop {}",
                      begun.id(), begun.id(), begun.id()));
    }
  }
}

Result<v1::GetCaptureResponse> capture_and_wait(Connection& connection,
                                                const v1::StartCaptureRequest& request,
                                                const Sleep& sleep) {
  v1::StartCaptureResponse response;
  RETURN_IF_ERROR(connection.call("start a capture", request, &response));
  return wait_until_stored(connection, response.capture(), request.duration_ms() * 1'000'000,
                           sleep);
}

Result<v1::GetCaptureResponse> freeze_and_wait(Connection& connection,
                                               const v1::FreezeRecorderRequest& request,
                                               const Sleep& sleep) {
  v1::FreezeRecorderResponse response;
  RETURN_IF_ERROR(connection.call("freeze the flight recorder", request, &response));
  return wait_until_stored(connection, response.capture(), 0, sleep);
}

void discard_capture(Connection& connection, uint64_t id) {
  v1::DeleteCaptureRequest request;
  request.set_id(id);
  v1::DeleteCaptureResponse response;
  const Status deleted = connection.call(fmt::format("delete capture {}", id), request, &response);
  if (!deleted.ok()) {
    std::cerr << "gpuperfctl: " << make_printable(std::string(deleted.message())) << "\n";
  }
}

void add_keep_flag(CLI::App& app, bool& keep) {
  app.add_flag("--keep", keep, "Keep the data as a capture; see trace list");
}

v1::CaptureTarget make_target(const Options& options) {
  v1::CaptureTarget target;
  target.set_pid(options.pid);
  target.set_container(options.container);
  target.set_pod(options.pod);
  return target;
}

Result<uint64_t> parse_flag_ms(std::string_view flag, const std::string& text) {
  if (text.empty()) return 0;
  const Result<uint64_t> parsed = parse_duration_ns(text);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(
        fmt::format("{}: {}", flag, std::string(parsed.status().message())));
  }
  const uint64_t milliseconds = *parsed / 1'000'000;
  if (milliseconds > 0) return milliseconds;
  return absl::InvalidArgumentError(fmt::format("{}: \"{}\": at least 1ms", flag, text));
}

}  // namespace gpuperf::client
