#include "client/stack_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "client/text.h"

namespace gpuperf::client {
namespace {

constexpr int kInnermostFrames = 8;  // below them stands the way into the kernel, alike for all

std::string render_first(const Frames& frames, int count, std::string_view indent) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += fmt::format("{}{:3}  {}\n", indent, i, make_printable(describe_frame(frames[i])));
  }
  return text;
}

bool is_python(const v1::StackFrame& frame) { return frame.kind() == "python"; }

}  // namespace

std::string describe_frame(const v1::StackFrame& frame) {
  const std::string offset = fmt::format("+0x{:x}", frame.offset_bytes());
  std::string address = fmt::format("0x{:x}", frame.address());
  if (frame.symbol().empty() && frame.module().empty()) return address;
  if (frame.symbol().empty()) return fmt::format("{}  {}{}", address, frame.module(), offset);
  std::string text = frame.symbol();
  if (frame.inlined()) {
    text += " (inlined)";
  } else if (!is_python(frame)) {  // which has lines only
    text += offset;
  }
  if (frame.line() != 0) text += fmt::format(" at {}:{}", frame.file(), frame.line());
  return frame.module().empty() ? text : fmt::format("{}  ({})", text, frame.module());
}

std::string describe_innermost_frames(const Frames& frames, int max) {
  const bool has_python = std::ranges::any_of(frames, is_python);
  std::string text;
  int shown = 0;
  for (const v1::StackFrame& frame : frames) {
    if ((has_python && !is_python(frame)) || shown == max) continue;
    text += fmt::format("{}{}", shown++ == 0 ? "" : " <- ", make_printable(describe_frame(frame)));
  }
  return text.empty() ? "no stack" : text;
}

int fold_interpreter_frames(Frames& frames) {
  if (std::ranges::none_of(frames, is_python)) return 0;
  const auto is_interpreter = [&](const v1::StackFrame& frame) {
    const std::string_view module = std::string_view(frame.module());
    const std::string_view file = module.substr(module.rfind('/') + 1);
    return !is_python(frame) &&
           (file == "python" || file.starts_with("python3") || file.starts_with("libpython3"));
  };
  const int before = frames.size();
  frames.erase(std::remove_if(frames.begin(), frames.end(), is_interpreter), frames.end());
  return before - frames.size();
}

std::string render_frames(const Frames& frames, std::string_view indent) {
  return render_first(frames, frames.size(), indent);
}

std::string render_innermost_frames(const Frames& frames, std::string_view indent,
                                    uint64_t call_id) {
  const int shown = std::min(frames.size(), kInnermostFrames);
  std::string text = render_first(frames, shown, indent);
  if (shown < frames.size()) {
    text += fmt::format("{}     and {} more: gpuperfctl slow show {} -o json\n", indent,
                        format_count(static_cast<uint64_t>(frames.size() - shown)), call_id);
  }
  return text;
}

}  // namespace gpuperf::client
