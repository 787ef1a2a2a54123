#include "daemon/view/host_time.h"

#include <algorithm>
#include <utility>

#include "daemon/view/rows.h"

namespace gpuperf {
namespace {

// A stack further away says nothing of a piece.
constexpr uint64_t kNearNs = 1'000'000'000;
// Waits carry a stack at most so often.
constexpr uint64_t kStackIntervalNs = 1'000'000;

uint64_t get_end(const CaptureThreadTime& time) { return time.start_mono_ns + time.duration_ns; }

}  // namespace

HostTime::HostTime(const Capture& capture, PathTable& table)
    : capture_(capture),
      table_(table),
      calls_(nest_calls(capture, table)),
      threads_(capture.threads.size()) {
  add_segments();
  add_states();
  add_evidence();
}

// Calls are by thread, outer ones first: what is innermost at each moment. A step is what the
// program does: the calls and the stacks within it say more than its own call.
void HostTime::add_segments() {
  std::vector<bool> is_step(capture_.functions.size());
  for (const CaptureStep& step : capture_.steps) {
    if (step.function < is_step.size()) is_step[step.function] = true;
  }
  const auto get_thread = [&](const NestedCall& call) {
    return call.call != kNoIndex ? capture_.calls[call.call].thread
                                 : capture_.launches[call.launch].thread;
  };
  std::vector<uint32_t> open;
  uint32_t thread = kNoIndex;
  uint64_t at_ns = 0;
  const auto advance = [&](uint64_t to_ns) {
    if (!open.empty() && thread < threads_.size() && to_ns > at_ns) {
      threads_[thread].segments.push_back({at_ns, to_ns, open.back()});
    }
    at_ns = std::max(at_ns, to_ns);
  };
  const auto close_until = [&](uint64_t to_ns) {
    while (!open.empty()) {
      const NestedCall& call = calls_[open.back()];
      const uint64_t end_ns = call.start_mono_ns + call.duration_ns;
      if (end_ns > to_ns) break;
      advance(end_ns);
      open.pop_back();
    }
  };
  for (uint32_t i = 0; i < calls_.size(); ++i) {
    const uint32_t of = get_thread(calls_[i]);
    if (of != thread) {
      close_until(UINT64_MAX);
      thread = of;
      at_ns = 0;
    }
    close_until(calls_[i].start_mono_ns);
    advance(calls_[i].start_mono_ns);
    const CaptureCall* call = find_row(capture_.calls, calls_[i].call);
    const bool is_of_step =
        call != nullptr && call->function < is_step.size() && is_step[call->function];
    if (!open.empty() || !is_of_step) open.push_back(i);
  }
  close_until(UINT64_MAX);
}

void HostTime::add_states() {
  for (uint32_t i = 0; i < capture_.thread_times.size(); ++i) {
    const CaptureThreadTime& time = capture_.thread_times[i];
    if (time.thread >= threads_.size()) continue;
    Thread& thread = threads_[time.thread];
    if (time.duration_ns == 0) {
      thread.samples.push_back(i);
    } else if (thread.states.empty() ||
               time.start_mono_ns >= get_end(capture_.thread_times[thread.states.back()])) {
      thread.states.push_back(i);
    }
  }
  for (const CaptureWait& wait : capture_.waits) {
    if (wait.thread >= threads_.size()) continue;
    threads_[wait.thread].waits.push_back(
        {wait.start_mono_ns, wait.start_mono_ns + wait.duration_ns});
  }
}

// Stacks that tell where a thread was.
void HostTime::add_evidence() {
  const auto add = [&](uint32_t thread, uint64_t at_ns, uint32_t stack) {
    if (thread >= threads_.size() || stack >= capture_.stacks.size()) return;
    threads_[thread].evidence.push_back({at_ns, table_.find_stack_path(thread, stack)});
  };
  for (const CaptureLaunch& launch : capture_.launches) {
    add(launch.thread, launch.start_mono_ns, launch.stack);
  }
  for (const CaptureCall& call : capture_.calls) add(call.thread, call.start_mono_ns, call.stack);
  for (const CaptureThreadTime& time : capture_.thread_times) {
    add(time.thread, time.start_mono_ns, time.stack);
  }
  for (Thread& thread : threads_) std::ranges::stable_sort(thread.evidence, {}, &Evidence::at_ns);
}

void HostTime::for_each_piece(uint32_t thread, uint64_t begin_ns, uint64_t end_ns,
                              const std::function<void(const HostPiece&)>& visit) {
  const std::vector<Segment>& segments = threads_[thread].segments;
  auto at = std::ranges::partition_point(
      segments, [&](const Segment& segment) { return segment.end_ns <= begin_ns; });
  while (begin_ns < end_ns) {
    HostPiece piece{.begin_ns = begin_ns, .end_ns = end_ns};
    if (at != segments.end() && at->begin_ns <= begin_ns) {
      piece.end_ns = std::min(end_ns, at->end_ns);
      piece.call = at->call;
      piece.path = calls_[at->call].path;
      ++at;
    } else {
      if (at != segments.end()) piece.end_ns = std::min(end_ns, at->begin_ns);
      cut_at_wait(thread, piece);
    }
    begin_ns = piece.end_ns;
    visit_states(thread, piece, visit);
  }
}

// Ends the piece where a wait for a GPU begins or ends.
void HostTime::cut_at_wait(uint32_t thread, HostPiece& piece) const {
  const std::vector<Wait>& waits = threads_[thread].waits;
  const auto wait = std::ranges::partition_point(
      waits, [&](const Wait& one) { return one.end_ns <= piece.begin_ns; });
  if (wait == waits.end()) return;
  piece.is_gpu_wait = wait->begin_ns <= piece.begin_ns;
  piece.end_ns = std::min(piece.end_ns, piece.is_gpu_wait ? wait->end_ns : wait->begin_ns);
}

void HostTime::visit_states(uint32_t thread, HostPiece piece,
                            const std::function<void(const HostPiece&)>& visit) {
  const std::vector<uint32_t>& states = threads_[thread].states;
  const uint64_t end_ns = piece.end_ns;
  auto at = std::ranges::partition_point(states, [&](uint32_t time) {
    return get_end(capture_.thread_times[time]) <= piece.begin_ns;
  });
  for (; piece.begin_ns < end_ns; piece.begin_ns = piece.end_ns) {
    const CaptureThreadTime* time = at == states.end() ? nullptr : &capture_.thread_times[*at];
    if (time == nullptr || time->start_mono_ns > piece.begin_ns) {
      piece.end_ns = time == nullptr ? end_ns : std::min(end_ns, time->start_mono_ns);
      visit_on_cpu(thread, piece, visit);
      continue;
    }
    HostPiece away = piece;
    away.end_ns = piece.end_ns = std::min(end_ns, get_end(*time));
    away.time = *at++;
    if (time->stack < capture_.stacks.size()) {
      away.path = table_.find_stack_path(thread, time->stack);
    } else if (away.call == kNoIndex) {
      away.path = find_path_near(thread, time->start_mono_ns, get_end(*time));
      away.is_estimated = true;
    }
    visit(away);
  }
}

// Each sample stands for the time up to the middle between it and the next.
void HostTime::visit_on_cpu(uint32_t thread, HostPiece piece,
                            const std::function<void(const HostPiece&)>& visit) {
  const std::vector<uint32_t>& samples = threads_[thread].samples;
  const auto start_of = [&](uint32_t time) { return capture_.thread_times[time].start_mono_ns; };
  auto at = std::ranges::partition_point(
      samples, [&](uint32_t time) { return start_of(time) < piece.begin_ns; });
  if (at == samples.end() || start_of(*at) >= piece.end_ns) {
    if (piece.call == kNoIndex) {
      piece.path = find_path_near(thread, piece.begin_ns, piece.end_ns);
      piece.is_estimated = true;
    }
    return visit(piece);
  }
  const uint64_t end_ns = piece.end_ns;
  for (; piece.begin_ns < end_ns; piece.begin_ns = piece.end_ns) {
    piece.time = *at++;
    const bool is_last = at == samples.end() || start_of(*at) >= end_ns;
    const uint64_t here_ns = start_of(piece.time);
    piece.end_ns = is_last ? end_ns : here_ns + (start_of(*at) - here_ns) / 2;
    HostPiece sampled = piece;
    const uint32_t stack = capture_.thread_times[piece.time].stack;
    if (sampled.call == kNoIndex) {
      sampled.path = stack < capture_.stacks.size()
                         ? table_.find_stack_path(thread, stack)
                         : find_path_near(thread, sampled.begin_ns, sampled.end_ns);
      sampled.is_estimated = true;
    }
    if (sampled.begin_ns < sampled.end_ns) visit(sampled);
  }
}

// What the stacks before and after it have in common; kNoIndex = neither is near.
uint32_t HostTime::find_path_near(uint32_t thread, uint64_t begin_ns, uint64_t end_ns) {
  const std::vector<Evidence>& evidence = threads_[thread].evidence;
  const auto after = std::ranges::partition_point(
      evidence, [&](const Evidence& one) { return one.at_ns < end_ns; });
  const auto next = std::ranges::partition_point(
      evidence, [&](const Evidence& one) { return one.at_ns <= begin_ns; });
  uint32_t path = kNoIndex;
  if (next != evidence.begin() && begin_ns - std::prev(next)->at_ns < kNearNs) {
    path = std::prev(next)->path;
  }
  // A wait without a stack of its own begins just behind one that has one.
  const bool is_just_before =
      path != kNoIndex && begin_ns - std::prev(next)->at_ns < kStackIntervalNs;
  if (is_just_before && end_ns - begin_ns >= kStackIntervalNs) return path;
  if (after != evidence.end() && after->at_ns - end_ns < kNearNs) {
    path = path == kNoIndex ? after->path : table_.find_common_path(path, after->path);
  }
  return path;
}

uint32_t HostTime::find_call(uint32_t thread, uint64_t at_ns) const {
  const std::vector<Segment>& segments = threads_[thread].segments;
  const auto at = std::ranges::partition_point(
      segments, [&](const Segment& segment) { return segment.end_ns <= at_ns; });
  return at != segments.end() && at->begin_ns <= at_ns ? at->call : kNoIndex;
}

bool HostTime::is_waiting_for_gpu(uint32_t thread, uint64_t at_ns) const {
  const std::vector<Wait>& waits = threads_[thread].waits;
  const auto after =
      std::ranges::partition_point(waits, [&](const Wait& wait) { return wait.begin_ns <= at_ns; });
  return after != waits.begin() && std::prev(after)->end_ns >= at_ns;
}

bool HostTime::has_call_in(uint32_t thread, uint64_t begin_ns, uint64_t end_ns) const {
  const std::vector<Segment>& segments = threads_[thread].segments;
  const auto at = std::ranges::partition_point(
      segments, [&](const Segment& segment) { return segment.end_ns <= begin_ns; });
  return at != segments.end() && at->begin_ns < end_ns;
}

}  // namespace gpuperf
