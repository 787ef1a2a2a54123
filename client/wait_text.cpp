#include "client/wait_text.h"

#include <fmt/format.h>

#include <string_view>

#include "client/stack_text.h"

namespace gpuperf::client {
namespace {

constexpr std::string_view kStackIndent = "    ";
constexpr std::string_view kFrameIndent = "      ";

std::string describe_waker(const v1::Waker& waker) {
  const std::string comm = make_printable(waker.comm());
  if (waker.kernel_thread()) return fmt::format("kernel thread {} ({})", waker.tid(), comm);
  return fmt::format("thread {} ({}) of process {}", waker.tid(), comm, waker.pid());
}

// "device nvidia-uvm", "a pipe"; empty where no file is known.
std::string describe_file(const v1::Wait& wait) {
  const std::string kind = make_printable(wait.file_kind());
  const std::string name = make_printable(wait.file());
  if (name.empty()) return kind.empty() ? "" : "a " + kind;
  return kind.empty() ? name : fmt::format("{} {}", kind, name);
}

// A wait that nobody ended and that reaches up to the look at its call.
bool lasts(const v1::Wait& wait, const v1::SlowCall& call) {
  return call.in_flight() && !wait.has_waker() &&
         wait.start_mono_ns() + wait.duration_ns() >= call.start_mono_ns() + call.duration_ns();
}

// "[kernel]" behind every frame would say nothing; a module's name does.
Frames strip_kernel_module(Frames frames) {
  for (v1::StackFrame& frame : frames) {
    if (frame.module() == "[kernel]") frame.clear_module();
  }
  return frames;
}

std::string render_stack(std::string_view whose, const Frames& frames, uint64_t call_id) {
  if (frames.empty()) return "";
  return fmt::format("{}{}, innermost frame first\n{}", kStackIndent, whose,
                     render_innermost_frames(frames, kFrameIndent, call_id));
}

std::string render_wait(const v1::Wait& wait, const v1::SlowCall& call, const TextStyle& style) {
  std::string line = fmt::format("blocked {}{} {}", format_duration(wait.duration_ns()),
                                 lasts(wait, call) ? " so far" : "", describe_wait_place(wait));
  if (wait.has_waker()) line += fmt::format(", woken by {}", describe_waker(wait.waker()));
  return wrap(line, style.columns, kIndent) +
         render_stack("kernel stack", strip_kernel_module(wait.kernel_stack()), call.id()) +
         render_stack("stack of the waker", wait.waker().stack(), call.id());
}

}  // namespace

std::string describe_wait_place(const v1::Wait& wait) {
  const std::string file = describe_file(wait);
  if (wait.syscall().empty()) {
    const bool fault = wait.kind().empty() || wait.kind() == "page_fault";
    const std::string what =
        fault ? "in a page fault" : fmt::format("in the kernel ({})", make_printable(wait.kind()));
    return file.empty() ? what : fmt::format("{} on {}", what, file);
  }
  const std::string syscall = make_printable(wait.syscall());
  return file.empty() ? "in " + syscall : fmt::format("in {} of {}", syscall, file);
}

std::string render_waits(const v1::SlowCall& call, const TextStyle& style) {
  const v1::TimeSplit& split = call.time_split();
  if (split.waits().empty() && !split.has_waker()) return "";
  std::string text = paint("Longest waits", Tone::kHeader, style) + "\n";
  for (const v1::Wait& wait : split.waits()) text += render_wait(wait, call, style);
  if (split.waits().empty()) {
    const std::string line = "the longest was too short to describe; it ended when woken by " +
                             describe_waker(split.waker());
    text += wrap(line, style.columns, kIndent);
  }
  return text;
}

}  // namespace gpuperf::client
