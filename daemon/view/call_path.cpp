#include "daemon/view/call_path.h"

#include <absl/container/flat_hash_set.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "daemon/model/kernel_stalls.h"
#include "daemon/model/session_names.h"
#include "daemon/view/frame_text.h"
#include "daemon/view/rows.h"

namespace gpuperf {

namespace {

constexpr std::array<uint64_t, 4> kNoShape{};

// What a path key is of; two keys of different things never meet.
enum PathKind : uint32_t {
  kLaunchPath,
  kBarePath,
  kCallPath,
  kInnerPath,
  kOuterPath,
  kStackPath,
  kCommonPath,
  kMarkPath
};

uint32_t get_process(const Capture& capture, uint32_t thread) {
  const CaptureThread* found = find_row(capture.threads, thread);
  return found == nullptr ? kNoIndex : found->process;
}

// "GPU", or "GPU1" where there are several.
std::string make_device_text(const Capture& capture, uint32_t device) {
  if (capture.devices.size() < 2) return "GPU";
  if (device >= capture.devices.size()) return "GPU?";
  absl::flat_hash_set<uint32_t> numbers;
  for (const CaptureDevice& other : capture.devices) numbers.insert(other.number);
  const bool is_unique = numbers.size() == capture.devices.size();
  return fmt::format("GPU{}", is_unique ? capture.devices[device].number : device);
}

// The work's own name, behind its kind.
std::string make_work_text(const Capture& capture, const CaptureWork& work) {
  switch (work.kind) {
    case WorkKind::kKernel: {
      const CaptureKernel* kernel = find_row(capture.kernels, work.kernel);
      return "_Kernel]" + (kernel == nullptr ? "unknown" : to_path_text(kernel->name));
    }
    case WorkKind::kCopy:
      return fmt::format("_Memcpy]{}", get_copy_direction_name(false, work.direction));
    case WorkKind::kSet:
      return "_Memset]set";
    case WorkKind::kGraph:
      return fmt::format("_Graph]{}", work.graph_id);
  }
  return "_Kernel]unknown";
}

FrameKind get_work_frame_kind(const CaptureWork& work) {
  const bool is_transfer = work.kind == WorkKind::kCopy || work.kind == WorkKind::kSet;
  return is_transfer ? FrameKind::kTransfer : FrameKind::kKernel;
}

}  // namespace

std::vector<std::string> make_path(const Capture& capture, const CaptureLaunch& launch,
                                   const PathOptions& options) {
  PathTable table(capture, options);
  std::vector<std::string> path;
  for (const uint32_t frame : table.get_frames(table.find_path(launch))) {
    path.push_back(table.get_text(frame));
  }
  return path;
}

std::string make_gpu_frame(const Capture& capture, const CaptureWork& work) {
  return "[" + make_device_text(capture, find_device(capture, work)) +
         make_work_text(capture, work);
}

uint32_t PathTable::find_path(const CaptureLaunch& launch) {
  const uint32_t process = options_.with_process ? get_process(capture_, launch.thread) : kNoIndex;
  const uint32_t thread = options_.with_thread ? launch.thread : kNoIndex;
  const uint32_t operation = options_.with_operations ? launch.operation : kNoIndex;
  const PathKey key = {kLaunchPath, launch.stack, operation, launch.function, process, thread};
  if (const auto found = path_ids_.find(key); found != path_ids_.end()) return found->second;

  std::vector<uint32_t> path;
  add_marks(process, thread, path);
  const size_t begin = path.size();
  std::vector<const StackFrame*> shown;
  add_stack(launch.stack, shown, path);
  add_operations(operation, launch.function, begin, shown, path);
  const CaptureFunction* api = find_row(capture_.functions, launch.function);
  const bool is_shown = api != nullptr && !shown.empty() && shown.back() != nullptr &&
                        is_frame_of(*shown.back(), api->name) &&
                        shown.size() == path.size() - begin;
  if (!is_shown) add_function(launch.function, kNoShape, path);
  return add_path(key, std::move(path));
}

uint32_t PathTable::find_path_without_launch(const CaptureWork& work) {
  const CaptureStream* stream = find_row(capture_.streams, work.stream);
  const uint32_t process = options_.with_process && stream != nullptr ? stream->process : kNoIndex;
  const PathKey key = {kBarePath, process};
  if (const auto found = path_ids_.find(key); found != path_ids_.end()) return found->second;
  std::vector<uint32_t> path;
  add_marks(process, kNoIndex, path);
  path.push_back(add_frame("[no launch]", FrameKind::kMark));
  return add_path(key, std::move(path));
}

uint32_t PathTable::find_call_path(const CaptureCall& call, uint32_t outer) {
  const bool has_stack = call.stack < capture_.stacks.size();
  if (!has_stack && outer != kNoIndex) return find_inner_path(outer, call.function);
  const uint32_t process = options_.with_process ? get_process(capture_, call.thread) : kNoIndex;
  const uint32_t thread = options_.with_thread ? call.thread : kNoIndex;
  const PathKey key = {kCallPath, call.stack, call.function, process, thread};
  if (const auto found = path_ids_.find(key); found != path_ids_.end()) return found->second;
  std::vector<uint32_t> path;
  add_marks(process, thread, path);
  std::vector<const StackFrame*> shown;
  add_stack(call.stack, shown, path);
  add_function(call.function, kNoShape, path);
  return add_path(key, std::move(path));
}

uint32_t PathTable::find_inner_path(uint32_t outer, uint32_t function) {
  const PathKey key = {kInnerPath, outer, function};
  if (const auto found = path_ids_.find(key); found != path_ids_.end()) return found->second;
  std::vector<uint32_t> path = paths_[outer];
  add_function(function, kNoShape, path);
  // The same call seen twice, by its probe and by CUPTI, is one frame.
  if (path.size() > 1 && path[path.size() - 1] == path[path.size() - 2]) path.pop_back();
  return add_path(key, std::move(path));
}

uint32_t PathTable::find_outer_path(uint32_t inner, uint32_t function) {
  const CaptureFunction* found_function = find_row(capture_.functions, function);
  if (found_function == nullptr) return kNoIndex;
  const PathKey key = {kOuterPath, inner, function};
  if (const auto found = path_ids_.find(key); found != path_ids_.end()) return found->second;
  std::vector<uint32_t> path = paths_[inner];
  const auto is_it = [&](uint32_t frame) {
    return get_kind(frame) != FrameKind::kPython &&
           is_frame_of({.symbol = get_text(frame)}, found_function->name);
  };
  while (!path.empty() && !is_it(path.back())) path.pop_back();
  if (!path.empty()) return add_path(key, std::move(path));
  path_ids_.emplace(key, kNoIndex);
  return kNoIndex;
}

uint32_t PathTable::find_stack_path(uint32_t thread, uint32_t stack) {
  const uint32_t process = options_.with_process ? get_process(capture_, thread) : kNoIndex;
  const uint32_t marked = options_.with_thread ? thread : kNoIndex;
  const PathKey key = {kStackPath, stack, process, marked};
  if (const auto found = path_ids_.find(key); found != path_ids_.end()) return found->second;
  std::vector<uint32_t> path;
  add_marks(process, marked, path);
  std::vector<const StackFrame*> shown;
  add_stack(stack, shown, path);
  return add_path(key, std::move(path));
}

uint32_t PathTable::find_common_path(uint32_t one, uint32_t other) {
  if (one == other) return one;
  const PathKey key = {kCommonPath, std::min(one, other), std::max(one, other)};
  if (const auto found = path_ids_.find(key); found != path_ids_.end()) return found->second;
  const std::vector<uint32_t>& first = paths_[one];
  const auto end = std::ranges::mismatch(first, paths_[other]).in1;
  return add_path(key, std::vector<uint32_t>(first.begin(), end));
}

uint32_t PathTable::find_mark_path(const std::string& mark) {
  const uint32_t frame = add_frame(mark, FrameKind::kMark);
  const PathKey key = {kMarkPath, frame};
  if (const auto found = path_ids_.find(key); found != path_ids_.end()) return found->second;
  return add_path(key, {frame});
}

uint32_t PathTable::find_gpu_frame(const CaptureWork& work) {
  const uint32_t what = work.kind == WorkKind::kKernel  ? work.kernel
                        : work.kind == WorkKind::kCopy  ? work.direction
                        : work.kind == WorkKind::kGraph ? work.graph_id
                                                        : 0;
  const WorkKey key = {static_cast<uint32_t>(work.kind), what, find_device(capture_, work)};
  if (const auto found = work_frames_.find(key); found != work_frames_.end()) return found->second;
  const uint32_t frame = add_frame(make_gpu_frame(capture_, work), get_work_frame_kind(work));
  work_frames_.emplace(key, frame);
  return frame;
}

uint32_t PathTable::find_stall_frame(uint32_t stall) {
  return add_frame("[GPU_Stall]" + std::string(get_stall_name(stall).name), FrameKind::kKernel);
}

uint32_t PathTable::add_path(const PathKey& key, std::vector<uint32_t> frames) {
  const auto path = static_cast<uint32_t>(paths_.size());
  paths_.push_back(std::move(frames));
  path_ids_.emplace(key, path);
  return path;
}

uint32_t PathTable::add_frame(std::string text, FrameKind kind) {
  const auto [found, is_new] = frame_ids_.try_emplace(text, static_cast<uint32_t>(texts_.size()));
  if (is_new) {
    texts_.push_back(std::move(text));
    kinds_.push_back(kind);
  }
  return found->second;
}

uint32_t PathTable::add_stack_frame(uint32_t frame) {
  if (stack_frames_.empty()) stack_frames_.assign(capture_.frames.size(), kNoIndex);
  uint32_t& text = stack_frames_[frame];
  if (text == kNoIndex) {
    const StackFrame& found = capture_.frames[frame];
    text = add_frame(make_frame_text(found, options_.with_lines), get_frame_kind(found));
  }
  return text;
}

void PathTable::add_marks(uint32_t process, uint32_t thread, std::vector<uint32_t>& path) {
  if (const CaptureProcess* found = find_row(capture_.processes, process); found != nullptr) {
    const std::string text = fmt::format("{} ({})", found->owner.comm, found->process.pid);
    path.push_back(add_frame(to_path_text(text), FrameKind::kMark));
  }
  if (const CaptureThread* found = find_row(capture_.threads, thread); found != nullptr) {
    const std::string text = fmt::format("{} ({})", found->comm, found->tid);
    path.push_back(add_frame(to_path_text(text), FrameKind::kMark));
  }
}

// `shown`: what each frame added to `path` is; null for marks.
void PathTable::add_stack(uint32_t stack, std::vector<const StackFrame*>& shown,
                          std::vector<uint32_t>& path) {
  const CaptureStack* found = find_row(capture_.stacks, stack);
  if (found == nullptr) {
    path.push_back(add_frame("[no stack]", FrameKind::kMark));
    shown.push_back(nullptr);
    return;
  }
  if (found->end != StackEnd::kComplete) {
    const std::string text = fmt::format("[{}]", get_stack_end_name(found->end));
    path.push_back(add_frame(text, FrameKind::kMark));
    shown.push_back(nullptr);
  }
  const bool folds_interpreter =
      !options_.with_interpreter && std::ranges::any_of(found->frames, [this](uint32_t index) {
        const StackFrame* frame = find_row(capture_.frames, index);
        return frame != nullptr && frame->kind == StackFrameKind::kPython;
      });
  for (const uint32_t frame : found->frames) {
    if (frame >= capture_.frames.size()) continue;
    if (folds_interpreter && is_of_interpreter(capture_.frames[frame])) continue;
    path.push_back(add_stack_frame(frame));
    shown.push_back(&capture_.frames[frame]);
  }
  while (!shown.empty() && shown.back() != nullptr && is_cuda_runtime(*shown.back())) {
    path.pop_back();
    shown.pop_back();
  }
}

// From the innermost operation outwards: each is looked for among the frames outside the one found
// last. `shown` describes the frames of `path` from `begin` on.
void PathTable::add_operations(uint32_t innermost, uint32_t api, size_t begin,
                               const std::vector<const StackFrame*>& shown,
                               std::vector<uint32_t>& path) {
  const CaptureFunction* api_function = find_row(capture_.functions, api);
  size_t bound = shown.size();  // frames from here on are inside
  uint32_t index = innermost;
  while (const CaptureOperation* operation = find_row(capture_.operations, index)) {
    const CaptureFunction* function = find_row(capture_.functions, operation->function);
    // The launch call itself, where its function is probed, too.
    const bool is_api = index == innermost && function != nullptr && api_function != nullptr &&
                        function->name == api_function->name;
    // Parents stand before their children: a chain that does not is damaged, and might not end.
    const uint32_t parent = operation->parent < index ? operation->parent : kNoIndex;
    index = parent;
    if (function == nullptr || is_api) continue;

    size_t at = bound;
    while (at > 0 && (shown[at - 1] == nullptr || !is_frame_of(*shown[at - 1], function->name))) {
      --at;
    }
    if (at > 0) {
      bound = at - 1;
      uint32_t& frame = path[begin + bound];
      const std::string shape = make_shape_text(operation->shape);
      if (!shape.empty()) frame = add_frame(get_text(frame) + shape, get_kind(frame));
      continue;
    }
    std::vector<uint32_t> added;
    add_function(operation->function, operation->shape, added);
    path.insert(path.begin() + static_cast<ptrdiff_t>(begin + bound), added[0]);
  }
}

void PathTable::add_function(uint32_t function, const std::array<uint64_t, 4>& shape,
                             std::vector<uint32_t>& path) {
  const CaptureFunction* found = find_row(capture_.functions, function);
  const std::string name = found == nullptr || found->name.empty() ? "[unknown call]" : found->name;
  path.push_back(add_frame(to_path_text(name) + make_shape_text(shape),
                           found == nullptr ? FrameKind::kCuda : get_function_kind(*found)));
}

}  // namespace gpuperf
