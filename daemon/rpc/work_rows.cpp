#include "daemon/rpc/work_rows.h"

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "daemon/base/wildcard.h"
#include "daemon/view/call_path.h"
#include "daemon/view/frame_text.h"
#include "daemon/view/path_weights.h"
#include "daemon/view/rows.h"

namespace gpuperf {
namespace {

constexpr size_t kTopKernels = 3;
constexpr std::string_view kLibraryCategories[] = {"cuda", "cublas", "cudnn", "nccl"};

bool is_library(const CaptureFunction& function) {
  return std::ranges::find(kLibraryCategories, function.category) != std::end(kLibraryCategories);
}

std::string name_function(const CaptureFunction& function, const std::array<uint64_t, 4>& shape) {
  if (shape == std::array<uint64_t, 4>{}) return function.name;
  return fmt::format("{} m={} n={} k={}{}", function.name, shape[0], shape[1], shape[2],
                     shape[3] > 1 ? fmt::format(" batch={}", shape[3]) : "");
}

std::string name_line(const StackFrame& frame) {
  const std::string name = frame.symbol.empty() ? "?" : frame.symbol;
  if (frame.file.empty()) return name;
  return fmt::format("{}:{} ({})", frame.file, frame.line, name);
}

// Adds up the work of a capture.
//
// Thread: one. Borrows the capture. Grows with what is distinct, and by a number per launch.
class WorkAdder {
 public:
  WorkAdder(const Capture& capture, const WorkRowOptions& options)
      : capture_(capture),
        options_(options),
        paths_(capture, {.with_interpreter = options.interpreter_frames}) {}

  void add(const CaptureWork& work);
  WorkRows take();

 private:
  // What decides about the group of a launch.
  using LaunchKey = std::array<uint32_t, 3>;

  uint32_t find_group(const CaptureWork& work);
  uint32_t find_launch_group(const CaptureLaunch& launch);
  uint32_t get_group(const std::string& name);
  uint32_t get_kernel_group(const CaptureWork& work);
  uint32_t get_stack_group(const CaptureLaunch& launch);
  std::string name_work(const CaptureWork& work) const;
  const CaptureOperation* find_operator(const CaptureLaunch& launch) const;
  std::string name_operator(const CaptureLaunch& launch) const;
  bool qualifies(const StackFrame& frame) const;
  std::string name_line_of(const CaptureLaunch& launch) const;
  std::string name_library(const CaptureLaunch& launch) const;
  std::span<const uint32_t> get_stack(const CaptureLaunch& launch) const;
  bool is_unsampled(const CaptureWork& work) const;
  void add_to(uint32_t group, const CaptureWork& work);
  void share_out_unsampled();
  void share_out(const std::string& kernel, const std::vector<const CaptureWork*>& works);
  void add_top_kernels();

