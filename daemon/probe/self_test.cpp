// The proof that a mechanism works on this kernel: probe a function of our own and count.

#include "daemon/probe/self_test.h"

#include <fcntl.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "daemon/probe/attacher.h"
#include "daemon/probe/programs.h"

extern "C" {
// Not inlined and not merged, so that it has an address of its own; the asm keeps the call from
// being computed once.
__attribute__((noinline, noclone, used)) int gpuperf_self_test_function(int status) {
  asm volatile("" : "+r"(status));
  return status;
}

// Functions whose instructions are known, for calibration: what they begin with decides the cost.
int gpuperf_calibration_push();
int gpuperf_calibration_mov();
}
asm(R"(
  .pushsection .text
  .type gpuperf_calibration_push, @function
gpuperf_calibration_push:
  push %rbp
  pop %rbp
  ret
  .size gpuperf_calibration_push, . - gpuperf_calibration_push
  .type gpuperf_calibration_mov, @function
gpuperf_calibration_mov:
  mov %edi, %eax
  ret
  .size gpuperf_calibration_mov, . - gpuperf_calibration_mov
  .popsection
)");

namespace gpuperf {
namespace {

constexpr int kCalls = 100;
constexpr int kStatus = 1;  // an error by every rule

// Totals of the only process that can have called: our own.
gpuperf_cell sum_cells(const Programs& programs) {
  gpuperf_cell sum{};
  for (const gpuperf_cell& cell : programs.cells()) {
    sum.calls += cell.calls;
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
  ASSIGN_OR_RETURN(const auto programs, Programs::load(mechanism, {.functions = 1, .cells = 16}));
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

uint64_t measure_call_ns(int (*function)()) {
  const auto now_ns = [] {
    timespec time{};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);  // cannot fail for our own thread
    return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
  };
  uint64_t fastest_ns = UINT64_MAX;
  for (int round = 0; round < kCalibrationRounds; ++round) {
    const uint64_t start_ns = now_ns();
    for (int call = 0; call < kCalibrationCalls; ++call) (void)function();
    fastest_ns = std::min(fastest_ns, (now_ns() - start_ns) / kCalibrationCalls);
  }
  return fastest_ns;
}

Result<uint64_t> measure_probed_ns(Mechanism mechanism, int fd, int (*function)(), Timing timing,
                                   uint64_t ret_distance_bytes) {
  ASSIGN_OR_RETURN(const auto programs, Programs::load(mechanism, {.functions = 1, .cells = 16}));
  programs->set_function({.id = 0, .status = StatusKind::kNccl}, false);
  ASSIGN_OR_RETURN(const uint64_t offset, find_own_offset(reinterpret_cast<const void*>(function)));
  ProbePoint point{.function_id = 0, .offset_bytes = offset, .timing = timing};
  if (timing == Timing::kExits) point.exits = {{.offset_bytes = offset + ret_distance_bytes}};
  Attacher attacher(*programs);
  RETURN_IF_ERROR(attacher.attach({.fd = fd, .name = "calibration"}, {&point, 1})[0].status);
  return measure_call_ns(function);
}

}  // namespace

uint64_t get_cost_ns(const ProbeCosts& costs, HitCost entry, Timing timing) {
  const int stepped = entry == HitCost::kStepped ? 1 : 0;
  switch (timing) {
    case Timing::kReturn:
      return costs.return_ns[stepped];
    case Timing::kExits:
      return costs.exits_ns[stepped];
    case Timing::kNone:
      return costs.none_ns[stepped];
  }
  return 0;  // only reached with a value outside the enum
}

Result<ProbeCosts> calibrate(Mechanism mechanism) {
  const Fd self(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  if (!self.valid()) return errno_status(errno, "/proc/self/exe: open");
  struct Target {
    int (*function)();
    uint64_t ret_distance_bytes;
  };
  const Target targets[] = {{gpuperf_calibration_push, 2}, {gpuperf_calibration_mov, 2}};
  ProbeCosts costs;
  for (size_t i = 0; i < std::size(targets); ++i) {
    const Target& target = targets[i];
    const uint64_t bare_ns = measure_call_ns(target.function);
    const auto measure = [&](Timing timing, uint64_t& cost_ns) -> Status {
      ASSIGN_OR_RETURN(const uint64_t probed_ns,
                       measure_probed_ns(mechanism, self.get(), target.function, timing,
                                         target.ret_distance_bytes));
      cost_ns = probed_ns > bare_ns ? probed_ns - bare_ns : 0;
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(measure(Timing::kReturn, costs.return_ns[i]));
    RETURN_IF_ERROR(measure(Timing::kExits, costs.exits_ns[i]));
    RETURN_IF_ERROR(measure(Timing::kNone, costs.none_ns[i]));
  }
  return costs;
}

}  // namespace gpuperf
