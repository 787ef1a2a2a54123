#include "daemon/view/chrome_stacks.h"

#include <absl/container/flat_hash_map.h>

#include <utility>

#include "daemon/view/frame_text.h"
#include "daemon/view/json_text.h"

namespace gpuperf {
namespace {

// Of the ways stacks end, as outermost frames: above every index of a frame.
constexpr uint32_t kFirstMark = UINT32_MAX - 16;

std::string make_frame_json(const Capture& capture, uint32_t frame) {
  if (frame >= kFirstMark) {
    const auto end = static_cast<StackEnd>(frame - kFirstMark);
    return "\"name\":" + to_json_text("[" + std::string(get_stack_end_name(end)) + "]");
  }
  const StackFrame& row = capture.frames[frame];
  std::string json = "\"name\":" + to_json_text(make_frame_text(row, true));
  if (!row.module.empty()) json += ",\"category\":" + to_json_text(row.module);
  return json;
}

}  // namespace

ChromeStacks::ChromeStacks(const Capture& capture) {
  absl::flat_hash_map<std::pair<uint32_t, uint32_t>, uint32_t> ids;  // by caller's id and frame
  std::vector<std::string> texts(capture.frames.size());
  const auto find_id = [&](uint32_t caller, uint32_t frame) {
    const auto [found, is_new] =
        ids.try_emplace({caller, frame}, static_cast<uint32_t>(ids.size() + 1));
    if (!is_new) return found->second;
    std::string text = frame < texts.size() ? texts[frame] : "";
    if (text.empty()) text = make_frame_json(capture, frame);
    if (frame < texts.size()) texts[frame] = text;
    json_ += json_.size() > 1 ? ",\n\"" : "\"";
    append_number(found->second, json_);
    json_ += "\":{" + text;
    if (caller != 0) {
      json_ += ",\"parent\":\"";
      append_number(caller, json_);
      json_ += '"';
    }
    json_ += '}';
    return found->second;
  };
  ids_.reserve(capture.stacks.size());
  for (const CaptureStack& stack : capture.stacks) {
    uint32_t id = 0;
    if (stack.end != StackEnd::kComplete) {
      id = find_id(0, kFirstMark + static_cast<uint32_t>(stack.end));
    }
    for (const uint32_t frame : stack.frames) {
      if (frame < capture.frames.size()) id = find_id(id, frame);
    }
    ids_.push_back(id);
  }
  json_ += '}';
}

}  // namespace gpuperf
