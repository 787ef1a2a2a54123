// The proof that a mechanism works on this kernel: probe a function of our own and count.

#include "daemon/probe/self_test.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
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
}

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

}  // namespace gpuperf
