// What following threads through the scheduler adds to a context switch: two threads on one CPU
// hand a byte to and fro, without gpuperf, and with it: never probed, probed before, inside of a
// probed call.
//
// usage: switch_cost [ROUNDS]     root; a round takes some seconds
// All in one run, interleaved: read the ratios. A figure is the median of the rounds, a ratio the
// median of the rounds' own ratios: the machine's speed changes between rounds more than within
// one.

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/probe/attach/attacher.h"
#include "daemon/probe/attach/programs.h"
#include "daemon/probe/attach/self_test.h"
#include "tests/bench/timing.h"

namespace {

constexpr int kTrips = 50'000;  // two switches each

struct Pipes {
  int to_fd[2];
  int back_fd[2];
};

}  // namespace

// Probed; each is a frame of its own.
extern "C" {
__attribute__((noinline, used)) int bench_visit(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

// One side of the exchange.
__attribute__((noinline, used)) int bench_switch(int read_fd, int write_fd, int begins) {
  char byte = 0;
  for (int trip = 0; trip < kTrips; ++trip) {
    if (begins != 0 && write(write_fd, &byte, 1) != 1) return 1;
    if (read(read_fd, &byte, 1) != 1) return 1;
    if (begins == 0 && write(write_fd, &byte, 1) != 1) return 1;
  }
  return 0;
}
}

namespace gpuperf::bench {
namespace {

// Nanoseconds per switch. The threads are new: what they did before is `visit`.
double measure(bool visit) {
  Pipes pipes{};
  if (pipe(pipes.to_fd) != 0 || pipe(pipes.back_fd) != 0) std::abort();
  double elapsed_ns = 0;
  std::thread first([&] {
    pin_here();
    if (visit) (void)bench_visit(1);
    std::thread second([&] {  // inherits the CPU
      if (visit) (void)bench_visit(1);
      (void)bench_switch(pipes.to_fd[0], pipes.back_fd[1], 0);
    });
    const double start_ns = read_clock_ns(CLOCK_MONOTONIC);
    (void)bench_switch(pipes.back_fd[0], pipes.to_fd[1], 1);
    elapsed_ns = read_clock_ns(CLOCK_MONOTONIC) - start_ns;
    second.join();
  });
  first.join();
  for (const int fd : {pipes.to_fd[0], pipes.to_fd[1], pipes.back_fd[0], pipes.back_fd[1]})
    close(fd);
  return elapsed_ns / (2.0 * kTrips);
}

Result<ProbePoint> make_point(uint32_t function_id, const void* function) {
  ASSIGN_OR_RETURN(const uint64_t offset, find_own_offset(function));
  return ProbePoint{.function_id = function_id, .offset_bytes = offset};
}

Status run_round(RoundFigures& samples) {
  samples["bare"].push_back(measure(false));
  ASSIGN_OR_RETURN(
      const auto programs,
      Programs::load(Mechanism::kSession, {.functions = 2, .cells = 16, .follow_threads = true}));
  for (const uint32_t id : {0u, 1u}) programs->set_function({.id = id}, false);
  samples["followed, never in a call"].push_back(measure(false));
  const Fd self(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  Attacher attacher(*programs);
  ASSIGN_OR_RETURN(const ProbePoint visit,
                   make_point(0, reinterpret_cast<const void*>(&bench_visit)));
  RETURN_IF_ERROR(attacher.attach({.fd = self.get(), .name = "visit"}, {&visit, 1})[0].status);
  samples["followed, was in a call before"].push_back(measure(true));
  ASSIGN_OR_RETURN(const ProbePoint inside,
                   make_point(1, reinterpret_cast<const void*>(&bench_switch)));
  RETURN_IF_ERROR(attacher.attach({.fd = self.get(), .name = "switch"}, {&inside, 1})[0].status);
  samples["followed, inside of a call"].push_back(measure(true));
  return absl::OkStatus();
}

int run(int rounds) {
  const auto measured = run_rounds(rounds, run_round);
  if (!measured) return 1;
  const RoundFigures& samples = *measured;
  const std::vector<double>& bare_ns = samples.at("bare");
  for (const auto& [name, values] : samples) {
    std::vector<double> ratios;
    for (size_t round = 0; round < values.size(); ++round) {
      ratios.push_back(values[round] / bare_ns[round]);
    }
    std::printf("%-32s %7.0f ns a switch, %.3f of bare\n", name.c_str(),
                get_percentile(values, 0.5), get_percentile(ratios, 0.5));
  }
  return 0;
}

}  // namespace
}  // namespace gpuperf::bench

int main(int argc, char** argv) { return gpuperf::bench::run(argc > 1 ? std::atoi(argv[1]) : 9); }