  const Capture& capture_;
  const WorkRowOptions options_;
  PathTable paths_;
  std::vector<WorkRow> rows_;
  absl::flat_hash_map<std::string, uint32_t> groups_;
  absl::flat_hash_set<std::string> kernel_names_;
  absl::flat_hash_map<LaunchKey, uint32_t> launch_groups_;
  absl::flat_hash_set<uint64_t> launches_;                                   // group and launch
  absl::flat_hash_map<std::pair<uint32_t, std::string>, uint64_t> kernels_;  // by group: time
  // By kernel: its sampled time by group, and its work without a stack.
  std::map<std::string, std::map<uint32_t, uint64_t>> sampled_ns_;
  std::map<std::string, std::vector<const CaptureWork*>> unsampled_;
  uint64_t estimated_work_ = 0;
};

uint32_t WorkAdder::get_group(const std::string& name) {
  const auto [found, is_new] = groups_.try_emplace(name, static_cast<uint32_t>(rows_.size()));
  if (is_new) rows_.push_back({.name = name});
  return found->second;
}

// Two kernels never share a row; the second of one short name shows its full one.
uint32_t WorkAdder::get_kernel_group(const CaptureWork& work) {
  const size_t before = rows_.size();
  const uint32_t group = get_group(get_work_name(capture_, work));
  if (rows_.size() == before) return group;
  const std::string name = name_work(work);
  if (kernel_names_.insert(name).second) rows_[group].name = name;
  return group;
}

uint32_t WorkAdder::get_stack_group(const CaptureLaunch& launch) {
  std::vector<std::string> path;
  for (const uint32_t frame : paths_.get_frames(paths_.find_path(launch))) {
    path.push_back(paths_.get_text(frame));
  }
  const uint32_t group = get_group(fmt::format("{}", fmt::join(path, ";")));
  rows_[group].path = std::move(path);
  return group;
}

std::span<const uint32_t> WorkAdder::get_stack(const CaptureLaunch& launch) const {
  const CaptureStack* stack = find_row(capture_.stacks, launch.stack);
  return stack == nullptr ? std::span<const uint32_t>() : std::span(stack->frames);
}

std::string WorkAdder::name_work(const CaptureWork& work) const {
  return options_.short_names ? get_short_work_name(capture_, work) : get_work_name(capture_, work);
}

// The innermost probed call around the launch that is of no CUDA library; null = there is none.
const CaptureOperation* WorkAdder::find_operator(const CaptureLaunch& launch) const {
  for (uint32_t next = launch.operation; next < capture_.operations.size();) {
    const CaptureOperation& operation = capture_.operations[next];
    const CaptureFunction* function = find_row(capture_.functions, operation.function);
    if (function != nullptr && !is_library(*function)) return &operation;
    next = operation.parent < next ? operation.parent : kNoIndex;
  }
  return nullptr;
}

std::string WorkAdder::name_operator(const CaptureLaunch& launch) const {
  if (const CaptureOperation* operation = find_operator(launch); operation != nullptr) {
    return name_function(*find_row(capture_.functions, operation->function), operation->shape);
  }
  const std::span<const uint32_t> stack = get_stack(launch);
  for (size_t i = stack.size(); i-- > 0;) {
    const StackFrame* frame = find_row(capture_.frames, stack[i]);
    if (frame != nullptr && frame->kind == StackFrameKind::kPython) return frame->symbol;
  }
  return "[no operator]";
}

// Whether the line may stand for the launch.
bool WorkAdder::qualifies(const StackFrame& frame) const {
  if (!options_.module.empty()) return is_of_module(frame, options_.module);
  return frame.kind == StackFrameKind::kPython && !is_of_framework(frame);
}

std::string WorkAdder::name_line_of(const CaptureLaunch& launch) const {
  const StackFrame* chosen = nullptr;
  const StackFrame* python = nullptr;
  const StackFrame* native = nullptr;
  uint32_t found = 0;
  const std::span<const uint32_t> stack = get_stack(launch);
  for (size_t i = stack.size(); i-- > 0 && found < options_.depth;) {
    const StackFrame* frame = find_row(capture_.frames, stack[i]);
    if (frame == nullptr || frame->file.empty()) continue;
    if (qualifies(*frame)) {
      chosen = frame;
      ++found;
    }
    const StackFrame*& innermost = frame->kind == StackFrameKind::kPython ? python : native;
    if (innermost == nullptr) innermost = frame;
  }
  if (chosen != nullptr) return name_line(*chosen);
  if (!options_.module.empty()) return fmt::format("[no line of {}]", options_.module);
  if (python == nullptr) python = native;
  return python == nullptr ? "[no line]" : name_line(*python);
}

std::string WorkAdder::name_library(const CaptureLaunch& launch) const {
  std::string outermost;
  for (uint32_t next = launch.operation; next < capture_.operations.size();) {
    const CaptureOperation& operation = capture_.operations[next];
    const CaptureFunction* function = find_row(capture_.functions, operation.function);
    if (function != nullptr && is_library(*function)) {
      outermost = name_function(*function, operation.shape);
    }
    next = operation.parent < next ? operation.parent : kNoIndex;
  }
  if (!outermost.empty()) return outermost;
  const CaptureFunction* function = find_row(capture_.functions, launch.function);
  return function == nullptr ? "[no call]" : function->name;
}

uint32_t WorkAdder::find_launch_group(const CaptureLaunch& launch) {
  const LaunchKey key = {launch.stack, launch.operation, launch.function};
  if (const auto found = launch_groups_.find(key); found != launch_groups_.end()) {
    return found->second;
  }
  const WorkGrouping by = options_.by;
  const uint32_t group = by == WorkGrouping::kStack      ? get_stack_group(launch)
                         : by == WorkGrouping::kOperator ? get_group(name_operator(launch))
                         : by == WorkGrouping::kLine     ? get_group(name_line_of(launch))
                                                         : get_group(name_library(launch));
  launch_groups_.emplace(key, group);
  return group;
}

uint32_t WorkAdder::find_group(const CaptureWork& work) {
  if (options_.by == WorkGrouping::kKernel) return get_kernel_group(work);
  const CaptureLaunch* launch = find_row(capture_.launches, work.launch);
  return launch == nullptr ? get_group("[no launch]") : find_launch_group(*launch);
}

bool WorkAdder::is_unsampled(const CaptureWork& work) const {
  const CaptureLaunch* launch = find_row(capture_.launches, work.launch);
  if (launch == nullptr || launch->stack != kNoIndex) return false;
  if (options_.by == WorkGrouping::kOperator) return find_operator(*launch) == nullptr;
  return options_.by == WorkGrouping::kLine || options_.by == WorkGrouping::kStack;
}

void WorkAdder::add(const CaptureWork& work) {
  if (is_unsampled(work)) {
    unsampled_[get_work_name(capture_, work)].push_back(&work);
    return;
  }
  const uint32_t group = find_group(work);
  if (options_.by != WorkGrouping::kKernel && options_.by != WorkGrouping::kLibrary) {
    sampled_ns_[get_work_name(capture_, work)][group] += work.duration_ns;
  }
  add_to(group, work);
}

void WorkAdder::add_to(uint32_t group, const CaptureWork& work) {
  WorkRow& row = rows_[group];
  row.min_ns = row.work == 0 ? work.duration_ns : std::min(row.min_ns, work.duration_ns);
  row.max_ns = std::max(row.max_ns, work.duration_ns);
  row.gpu_ns += work.duration_ns;
  row.bytes += work.bytes;
  ++row.work;
  if (work.launch < capture_.launches.size() &&
      launches_.insert(uint64_t{group} << 32 | work.launch).second) {
    ++row.launches;
  }
  if (options_.by != WorkGrouping::kKernel) {
    kernels_[std::pair(group, name_work(work))] += work.duration_ns;
  }
}

// As the kernel's sampled time is shared; what is left of divisions goes to the last.
void WorkAdder::share_out(const std::string& kernel, const std::vector<const CaptureWork*>& works) {
  const std::map<uint32_t, uint64_t>& groups = sampled_ns_[kernel];
  uint64_t sampled_ns = 0;
  for (const auto& [group, time_ns] : groups) sampled_ns += time_ns;
  if (sampled_ns == 0) {
    const uint32_t group = get_group("[stack not sampled]");
    for (const CaptureWork* work : works) add_to(group, *work);
    return;
  }
  std::set<uint32_t> launches;
  WorkRow all;
  for (const CaptureWork* work : works) {
    all.gpu_ns += work->duration_ns;
    all.bytes += work->bytes;
    launches.insert(work->launch);
  }
  const std::string name = name_work(*works.front());
  estimated_work_ += works.size();
  double share = 0;
  WorkRow given;
  for (const auto& [group, time_ns] : groups) {
    share += static_cast<double>(time_ns) / static_cast<double>(sampled_ns);
    const auto give = [share](uint64_t WorkRow::*number, uint64_t total, WorkRow& so_far,
                              WorkRow& row) {
      const auto until = static_cast<uint64_t>(share * static_cast<double>(total) + 0.5);
      const uint64_t part = std::min(until, total) - so_far.*number;
      so_far.*number += part;
      row.*number += part;
      return part;
    };
    kernels_[std::pair(group, name)] += give(&WorkRow::gpu_ns, all.gpu_ns, given, rows_[group]);
    give(&WorkRow::bytes, all.bytes, given, rows_[group]);
    give(&WorkRow::work, works.size(), given, rows_[group]);
    give(&WorkRow::launches, launches.size(), given, rows_[group]);
  }
}

void WorkAdder::share_out_unsampled() {
  for (const auto& [kernel, works] : unsampled_) share_out(kernel, works);
}

void WorkAdder::add_top_kernels() {
  std::vector<std::vector<std::pair<uint64_t, const std::string*>>> kernels(rows_.size());
  for (const auto& [key, time_ns] : kernels_) {
    kernels[key.first].emplace_back(time_ns, &key.second);
  }
  for (size_t i = 0; i < rows_.size(); ++i) {
    std::ranges::sort(kernels[i], [](const auto& left, const auto& right) {
      return left.first != right.first ? left.first > right.first : *left.second < *right.second;
    });
    for (size_t k = 0; k < std::min(kTopKernels, kernels[i].size()); ++k) {
      rows_[i].top_kernels.push_back(*kernels[i][k].second);
    }
  }
}

WorkRows WorkAdder::take() {
  share_out_unsampled();
  add_top_kernels();
  std::ranges::sort(rows_, [](const WorkRow& left, const WorkRow& right) {
    return left.gpu_ns != right.gpu_ns ? left.gpu_ns > right.gpu_ns : left.name < right.name;
  });
  return {std::move(rows_), estimated_work_};
}

bool matches(const Capture& capture, const CaptureWork& work, std::string_view pattern) {
  const CaptureKernel* kernel = find_row(capture.kernels, work.kernel);
  return matches_wildcard(pattern, get_work_name(capture, work)) ||
         (kernel != nullptr && matches_wildcard(pattern, kernel->short_name));
}

}  // namespace

WorkRows list_work_rows(const Capture& capture, const WorkRowOptions& options) {
  const std::vector<bool> counted = find_counted_work(capture);
  WorkAdder adder(capture, options);
  for (size_t i = 0; i < capture.work.size(); ++i) {
    const CaptureWork& work = capture.work[i];
    const bool wanted = options.kernel.empty() || matches(capture, work, options.kernel);
    if (counted[i] && wanted) adder.add(work);
  }
  return adder.take();
}

}  // namespace gpuperf
