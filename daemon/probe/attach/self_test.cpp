// The proof that a mechanism works on this kernel: probe a function of our own and count.

#include "daemon/probe/attach/self_test.h"

#include <bpf/bpf.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/proc_text.h"
#include "daemon/model/argument_plan.h"
#include "daemon/probe/attach/attacher.h"
#include "daemon/probe/attach/programs.h"

extern "C" {
// Not inlined and not merged, so that it has an address of its own; the asm keeps the call from
// being computed once.
__attribute__((noinline, noclone, used)) int gpuperf_self_test_function(int status) {
  asm volatile("" : "+r"(status));
  return status;
}

// Functions whose instructions are known, for calibration: what they begin with decides the cost.
// Each in three places, one for every timing.
int gpuperf_calibration_push_0();
int gpuperf_calibration_push_1();
int gpuperf_calibration_push_2();
int gpuperf_calibration_mov_0();
int gpuperf_calibration_mov_1();
int gpuperf_calibration_mov_2();
}
asm(R"(
  .pushsection .text
  .irp copy, 0, 1, 2
  .type gpuperf_calibration_push_\copy, @function
gpuperf_calibration_push_\copy:
  push %rbp
  pop %rbp
  ret
  .size gpuperf_calibration_push_\copy, . - gpuperf_calibration_push_\copy
  .type gpuperf_calibration_mov_\copy, @function
gpuperf_calibration_mov_\copy:
  mov %edi, %eax
  ret
  .size gpuperf_calibration_mov_\copy, . - gpuperf_calibration_mov_\copy
  .endr
  .popsection
)");

namespace gpuperf {
namespace {

constexpr int kCalls = 100;
constexpr int kStatus = 1;  // an error by every rule

constexpr uint32_t kCells = 64;  // another daemon that starts now calls the same functions

// Totals of our own process.
gpuperf_cell sum_cells(const Programs& programs) {
  gpuperf_cell sum{};
  const int index = programs.map_fd("cell_index");
  gpuperf_cell_key key{};
  for (const void* previous = nullptr; bpf_map_get_next_key(index, previous, &key) == 0;
       previous = &key) {
    gpuperf_cell_owner owner{};
    if (bpf_map_lookup_elem(index, &key, &owner) != 0) continue;
    // By its start: in a pid namespace of our own the kernel knows us by another pid.
    if (!is_running_since("/proc", static_cast<uint32_t>(getpid()), key.process_start_boot_ns))
      continue;
    const gpuperf_cell& cell = programs.cells()[owner.cell];
    sum.calls += cell.calls;
    sum.total_ns += cell.total_ns;
    for (const uint32_t bucket : cell.buckets) sum.buckets[0] += bucket;
    sum.errors[0].count += cell.errors[0].count;
  }
  return sum;
}

}  // namespace

Result<uint64_t> find_own_offset(const void* address) {
  const auto wanted = reinterpret_cast<uint64_t>(address);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uint64_t begin = 0, end = 0, offset = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %*s %lx", &begin, &end, &offset) != 3) continue;
    if (wanted >= begin && wanted < end) return wanted - begin + offset;
  }
  return absl::NotFoundError("own code: not in /proc/self/maps");
}

