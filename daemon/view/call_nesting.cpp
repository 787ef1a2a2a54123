#include "daemon/view/call_nesting.h"

#include <algorithm>
#include <tuple>

namespace gpuperf {

namespace {

uint32_t get_thread(const Capture& capture, const NestedCall& call) {
  return call.call != kNoIndex ? capture.calls[call.call].thread
                               : capture.launches[call.launch].thread;
}

uint32_t get_function(const Capture& capture, const NestedCall& call) {
  return call.call != kNoIndex ? capture.calls[call.call].function
                               : capture.launches[call.launch].function;
}

bool has_same_name(const Capture& capture, uint32_t one, uint32_t other) {
  if (one >= capture.functions.size() || other >= capture.functions.size()) return false;
  return one == other || capture.functions[one].name == capture.functions[other].name;
}

// By thread, then outer ones first.
std::vector<NestedCall> list_calls(const Capture& capture) {
  std::vector<NestedCall> calls;
  calls.reserve(capture.calls.size() + capture.launches.size());
  for (uint32_t index = 0; index < capture.calls.size(); ++index) {
    const CaptureCall& call = capture.calls[index];
    calls.push_back({.call = index,
                     .start_mono_ns = call.start_mono_ns,
                     .duration_ns = call.duration_ns,
                     .self_off_cpu_ns = std::min(call.off_cpu_ns, call.duration_ns)});
  }
  for (uint32_t index = 0; index < capture.launches.size(); ++index) {
    const CaptureLaunch& launch = capture.launches[index];
    if (launch.duration_ns == 0 || launch.thread >= capture.threads.size()) continue;
    calls.push_back({.launch = index,
                     .start_mono_ns = launch.start_mono_ns,
                     .duration_ns = launch.duration_ns});
  }
  const auto key = [&](const NestedCall& call) {
    const uint32_t depth = call.call != kNoIndex ? capture.calls[call.call].depth : kNoIndex;
    return std::tuple(get_thread(capture, call), call.start_mono_ns, ~call.duration_ns, depth);
  };
  std::sort(calls.begin(), calls.end(), [&](const NestedCall& left, const NestedCall& right) {
    return key(left) < key(right);
  });
  return calls;
}

uint64_t get_end(const NestedCall& call) { return call.start_mono_ns + call.duration_ns; }

// Takes `inner` out of the time of the call around it.
void subtract(NestedCall& outer, const NestedCall& inner) {
  outer.self_ns -= std::min(outer.self_ns, inner.duration_ns);
  outer.self_off_cpu_ns -= std::min(outer.self_off_cpu_ns, inner.self_off_cpu_ns);
}

// Finds the call around each, cuts what reaches out of it, and merges launches into the probed
// calls that they are.
// In place: there may be millions.
void nest_by_time(const Capture& capture, std::vector<NestedCall>& calls) {
  size_t kept = 0;
  std::vector<uint32_t> open;
  uint32_t thread = kNoIndex;
  for (size_t index = 0; index < calls.size(); ++index) {
    NestedCall call = calls[index];
    if (get_thread(capture, call) != thread) open.clear();
    thread = get_thread(capture, call);
    while (!open.empty() && get_end(calls[open.back()]) <= call.start_mono_ns) open.pop_back();
    if (!open.empty()) {
      NestedCall& outer = calls[open.back()];
      if (call.launch != kNoIndex && outer.call != kNoIndex && outer.launch == kNoIndex &&
          has_same_name(capture, get_function(capture, call), get_function(capture, outer))) {
        outer.launch = call.launch;
        continue;
      }
      call.duration_ns = std::min(call.duration_ns, get_end(outer) - call.start_mono_ns);
      call.outer = open.back();
      call.depth = outer.depth + 1;
    }
    open.push_back(static_cast<uint32_t>(kept));
    calls[kept++] = call;
  }
  calls.resize(kept);
}

// From the innermost ones outwards: `self_off_cpu_ns` of each is of the whole call before.
void find_own_times(std::vector<NestedCall>& nested) {
  std::vector<uint64_t> whole_off_ns(nested.size());
  for (size_t index = 0; index < nested.size(); ++index) {
    NestedCall& call = nested[index];
    call.self_ns = call.duration_ns;
    call.self_off_cpu_ns = std::min(call.self_off_cpu_ns, call.duration_ns);
    whole_off_ns[index] = call.self_off_cpu_ns;
  }
  for (size_t index = nested.size(); index-- > 0;) {
    if (nested[index].outer == kNoIndex) continue;
    NestedCall whole = nested[index];
    whole.self_off_cpu_ns = whole_off_ns[index];
    subtract(nested[nested[index].outer], whole);
  }
  // Of launches off-CPU time is not known: what the call around one cannot have spent by itself
  // was spent in there.
  std::vector<uint64_t> excess(nested.size());
  for (size_t index = 0; index < nested.size(); ++index) {
    NestedCall& call = nested[index];
    if (call.call == kNoIndex && call.outer != kNoIndex) {
      uint64_t& left = excess[call.outer];
      const uint64_t taken = std::min(left, call.self_ns);
      call.self_off_cpu_ns += taken;
      left -= taken;
    }
    if (call.self_off_cpu_ns > call.self_ns) {
      excess[index] = call.self_off_cpu_ns - call.self_ns;
      call.self_off_cpu_ns = call.self_ns;
    }
  }
}

void find_paths(const Capture& capture, PathTable& table, std::vector<NestedCall>& nested) {
  const auto has_stack = [&](const NestedCall& call) {
    return call.call != kNoIndex && capture.calls[call.call].stack < capture.stacks.size();
  };
  for (NestedCall& call : nested) {
    if (call.launch == kNoIndex || has_stack(call)) continue;
    if (capture.launches[call.launch].stack >= capture.stacks.size()) continue;
    call.path = table.find_path(capture.launches[call.launch]);
    for (uint32_t outer = call.outer; outer != kNoIndex; outer = nested[outer].outer) {
      NestedCall& around = nested[outer];
      if (around.path != kNoIndex || has_stack(around)) break;
      around.path = table.find_outer_path(call.path, get_function(capture, around));
    }
  }
  for (NestedCall& call : nested) {
    if (call.path != kNoIndex) continue;
    const uint32_t outer = call.outer == kNoIndex ? kNoIndex : nested[call.outer].path;
    if (call.call != kNoIndex) {
      call.path = table.find_call_path(capture.calls[call.call], outer);
    } else if (outer != kNoIndex) {
      call.path = table.find_inner_path(outer, capture.launches[call.launch].function);
    } else {
      call.path = table.find_path(capture.launches[call.launch]);
    }
  }
}

}  // namespace

std::vector<NestedCall> nest_calls(const Capture& capture, PathTable& table) {
  std::vector<NestedCall> nested = list_calls(capture);
  nest_by_time(capture, nested);
  find_own_times(nested);
  find_paths(capture, table, nested);
  return nested;
}

}  // namespace gpuperf
