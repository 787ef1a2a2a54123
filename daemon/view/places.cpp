#include "daemon/view/places.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "daemon/view/frame_text.h"
#include "daemon/view/rows.h"

namespace gpuperf {
namespace {

constexpr uint32_t kNotLookedFor = kNoIndex - 1;

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Whether nobody would look there for a cause.
bool is_of_system(const StackFrame& frame) {
  static constexpr auto kLibraries = std::to_array<std::string_view>(
      {"libc.so", "libc-", "libpthread", "ld-linux", "libstdc++", "libm.so", "libgomp", "[vdso]"});
  const std::string_view file =
      std::string_view(frame.module).substr(frame.module.find_last_of('/') + 1);
  const std::string_view symbol = frame.symbol;
  if (symbol.starts_with("std::") || symbol.starts_with("_ZSt") || frame.is_inlined) return true;
  return symbol.empty() || contains(symbol, "> std::") || contains(symbol, "& std::") ||
         std::ranges::any_of(
             kLibraries, [file](std::string_view library) { return file.starts_with(library); });
}

}  // namespace

Places::Places(const Capture& capture, const PathTable& table) : table_(table) {
  for (const StackFrame& frame : capture.frames) {
    frames_.try_emplace(make_frame_text(frame, false), &frame);
  }
}

uint32_t Places::find_place(uint32_t path) {
  if (path == kNoIndex) return kNoIndex;
  if (path >= places_.size()) places_.resize(path + size_t{1}, kNotLookedFor);
  if (places_[path] != kNotLookedFor) return places_[path];
  uint32_t python = kNoIndex;
  uint32_t native = kNoIndex;
  const std::vector<uint32_t>& frames = table_.get_frames(path);
  for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
    const auto known = frames_.find(table_.get_text(*frame));
    if (known == frames_.end()) continue;
    const FrameKind kind = table_.get_kind(*frame);
    if (kind == FrameKind::kPython && !is_of_framework(*known->second)) {
      return places_[path] = *frame;
    }
    if (kind == FrameKind::kPython && python == kNoIndex) python = *frame;
    const bool is_own = kind == FrameKind::kNative && !is_of_system(*known->second) &&
                        !is_of_interpreter(*known->second);
    if (is_own && native == kNoIndex) native = *frame;
  }
  return places_[path] = python != kNoIndex ? python : native;
}

bool Places::is_data_loader(uint32_t path) const {
  if (path == kNoIndex) return false;
  return std::ranges::any_of(table_.get_frames(path), [this](uint32_t frame) {
    const std::string& text = table_.get_text(frame);
    return contains(text, "dataloader.py") || contains(text, "DataLoader") ||
           contains(text, "data_loader");
  });
}

bool waits_for_gil(const Capture& capture, uint32_t stack) {
  static constexpr auto kTakes = std::to_array<std::string_view>(
      {"take_gil", "PyEval_RestoreThread", "PyEval_AcquireThread", "PyEval_AcquireLock",
       "PyGILState_Ensure", "_Py_HandlePending", "_PyEval_EvalFrameDefault"});
  const CaptureStack* found = find_row(capture.stacks, stack);
  if (found == nullptr) return false;
  bool is_in_interpreter = false;  // in a function without a name: it keeps none of inner ones
  for (auto index = found->frames.rbegin(); index != found->frames.rend(); ++index) {
    const StackFrame* frame = find_row(capture.frames, *index);
    if (frame == nullptr) return false;
    if (frame->kind == StackFrameKind::kPython) return is_in_interpreter;
    if (!is_of_interpreter(*frame)) {
      if (is_of_system(*frame)) continue;  // what waits is in the C library
      return false;
    }
    is_in_interpreter = true;
    if (frame->symbol.empty()) continue;
    return std::ranges::any_of(kTakes, [frame](std::string_view name) {
      return std::string_view(frame->symbol).starts_with(name);
    });
  }
  return false;
}

}  // namespace gpuperf
