// What taking a stack adds to a probed call: ours, the kernel's walk by frame pointers, copies of
// the stack for a walk in user space, and bpftrace, in one run, interleaved: read the ratios.
//
// usage: stack_cost [ROUNDS [CALLS [ways]]]     root; a round of 10,000 calls takes some ten
// seconds Stacks of 8 to 120 frames of code without frame pointers and with them ("fp"), of the
// former such whose innermost ten ("in") or all frames change from call to call, and of a Python
// process. ways: instead, stacks that take one of 64 ways inside of common frames, each another one
// than the call before, also with caches that hold nothing of them. Prints two tables, nanoseconds
// a stack and frames found of those there are, and a JSON line. A figure is the 15th percentile of
// the rounds, less that of the same probe without a stack.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/bench/stack_programs.h"
#include "tests/bench/stack_workload.h"
#include "tests/bench/timing.h"
#include "tests/bench/tool_probe.h"

namespace gpuperf::bench {
namespace {

constexpr uint64_t kCallsAtOnce = 128;  // between two drains of the rings
constexpr uint64_t kWarmUpCalls = 1000;
constexpr uint64_t kLookCalls = 200;
constexpr double kProbedNs = 150;  // a call without a probe takes a few nanoseconds
constexpr const char* kUserWalk = "user_walk";
constexpr const char* kLookUp = "ours_look_up";  // with no rules kept but the last walk's
constexpr const char* kAnew = "ours_anew";  // a full walk: with nothing kept from the one before

enum class Kind { kProgram, kOurs, kCopy, kBpftrace };

struct Method {
  const char* name = nullptr;
  Kind kind = Kind::kProgram;
  const char* what = nullptr;   // the BPF program, or what bpftrace is told to do
  const char* floor = nullptr;  // what is subtracted; null = it is one
};

constexpr Method kMethods[] = {
    {"empty", Kind::kProgram, "take_nothing", nullptr},
    {"frame_pointers", Kind::kProgram, "take_frame_pointers", "empty"},
    {"ours", Kind::kOurs, "take_ours", "empty"},
    {kLookUp, Kind::kOurs, "take_ours", "empty"},
    {kAnew, Kind::kOurs, "take_ours", "empty"},
    {"ours_sent", Kind::kOurs, "take_ours_new", "empty"},
    {"copy_8_kib", Kind::kCopy, "take_copy_8", "empty"},
    {"copy_16_kib", Kind::kCopy, "take_copy_16", "empty"},
    {"copy_32_kib", Kind::kCopy, "take_copy_32", "empty"},
    {"copy_64_kib", Kind::kCopy, "take_copy_64", "empty"},
    {"bpftrace_count", Kind::kBpftrace, "@ = count();", nullptr},
    {"bpftrace_ustack", Kind::kBpftrace, "@[ustack] = count();", "bpftrace_count"},
    {"bpftrace_perf", Kind::kBpftrace, "@[ustack(perf)] = count();", "bpftrace_count"},
};

// Of one workload.
struct Found {
  std::optional<size_t> by_frame_pointers;
  std::optional<size_t> by_ours;
  std::optional<size_t> by_user_walk;
  size_t python = 0;
  std::optional<uint64_t> stack_bytes;  // from the caller of the probed function to the first
};

class Bench {
 public:
  // `look_up`, `anew`: the programs of kLookUp and kAnew.
  Bench(StackPrograms& programs, StackPrograms& look_up, StackPrograms& anew,
        std::span<const StackLibrary> libraries, std::vector<StackWorkload> workloads,
        uint64_t calls)
      : kept_(programs),
        look_up_(look_up),
        anew_(anew),
        libraries_(libraries),
        workloads_(std::move(workloads)),
        calls_(calls) {}

  // False: the machine cannot do what is compared.
  bool run_round() {
    for (const Method& method : kMethods) {
      programs_ = method.name == kAnew ? &anew_ : method.name == kLookUp ? &look_up_ : &kept_;
      if (failures_.contains(method.name)) continue;
      Result<Detach> detach = attach(method);
      if (!detach.ok()) {
        fail(method, detach.status());
        if (method.kind == Kind::kBpftrace) continue;
        return false;
      }
      for (const StackWorkload& workload : workloads_) measure(method, workload);
      (*detach)();
    }
    return true;
  }

  // Other tools may be missing, nothing else.
  bool has_failed() const {
    return std::ranges::any_of(kMethods, [this](const Method& method) {
      return method.kind != Kind::kBpftrace && failures_.contains(method.name);
    });
  }