Status try_mechanism(Mechanism mechanism) {
  ASSIGN_OR_RETURN(
      const auto programs,
      Programs::load(mechanism, {.functions = 1, .cells = kCells, .trial = {Timing::kReturn}}));
  programs->set_function({.id = 0, .status = StatusKind::kNccl}, false);
  Fd self(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  if (!self.valid()) return errno_status(errno, "/proc/self/exe: open");
  ASSIGN_OR_RETURN(const uint64_t offset,
                   find_own_offset(reinterpret_cast<const void*>(&gpuperf_self_test_function)));
  Attacher attacher(*programs);
  const ProbePoint point{.function_id = 0, .offset_bytes = offset};
  RETURN_IF_ERROR(attacher.attach({.fd = self.get(), .name = "self-test"}, {&point, 1})[0].status);

  for (int i = 0; i < kCalls; ++i) (void)gpuperf_self_test_function(kStatus);

  const gpuperf_cell sum = sum_cells(*programs);
  if (sum.calls != kCalls || sum.buckets[0] != kCalls || sum.errors[0].count != kCalls) {
    return absl::InternalError("self-test: of " + std::to_string(kCalls) + " calls, " +
                               std::to_string(sum.calls) + " entries, " +
                               std::to_string(sum.buckets[0]) + " returns and " +
                               std::to_string(sum.errors[0].count) +
                               " statuses were counted: this kernel loses probe hits");
  }
  return absl::OkStatus();
}

namespace {

constexpr int kCalibrationCalls = 400;
constexpr int kCalibrationRounds = 5;  // the fastest counts: the others were disturbed

// Of the calls of one round, on average.
struct Round {
  uint64_t cpu_ns = UINT64_MAX;
  uint64_t duration_ns = 0;  // as the probes saw them
};

Round measure_fastest_round(int (*function)(), const Programs* programs) {
  const auto now_ns = [] {
    timespec time{};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);  // cannot fail for our own thread
    return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
  };
  const auto read_total_ns = [&] {
    return programs == nullptr ? 0 : sum_cells(*programs).total_ns;
  };
  Round fastest;
  for (int round = 0; round < kCalibrationRounds; ++round) {
    const uint64_t total_before_ns = read_total_ns();
    const uint64_t start_ns = now_ns();
    for (int call = 0; call < kCalibrationCalls; ++call) (void)function();
    const uint64_t cpu_ns = (now_ns() - start_ns) / kCalibrationCalls;
    if (cpu_ns >= fastest.cpu_ns) continue;
    fastest = {cpu_ns, (read_total_ns() - total_before_ns) / kCalibrationCalls};
  }
  return fastest;
}

struct Target {
  int (*function)();
  Timing timing;
  CallCost* cost;
  uint64_t bare_ns = 0;
};
// Of all targets: push and pop, or mov, before it.
constexpr uint64_t kRetDistanceBytes = 2;

Result<ProbePoint> make_point(const Target& target, uint32_t function_id) {
  ASSIGN_OR_RETURN(const uint64_t offset,
                   find_own_offset(reinterpret_cast<const void*>(target.function)));
  ProbePoint point{.function_id = function_id, .offset_bytes = offset, .timing = target.timing};
  if (target.timing == Timing::kExits) {
    point.exits = {
        {.offset_bytes = offset + kRetDistanceBytes, .condition = GPUPERF_CONDITION_RETURN}};
  }
  return point;
}

CallCost get_counted_cost(const ProbeCosts& costs, HitCost entry, Timing timing) {
  const int stepped = entry == HitCost::kStepped ? 1 : 0;
  switch (timing) {
    case Timing::kReturn:
      return costs.at_return[stepped];
    case Timing::kExits:
      return costs.at_exits[stepped];
    case Timing::kNone:
      return costs.at_entry[stepped];
  }
  return {};  // only reached with a value outside the enum
}

}  // namespace

CallCost get_call_cost(const ProbeCosts& costs, HitCost entry, Timing timing,
                       const Function& function) {
  CallCost cost = get_counted_cost(costs, entry, timing);
  const ArgumentPlan* plan = function.arguments.get();
  // Of copies and waits that steps are learned from few are reported.
  if (plan == nullptr || plan->report == CallReport::kNone || is_learned_from(plan->step_role)) {
    return cost;
  }
  cost.total_ns += costs.report_ns;
  cost.outside_ns += costs.report_ns;
  return cost;
}

Result<ProbeCosts> calibrate(Mechanism mechanism) {
  const Fd self(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  if (!self.valid()) return errno_status(errno, "/proc/self/exe: open");
  ProbeCosts costs;
  Target targets[] = {
      {gpuperf_calibration_push_0, Timing::kReturn, &costs.at_return[0]},
      {gpuperf_calibration_push_1, Timing::kExits, &costs.at_exits[0]},
      {gpuperf_calibration_push_2, Timing::kNone, &costs.at_entry[0]},
      {gpuperf_calibration_mov_0, Timing::kReturn, &costs.at_return[1]},
      {gpuperf_calibration_mov_1, Timing::kExits, &costs.at_exits[1]},
      {gpuperf_calibration_mov_2, Timing::kNone, &costs.at_entry[1]},
  };
  ASSIGN_OR_RETURN(
      const auto programs,
      Programs::load(mechanism, {.functions = std::size(targets),
                                 .cells = kCells,
                                 .trial = {Timing::kReturn, Timing::kExits, Timing::kNone}}));
  std::vector<ProbePoint> points;
  for (Target& target : targets) {
    target.bare_ns = measure_fastest_round(target.function, nullptr).cpu_ns;
    const auto function_id = static_cast<uint32_t>(points.size());
    programs->set_function({.id = function_id, .status = StatusKind::kNccl}, false);
    ASSIGN_OR_RETURN(ProbePoint point, make_point(target, function_id));
    points.push_back(std::move(point));
  }
  Attacher attacher(*programs);
  for (const ProbeOutcome& outcome :
       attacher.attach({.fd = self.get(), .name = "calibration"}, points)) {
    RETURN_IF_ERROR(outcome.status);
  }
  for (const Target& target : targets) {
    const Round probed = measure_fastest_round(target.function, programs.get());
    target.cost->total_ns = probed.cpu_ns - std::min(probed.cpu_ns, target.bare_ns);
    target.cost->outside_ns =
        target.cost->total_ns - std::min(target.cost->total_ns, probed.duration_ns);
  }
  auto reported = std::make_shared<ArgumentPlan>();
  reported->report = CallReport::kStep;
  programs->set_function({.id = 0, .status = StatusKind::kNccl, .arguments = std::move(reported)},
                         false);
  const uint64_t with_report_ns = measure_fastest_round(targets[0].function, programs.get()).cpu_ns;
  const uint64_t without_ns = targets[0].bare_ns + costs.at_return[0].total_ns;
  costs.report_ns = with_report_ns - std::min(with_report_ns, without_ns);
  return costs;
}

}  // namespace gpuperf
