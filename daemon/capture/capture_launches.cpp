// Launches, their work, and the last step of making a capture.

#include <algorithm>
#include <numeric>

#include "daemon/capture/capture_builder.h"

namespace gpuperf {
namespace {

template <typename Row>
void sort_rows(std::vector<Row>& rows) {
  std::ranges::stable_sort(rows, {}, &Row::start_mono_ns);
}

}  // namespace

// Its kernels or graph had not ended when the window was taken, or their records were lost.
bool CaptureBuilder::is_without_work(const LaunchCall& call,
                                     const std::vector<uint32_t>& with_work) {
  return scope_.with_overlap && call.start_ns < scope_.end_mono_ns &&
         get_api(call.is_driver, call.callback_id).launches_kernels &&
         !std::ranges::binary_search(with_work, call.correlation_id);
}

// Launches of the window, and those before it whose work is in it.
void CaptureBuilder::add_launches(uint32_t process_index, const LaunchMatches& matches) {
  Process& process = processes_[process_index];
  std::vector<uint32_t> with_work;
  for (const Work& work : process.work) with_work.push_back(work.correlation_id);
  std::ranges::sort(with_work);
  std::vector<uint32_t> with_any_work = std::move(process.other_work);
  with_any_work.insert(with_any_work.end(), with_work.begin(), with_work.end());
  std::ranges::sort(with_any_work);
  for (size_t i = 0; i < process.calls.size(); ++i) {
    const LaunchCall& call = process.calls[i];
    const bool in_window =
        scope_.cpu && call.start_ns >= scope_.start_mono_ns && call.start_ns < scope_.end_mono_ns;
    // One that failed gave the GPU nothing.
    if (scope_.with_overlap && call.has_failed) continue;
    const bool is_kept = in_window || std::ranges::binary_search(with_work, call.correlation_id) ||
                         is_without_work(call, with_any_work);
    if (!is_kept) continue;
    CaptureLaunch launch{.start_mono_ns = call.start_ns,
                         .duration_ns = call.end_ns - call.start_ns,
                         .thread = get_thread(process_index, call.tid),
                         .function = get_api(call.is_driver, call.callback_id).function,
                         .correlation_id = call.correlation_id,
                         .match = matches.kind[i]};
    const uint32_t hit = matches.hit_of_call[i];
    if (hit != LaunchMatches::kNone) {
      set_site(launch, process_index, process.hits[hit].site_id);
      if (process.hits[hit].captured != 0 && launch.match == LaunchMatch::kExact) {
        process.replays.push_back({.launch = static_cast<uint32_t>(capture_.launches.size()),
                                   .captured = process.hits[hit].captured});
      }
    }
    capture_.launches.push_back(launch);
  }
}

// Hits without a call: of processes that are not injected, or whose record was lost.
void CaptureBuilder::add_lone_hits(uint32_t process_index, const LaunchMatches& matches) {
  const Process& process = processes_[process_index];
  for (size_t i = 0; i < process.hits.size(); ++i) {
    const LaunchHit& hit = process.hits[i];
    const bool in_window = hit.mono_ns >= scope_.start_mono_ns && hit.mono_ns < scope_.end_mono_ns;
    if (matches.is_hit_used[i] || !in_window) continue;
    CaptureLaunch launch{
        .start_mono_ns = hit.mono_ns,
        .thread = get_thread(process_index, hit.tid),
        .function = get_function("cuda", std::string(get_plain_text(hit.function))),
        .match = LaunchMatch::kNoCall};
    set_site(launch, process_index, hit.site_id);
    capture_.launches.push_back(launch);
  }
}

void CaptureBuilder::add_work(uint32_t process_index) {
  // This process's launches are the last that were added.
  std::vector<uint32_t> order;
  for (size_t i = capture_.launches.size(); i-- > 0;) {
    const CaptureLaunch& launch = capture_.launches[i];
    if (capture_.threads[launch.thread].process != process_index) break;
    if (launch.match != LaunchMatch::kNoCall) order.push_back(static_cast<uint32_t>(i));
  }
  const auto key = [this](uint32_t i) {
    const CaptureLaunch& launch = capture_.launches[i];
    return std::make_pair(launch.correlation_id, launch.start_mono_ns);
  };
  std::ranges::sort(order, {}, key);
  for (Work& work : processes_[process_index].work) {
    // Ids come again after four billion calls: of two launches, the last before the work.
    const auto after = std::ranges::upper_bound(
        order, std::make_pair(work.correlation_id, work.row.start_mono_ns), {}, key);
    const bool found = after != order.begin() &&
                       capture_.launches[*std::prev(after)].correlation_id == work.correlation_id;
    if (found) work.row.launch = *std::prev(after);
    capture_.work.push_back(work.row);
  }
}

void CaptureBuilder::keep_stacks(std::span<const StackPtr> stacks) {
  std::map<const Stack*, uint32_t> rows;
  // By what a frame shows: equal ones come from many stacks.
  std::map<std::tuple<std::string_view, std::string_view, uint64_t, std::string_view, uint32_t,
                      bool, StackFrameKind>,
           uint32_t>
      frames;
  std::vector<uint32_t> index(stacks.size(), kNoIndex);
  for (size_t i = 0; i < stacks.size(); ++i) {
    const StackPtr& named = stack_keys_[i].known;
    const Stack* stack = named != nullptr ? named.get() : stacks[i].get();
    if (stack == nullptr) continue;
    const auto [known, is_new] =
        rows.try_emplace(stack, static_cast<uint32_t>(capture_.stacks.size()));
    index[i] = known->second;
    if (!is_new) continue;
    CaptureStack row{.end = stack->end};
    for (auto frame = stack->frames.rbegin(); frame != stack->frames.rend(); ++frame) {
      const auto [place, is_new_frame] =
          frames.try_emplace({frame->symbol, frame->module, frame->offset_bytes, frame->file,
                              frame->line, frame->is_inlined, frame->kind},
                             static_cast<uint32_t>(capture_.frames.size()));
      if (is_new_frame) capture_.frames.push_back(*frame);
      row.frames.push_back(place->second);
    }
    capture_.stacks.push_back(std::move(row));
  }
  const auto renumber = [&index](uint32_t& stack) {
    if (stack != kNoIndex) stack = stack < index.size() ? index[stack] : kNoIndex;
  };
  for (CaptureLaunch& launch : capture_.launches) renumber(launch.stack);
  for (CaptureLaunch& site : capture_.capture_sites) renumber(site.stack);
  for (CaptureCall& call : capture_.calls) renumber(call.stack);
  for (CaptureThreadTime& time : capture_.thread_times) renumber(time.stack);
}

void CaptureBuilder::sort_by_start() {
  sort_rows(capture_.calls);
  sort_rows(capture_.work);
  sort_rows(capture_.waits);
  sort_rows(capture_.thread_times);
  sort_rows(capture_.steps);
  sort_rows(capture_.gaps);
  std::vector<uint32_t> order(capture_.launches.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {},
                           [this](uint32_t i) { return capture_.launches[i].start_mono_ns; });
  std::vector<uint32_t> place(order.size());
  std::vector<CaptureLaunch> sorted(order.size());
  for (uint32_t i = 0; i < order.size(); ++i) {
    place[order[i]] = i;
    sorted[i] = capture_.launches[order[i]];
  }
  capture_.launches = std::move(sorted);
  for (CaptureWork& work : capture_.work) {
    if (work.launch != kNoIndex) work.launch = place[work.launch];
  }
}

Capture CaptureBuilder::finish(std::span<const StackPtr> stacks) {
  keep_stacks(stacks);
  sort_by_start();
  CaptureMatches& matches = capture_.matches;
  for (const CaptureLaunch& launch : capture_.launches) {
    ++matches.launches[static_cast<size_t>(launch.match)];
    const bool has_hit = launch.match != LaunchMatch::kNoHit;
    if (has_hit && launch.stack == kNoIndex) ++matches.launches_no_stack;
  }
  for (const CaptureWork& work : capture_.work) {
    ++matches.work;
    if (work.kind != WorkKind::kGraph && work.graph_id != 0) ++matches.nodes;
    if (work.capture_site != kNoIndex) ++matches.nodes_placed;
    if (work.launch == kNoIndex) {
      ++matches.work_no_call;
    } else if (capture_.launches[work.launch].match == LaunchMatch::kExact) {
      ++matches.work_matched;
    }
  }
  return std::move(capture_);
}

}  // namespace gpuperf