  void print() const {
    for (const auto& [method, reason] : failures_) {
      std::printf("%s: not measured: %s\n", method.c_str(), reason.c_str());
    }
    print_header("ns/stack");
    for (const Method& method : kMethods) print_times(method.name);
    print_times(kUserWalk);
    print_ratios(kAnew);
    print_ratios(kLookUp);
    print_header("frames");
    print_row("there are", [](const StackWorkload& workload, const Found&) {
      return std::optional(workload.frames);
    });
    print_row("frame_pointers", [](const auto&, const Found& f) { return f.by_frame_pointers; });
    print_row("ours", [](const auto&, const Found& f) { return f.by_ours; });
    print_row(kUserWalk, [](const auto&, const Found& f) { return f.by_user_walk; });
    print_row("ours, of Python", [](const StackWorkload& workload, const Found& f) {
      return workload.python_frames != 0 ? std::optional(f.python) : std::nullopt;
    });
    print_row("stack, bytes", [](const auto&, const Found& f) { return f.stack_bytes; });
    print_json();
  }

 private:
  using Key = std::pair<std::string, std::string>;  // method, workload

  void fail(const Method& method, const Status& status) {
    failures_[method.name] = status.ToString();
  }

  Result<Detach> attach(const Method& method) {
    if (method.kind != Kind::kBpftrace) return programs_->attach(method.what, libraries_);
    std::string script;
    for (const StackLibrary& library : libraries_) {
      script += (script.empty() ? "uprobe:" : ",uprobe:") + library.path + ":stack_target";
    }
    return attach_tool({"bpftrace", "-e", script + " { " + method.what + " }"}, [this] {
      // The last probe to come is in the second library: with frame pointers.
      return std::ranges::all_of(workloads_, [](const StackWorkload& workload) {
        return workload.run_ns(kLookCalls) > kProbedNs * kLookCalls;
      });
    });
  }

  void measure(const Method& method, const StackWorkload& workload) {
    if (method.kind == Kind::kCopy && !workload.has_room_above) return;
    if (method.kind == Kind::kOurs && !learn(method, workload)) return;
    (void)run_calls(workload, kWarmUpCalls);
    const uint64_t sent_before = programs_->sent_count();
    const uint64_t losses_before = programs_->count_losses();
    const double ns_per_call = run_calls(workload, calls_);
    if (programs_->count_losses() != losses_before ||
        (programs_->sent_count() != sent_before && method.what == std::string("take_ours"))) {
      fail(method, absl::DataLossError(workload.name + ": not every call took its stack"));
      return;
    }
    add(method.name, workload, ns_per_call);
    note_found(method, workload);
  }

  double run_calls(const StackWorkload& workload, uint64_t calls) {
    double sum_ns = 0;
    uint64_t done = 0;
    for (; done < calls; done += kCallsAtOnce) {
      sum_ns += workload.run_ns(kCallsAtOnce);
      programs_->drain();
    }
    return sum_ns / static_cast<double>(done);
  }

  bool learn(const Method& method, const StackWorkload& workload) {
    const auto stack = programs_->learn(workload);
    if (!stack.ok()) {
      fail(method, stack.status());
      return false;
    }
    if (!*stack) return true;
    Found& found = found_[workload.name];
    const RawStack& taken = **stack;
    found.by_ours = taken.frames.size();
    found.python = taken.python.size();
    found.stack_bytes = taken.frames.back().sp - taken.frames.front().sp;
    return true;
  }

  void note_found(const Method& method, const StackWorkload& workload) {
    if (method.what == std::string("take_frame_pointers")) {
      const auto bytes = programs_->read_taken().frame_pointer_bytes;
      // The first is the probed function's own.
      if (bytes > 0) found_[workload.name].by_frame_pointers = static_cast<size_t>(bytes) / 8 - 1;
    }
    if (method.what == std::string("take_copy_64")) measure_user_walk(workload);
  }

  void measure_user_walk(const StackWorkload& workload) {
    const auto copy = programs_->take_copy(workload);
    if (!copy) return;
    const size_t frames = programs_->walk(*copy, workload.process);  // learns the probed function's
    const uint64_t walks = std::max<uint64_t>(calls_ / 10, 10);
    const double start_ns = get_thread_cpu_ns();
    for (uint64_t i = 0; i < walks; ++i) (void)programs_->walk(*copy, workload.process);
    add(kUserWalk, workload, (get_thread_cpu_ns() - start_ns) / static_cast<double>(walks));
    found_[workload.name].by_user_walk = frames - 1;
  }

  void add(const char* method, const StackWorkload& workload, double ns) {
    samples_[{method, workload.name}].push_back(ns);
  }

