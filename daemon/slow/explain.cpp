#include "daemon/slow/explain.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "daemon/model/call_role.h"
#include "daemon/model/display_text.h"
#include "daemon/slow/explain_gpu.h"
#include "daemon/slow/explain_rules.h"
#include "daemon/slow/explain_text.h"

namespace gpuperf {
namespace {

// Below that a part is not worth a word beside the one that dominates.
constexpr double kSecondShare = 0.2;
// A call that spends that much inside other probed calls is explained by them.
constexpr double kChildrenShare = 0.5;

bool contains_any(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::ranges::any_of(
      parts, [text](std::string_view part) { return text.find(part) != std::string_view::npos; });
}

// The parts of the time that can dominate.
enum class Part { kUser, kKernel, kFault, kRunnable, kThrottled, kBlocked };

struct Facts {
  const SlowCall& call;
  CallRole role = CallRole::kOther;
  TimeParts parts;
  Part main = Part::kUser;
  uint64_t main_ns = 0;                // of kBlocked, on `wait` alone
  WaitKind wait = WaitKind::kOther;    // the longest kind; of kBlocked only
  const Wait* longest = nullptr;       // the longest wait described of that kind; null = none
  const WaitStacks* stacks = nullptr;  // null likewise
};

uint64_t get_part_ns(const TimeParts& parts, Part part) {
  switch (part) {
    case Part::kUser:
      return parts.on_cpu_user_ns;
    case Part::kKernel:
      return parts.on_cpu_kernel_ns;
    case Part::kFault:
      return parts.on_cpu_fault_ns;
    case Part::kRunnable:
      return parts.runnable_ns;
    case Part::kThrottled:
      return parts.throttled_ns;
    case Part::kBlocked:
      return get_blocked_ns(parts);
  }
  return 0;  // only reached with a value outside the enum
}

std::string_view get_part_words(Part part) {
  switch (part) {
    case Part::kUser:
      return "on the CPU in user space";
    case Part::kKernel:
      return "on the CPU in system calls";
    case Part::kFault:
      return "on the CPU in page faults";
    case Part::kRunnable:
      return "waiting for a CPU";
    case Part::kThrottled:
      return "throttled by its cgroup";
    case Part::kBlocked:
      return "blocked";
  }
  return "";  // only reached with a value outside the enum
}

constexpr Part kParts[] = {Part::kUser,     Part::kKernel,    Part::kFault,
                           Part::kRunnable, Part::kThrottled, Part::kBlocked};

Facts find_facts(const SlowCall& call) {
  Facts facts{.call = call, .role = find_call_role(call.category, call.function)};
  facts.parts = make_time_parts(*call.event.split, call.event.duration_ns);
  for (const Part part : kParts) {
    const uint64_t part_ns = get_part_ns(facts.parts, part);
    if (part_ns <= facts.main_ns) continue;
    facts.main = part;
    facts.main_ns = part_ns;
  }
  facts.wait = find_main_wait(facts.parts).value_or(WaitKind::kOther);
  if (facts.main == Part::kBlocked) {
    facts.main_ns = facts.parts.blocked_ns[static_cast<size_t>(facts.wait)];
  }
  const auto& waits = call.event.waits;
  const auto longest = std::ranges::find(waits, facts.wait, &Wait::kind);
  if (longest == waits.end()) return facts;
  facts.longest = &*longest;
  const auto index = static_cast<size_t>(longest - waits.begin());
  if (index < call.wait_stacks.size()) facts.stacks = &call.wait_stacks[index];
  return facts;
}

bool is_blocked_on(const Facts& facts, WaitKind kind) {
  return facts.main == Part::kBlocked && facts.wait == kind;
}

// By its name and return type: many a function takes standard types.
bool is_of_standard_library(std::string_view symbol) {
  return contains_any(symbol.substr(0, symbol.find_first_of("(<")), {"std::", "_ZSt"});
}

// The innermost function that says something; the whole stack is in the record.
std::string find_telling_symbol(const std::vector<StackFrame>& stack) {
  constexpr size_t kMaxBytes = 100;
  for (const StackFrame& frame : stack) {
    if (frame.symbol.empty() || is_of_standard_library(frame.symbol)) continue;
    return shorten_explained(to_valid_utf8(frame.symbol), kMaxBytes);
  }
  return "";
}

std::string describe_waker(const Facts& facts) {
  if (facts.longest == nullptr || facts.longest->waker.tid == 0) return "";
  const Waker& waker = facts.longest->waker;
  std::string text = fmt::format(", woken by {}thread {} ({})", waker.is_kernel ? "kernel " : "",
                                 waker.tid, to_valid_utf8(waker.comm));
  if (!waker.is_kernel && waker.pid != facts.call.event.process.pid) {
    text += fmt::format(" of process {}", waker.pid);
  }
  if (facts.stacks == nullptr) return text;
  const std::string function = find_telling_symbol(get_frames(facts.stacks->waker));
  return function.empty() ? text : text + " in " + function;
}

// " in ioctl of device nvidia-uvm"
std::string describe_wait_place(const Facts& facts) {
  if (facts.longest == nullptr) return "";
  const std::string syscall = get_syscall_name(facts.longest->syscall);
  if (syscall.empty()) return "";
  std::string text = " in " + syscall;
  const std::string_view kind = get_file_kind_name(facts.longest->file_mode);
  if (!kind.empty()) text += fmt::format(" of a {}", kind);
  if (!facts.longest->file_name.empty()) text += " " + to_valid_utf8(facts.longest->file_name);
  return text;
}

bool is_waker_python(const Facts& facts) {
  if (facts.stacks == nullptr) return false;
  return std::ranges::any_of(get_frames(facts.stacks->waker), [](const StackFrame& frame) {
    return contains_any(frame.symbol, {"drop_gil", "PyEval_ReleaseThread", "PyEval_SaveThread"});
  });
}

// A function of the runtime that hands its work to the one of the driver (cudaMalloc to cuMemAlloc)
// is explained like it.
bool is_passed_on(const Facts& facts, const NamedCalls& child) {
  return facts.role != CallRole::kOther &&
         facts.role == find_call_role(child.category, child.function);
}

// In the nested calls that are an explanation.
uint64_t sum_children_ns(const Facts& facts) {
  uint64_t sum_ns = 0;
  for (const NamedCalls& child : facts.call.children) {
    if (!is_passed_on(facts, child)) sum_ns += child.total_ns;
  }
  return sum_ns;
}

// How fast a copy went; 0 = not a copy, or its size is not known.
double find_copy_bytes_per_ns(const Facts& facts) {
  for (const ArgumentText& argument : facts.call.arguments) {
    if (argument.name != "bytes") continue;
    const double bytes = std::strtod(argument.value.c_str(), nullptr);
    return bytes / static_cast<double>(facts.call.event.duration_ns);
  }
  return 0;
}

// Sets have no source; copies between devices touch no host memory.
bool is_copy_of_host_memory(const Facts& facts) {
  const bool is_within_devices = std::ranges::any_of(
      facts.call.arguments,
      [](const ArgumentText& argument) { return argument.value == "device_to_device"; });
  return facts.role == CallRole::kCopy && !is_within_devices &&
         !contains_any(facts.call.function, {"Memset", "DtoD", "Peer"});
}

// In the ways the driver waits: spinning, with system calls to give the CPU away, and asleep.
uint64_t get_driver_wait_ns(const TimeParts& parts) {
  return parts.on_cpu_user_ns + parts.on_cpu_kernel_ns +
         parts.blocked_ns[static_cast<size_t>(WaitKind::kGpu)] +
         parts.blocked_ns[static_cast<size_t>(WaitKind::kPoll)];
}

// The thread waits as the driver does.
bool waits_for_gpu(const Facts& facts, GpuReason reason) {
  const bool by_driver = is_blocked_on(facts, WaitKind::kGpu) ||
                         is_blocked_on(facts, WaitKind::kPoll) || facts.main == Part::kUser ||
                         facts.main == Part::kKernel;
  return by_driver && find_gpu_reason(facts.call) == reason;
}

// The first rule that applies explains the call. The order is part of the rules.
struct Rule {
  std::string_view name;
  bool (*applies)(const Facts&);
  std::string (*describe)(const Facts&);
};

template <GpuReason kReason>
constexpr Rule make_gpu_rule(std::string_view name) {
  return {name, [](const Facts& facts) { return waits_for_gpu(facts, kReason); },
          [](const Facts& facts) {
            return describe_gpu_reason(facts.call, kReason, get_driver_wait_ns(facts.parts));
          }};
}

constexpr Rule kRules[] = {
    {"nested",
     [](const Facts& facts) {
       return static_cast<double>(sum_children_ns(facts)) >=
              kChildrenShare * static_cast<double>(facts.call.event.duration_ns);
     },
     [](const Facts& facts) {
       const NamedCalls& most = *std::ranges::find_if(
           facts.call.children,
           [&facts](const NamedCalls& child) { return !is_passed_on(facts, child); });
       const uint32_t pid = facts.call.event.process.pid;
       if (most.category.empty()) {  // "other": no name to look for
         return fmt::format(
             "{} went into {} nested calls of other functions. List them: gpuperfctl slow list "
             "--pid {}.",
             format_explained_time(most.total_ns), most.calls, pid);
       }
       return fmt::format(
           "{} went into {} nested call{} of {}. Look at {}: gpuperfctl slow list --function '{}' "
           "--pid {}.",
           format_explained_time(most.total_ns), most.calls, most.calls == 1 ? "" : "s",
           most.function, most.calls == 1 ? "that one" : "those", most.function, pid);
     }},
    {"throttled", [](const Facts& facts) { return facts.main == Part::kThrottled; },
     [](const Facts& facts) {
       return fmt::format(
           "The thread was ready to run for {}, but its cgroup had used up its CPU quota. Raise "
           "the CPU limit (resources.limits.cpu, cpu.max) or use fewer threads.",
           format_explained_time(facts.main_ns));
     }},
    {"no_cpu", [](const Facts& facts) { return facts.main == Part::kRunnable; },
     [](const Facts& facts) {
       return fmt::format(
           "The thread was ready to run for {} but had no CPU (preempted {} times). The CPUs it "
           "may use are busy: check its affinity (taskset -p {}), its cpuset and what else runs "
           "there.",
           format_explained_time(facts.main_ns), facts.call.event.split->preemptions,
           facts.call.event.tid);
     }},
    {"gil",
     [](const Facts& facts) {
       return is_blocked_on(facts, WaitKind::kFutex) && is_waker_python(facts);
     },
     [](const Facts& facts) {
       return fmt::format(
           "Blocked {} on Python's interpreter lock (GIL){}. Another thread ran Python code: look "
           "at the waker's stack.",
           format_explained_time(facts.main_ns), describe_waker(facts));
     }},
    {"futex", [](const Facts& facts) { return is_blocked_on(facts, WaitKind::kFutex); },
     [](const Facts& facts) {
       const std::string waker = describe_waker(facts);
       return fmt::format(
           "Blocked {} on a futex{}. {}", format_explained_time(facts.main_ns), waker,
           waker.empty() ? "It waits for a lock, a condition or a thread: look at the stacks."
                         : "That thread held the lock or did the work that this one waited for: "
                           "look at the waker's stack.");
     }},
    make_gpu_rule<GpuReason::kQueue>("gpu_queue"),
    make_gpu_rule<GpuReason::kOthers>("gpu_others"),
    make_gpu_rule<GpuReason::kWork>("gpu_work"),
    make_gpu_rule<GpuReason::kIdle>("gpu_idle"),
    {"gpu_sync",
     [](const Facts& facts) {
       return facts.role == CallRole::kSync &&
              (is_blocked_on(facts, WaitKind::kGpu) || is_blocked_on(facts, WaitKind::kPoll) ||
               facts.main == Part::kUser || facts.main == Part::kKernel);
     },
     [](const Facts& facts) {
       return fmt::format(
           "Waited {} for the GPU to finish what was queued before, {}. The GPU work takes the "
           "time: look at the kernels launched before this call.",
           format_explained_time(facts.main_ns),
           facts.main == Part::kBlocked ? "blocked" : "spinning on the CPU");
     }},
    {"allocation",
     [](const Facts& facts) {
       const bool by_driver = facts.main == Part::kUser || facts.main == Part::kKernel ||
                              is_blocked_on(facts, WaitKind::kGpu);
       return by_driver && (facts.role == CallRole::kAllocate || facts.role == CallRole::kFree);
     },
     [](const Facts& facts) {
       const std::string returned = format_return_value(facts.call);
       return fmt::format(
           "{} went into the driver's memory management ({}{}). {} {}Allocate once and reuse (a "
           "caching allocator); check how full the GPU's memory is.",
           format_explained_time(facts.main_ns), get_part_words(facts.main),
           facts.main == Part::kBlocked ? describe_wait_place(facts) : "",
           facts.role == CallRole::kFree ? "Freeing waits for the GPU to be idle."
                                         : "Memory must be allocated, mapped and cleared.",
           contains_any(returned, {"MemoryAllocation", "OUT_OF_MEMORY"})
               ? "The GPU was out of memory. "
               : "");
     }},
    {"gpu_driver", [](const Facts& facts) { return is_blocked_on(facts, WaitKind::kGpu); },
     [](const Facts& facts) {
       return fmt::format(
           "Blocked {} in the GPU driver{}. The driver waited for the device or for its own lock: "
           "look at the kernel stack, and at other threads that use the same GPU (gpuperfctl top).",
           format_explained_time(facts.main_ns), describe_wait_place(facts));
     }},
    {"io", [](const Facts& facts) { return is_blocked_on(facts, WaitKind::kIo); },
     [](const Facts& facts) {
       return fmt::format("Blocked {}{}{}. The other end or the disk is slow.",
                          format_explained_time(facts.main_ns), describe_wait_place(facts),
                          describe_waker(facts));
     }},
    {"poll", [](const Facts& facts) { return is_blocked_on(facts, WaitKind::kPoll); },
     [](const Facts& facts) {
       return fmt::format(
           "Blocked {}{}, waiting for an event{}. Find out what should have sent it.",
           format_explained_time(facts.main_ns), describe_wait_place(facts), describe_waker(facts));
     }},
    {"sleep", [](const Facts& facts) { return is_blocked_on(facts, WaitKind::kSleep); },
     [](const Facts& facts) {
       return fmt::format(
           "Slept {}{}: the code requested the delay (a back-off, a polling loop). Look at the "
           "caller's stack.",
           format_explained_time(facts.main_ns), describe_wait_place(facts));
     }},
    {"page_wait", [](const Facts& facts) { return is_blocked_on(facts, WaitKind::kFault); },
     [](const Facts& facts) {
       return fmt::format(
           "Blocked {} in page faults ({} of them needed the disk){}. Memory was read from a file "
           "or swap, or another thread changed the mappings meanwhile: look at the kernel stack.",
           format_explained_time(facts.main_ns), facts.call.event.split->major_faults,
           describe_waker(facts));
     }},
    {"blocked", [](const Facts& facts) { return facts.main == Part::kBlocked; },
     [](const Facts& facts) {
       return fmt::format("Blocked {}{}{}. Look at the kernel stack of the longest wait.",
                          format_explained_time(facts.main_ns), describe_wait_place(facts),
                          describe_waker(facts));
     }},
    {"page_faults", [](const Facts& facts) { return facts.main == Part::kFault; },
     [](const Facts& facts) {
       return fmt::format(
           "{} went into {} page faults: memory touched for the first time, which the Linux kernel "
           "must allocate and clear. Reuse buffers, or touch them earlier (MAP_POPULATE, huge "
           "pages).",
           format_explained_time(facts.main_ns), facts.call.event.split->minor_faults);
     }},
    {"pageable_copy",
     [](const Facts& facts) {
       constexpr double kPinnedBytesPerNs =
           15;  // PCIe 4 x16 moves 25, staging through a bounce 4 to 10
       const double rate = find_copy_bytes_per_ns(facts);
       return is_copy_of_host_memory(facts) && (contains_any(facts.call.function, {"Async"}) ||
                                                (rate > 0 && rate < kPinnedBytesPerNs));
     },
     [](const Facts& facts) {
       const double rate = find_copy_bytes_per_ns(facts);
       return fmt::format(
           "The copy kept the CPU busy for {}{}: its host memory is most likely pageable, so the "
           "driver stages it through a pinned buffer. Use pinned memory (cudaHostAlloc, "
           "pin_memory=True) and an asynchronous copy.",
           format_explained_time(facts.main_ns),
           rate > 0 ? fmt::format(" ({:.1f} GB/s)", rate) : "");
     }},
    {"copy", [](const Facts& facts) { return facts.role == CallRole::kCopy; },
     [](const Facts& facts) {
       return fmt::format(
           "The copy waited {} {}: for its bytes, and for all work queued before it. Look at the "
           "kernels launched before, or copy asynchronously.",
           format_explained_time(facts.main_ns), get_part_words(facts.main));
     }},
    {"first_use",
     [](const Facts& facts) {
       return facts.role == CallRole::kLoad || facts.role == CallRole::kLaunch;
     },
     [](const Facts& facts) {
       return fmt::format(
           "It spent {} {}. A first use loads code and sets up the device; a launch also waits "
           "when its queue is full. If it happens again, look at the stack.",
           format_explained_time(facts.main_ns), get_part_words(facts.main));
     }},
    {"collective", [](const Facts& facts) { return facts.role == CallRole::kCollective; },
     [](const Facts& facts) {
       return fmt::format(
           "It spent {} {}. The call waits for other ranks (a connection, an earlier collective): "
           "find the rank that has not reached it.",
           format_explained_time(facts.main_ns), get_part_words(facts.main));
     }},
    {"system_calls", [](const Facts& facts) { return facts.main == Part::kKernel; },
     [](const Facts& facts) {
       return fmt::format(
           "{} went into system calls on the CPU. See which ones: strace -c -p {}, or perf trace.",
           format_explained_time(facts.main_ns), facts.call.event.tid);
     }},
    {"computing", [](const Facts&) { return true; },
     [](const Facts& facts) {
       return fmt::format(
           "{} went into computation in user space. Look at the caller's stack, or sample it: perf "
           "record -t {}.",
           format_explained_time(facts.main_ns), facts.call.event.tid);
     }},
};

const Rule& find_rule(const Facts& facts) {
  return *std::ranges::find_if(kRules, [&](const Rule& rule) { return rule.applies(facts); });
}

std::string describe_second(const Facts& facts) {
  std::string text;
  const auto add = [&](uint64_t part_ns, std::string_view words) {
    const bool large = static_cast<double>(part_ns) >=
                       kSecondShare * static_cast<double>(facts.call.event.duration_ns);
    if (large) text += fmt::format(" Also {} {}.", format_explained_time(part_ns), words);
  };
  for (const Part part : kParts) {
    if (part != facts.main) add(get_part_ns(facts.parts, part), get_part_words(part));
  }
  if (facts.main == Part::kBlocked) {
    add(get_blocked_ns(facts.parts) - facts.main_ns, "blocked on other things");
  }
  return text;
}

}  // namespace

std::vector<std::string_view> list_explanation_rules() {
  std::vector<std::string_view> names{"unknown"};
  for (const Rule& rule : kRules) names.push_back(rule.name);
  return names;
}

std::string_view find_explanation_rule(const SlowCall& call) {
  if (!call.event.split || call.event.duration_ns == 0) return "unknown";
  return find_rule(find_facts(call)).name;
}

std::string explain(const SlowCall& call) {
  if (!call.event.split || call.event.duration_ns == 0) return "";
  const Facts facts = find_facts(call);
  // Functions found by a pattern are named by their file.
  return to_valid_utf8((call.event.in_flight ? "Still in flight. " : "") +
                       find_rule(facts).describe(facts) + describe_second(facts));
}

}  // namespace gpuperf