  std::optional<double> find_ns(const std::string& method, const std::string& workload,
                                double share = 0.15) const {
    const auto samples = samples_.find({method, workload});
    if (samples == samples_.end()) return std::nullopt;
    const auto row = std::ranges::find(kMethods, method, &Method::name);
    if (row == std::end(kMethods) || row->floor == nullptr) {
      return get_percentile(samples->second, share);
    }
    return get_percentile(samples->second, share) -
           get_percentile(samples_.at({row->floor, workload}), share);
  }

  void print_header(const char* title) const {
    std::printf("\n%-16s", title);
    for (const StackWorkload& workload : workloads_) std::printf("%11s", workload.name.c_str());
    std::printf("\n");
  }

  void print_times(const char* method) const {
    std::printf("%-16s", method);
    for (const StackWorkload& workload : workloads_) {
      if (const auto ns = find_ns(method, workload.name)) {
        std::printf("%11.0f", *ns);
      } else {
        std::printf("%11s", "-");
      }
    }
    std::printf("\n");
  }

  void print_ratios(const char* other) const {
    std::printf("/ %-14s", other);
    for (const StackWorkload& workload : workloads_) {
      const auto ours = find_ns("ours", workload.name);
      const auto others = find_ns(other, workload.name);
      if (ours && others) {
        std::printf("%11.2f", *ours / *others);
      } else {
        std::printf("%11s", "-");
      }
    }
    std::printf("\n");
  }

  template <typename Get>
  void print_row(const char* title, Get get) const {
    std::printf("%-16s", title);
    for (const StackWorkload& workload : workloads_) {
      const auto found = found_.find(workload.name);
      const auto number = get(workload, found != found_.end() ? found->second : Found{});
      std::printf("%11s", number ? std::to_string(*number).c_str() : "-");
    }
    std::printf("\n");
  }

  void print_json() const {
    std::printf("{\"bench\":\"stack_cost\",\"ns\":{");
    const char* comma = "";
    for (const auto& [key, values] : samples_) {
      std::printf("%s\"%s/%s\":{\"p15\":%.1f,\"median\":%.1f}", comma, key.first.c_str(),
                  key.second.c_str(), *find_ns(key.first, key.second),
                  *find_ns(key.first, key.second, 0.5));
      comma = ",";
    }
    std::printf("}}\n");
  }

  StackPrograms& kept_;
  StackPrograms& look_up_;
  StackPrograms& anew_;
  StackPrograms* programs_ = &kept_;  // of the method being measured
  const std::span<const StackLibrary> libraries_;
  const std::vector<StackWorkload> workloads_;
  const uint64_t calls_;
  std::map<Key, std::vector<double>> samples_;
  std::map<std::string, Found> found_;           // by workload
  std::map<std::string, std::string> failures_;  // of methods that this machine cannot do
};

Result<std::vector<StackWorkload>> make_workloads(const std::array<StackLibrary, 2>& libraries) {
  ASSIGN_OR_RETURN(auto workloads, make_own_workloads(libraries));
  auto python = make_python_workloads(libraries[0]);
  if (!python.ok()) std::printf("python: not measured: %s\n", python.status().ToString().c_str());
  if (python.ok()) std::ranges::move(*python, std::back_inserter(workloads));
  return workloads;
}

Status run(int rounds, uint64_t calls, bool ways) {
  ASSIGN_OR_RETURN(const auto libraries, load_stack_libraries());
  using Keeps = StackPrograms::Keeps;
  ASSIGN_OR_RETURN(const auto programs, StackPrograms::load(Keeps::kAll));
  ASSIGN_OR_RETURN(const auto look_up, StackPrograms::load(Keeps::kLastWalk));
  ASSIGN_OR_RETURN(const auto anew, StackPrograms::load(Keeps::kNothing));
  ASSIGN_OR_RETURN(auto workloads,
                   ways ? make_way_workloads(libraries[0]) : make_workloads(libraries));
  Bench bench(*programs, *look_up, *anew, libraries, std::move(workloads), calls);
  for (int round = 0; round < rounds; ++round) {
    if (!bench.run_round()) break;
  }
  bench.print();
  return bench.has_failed() ? absl::UnavailableError("what is compared (above)") : absl::OkStatus();
}

}  // namespace
}  // namespace gpuperf::bench

int main(int argc, char** argv) {
  if (geteuid() != 0) {
    std::printf("skipped: needs root, to load BPF programs\n");
    return 77;
  }
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 9;
  const auto calls = static_cast<uint64_t>(argc > 2 ? std::atol(argv[2]) : 10'000);
  const bool ways = argc > 3 && std::string_view(argv[3]) == "ways";
  const auto status = gpuperf::bench::run(rounds, calls, ways);
  if (!status.ok()) std::printf("not measured: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
