// What views of a large capture cost: seconds and peak memory of each format, in a process of its
// own.
//
// usage: view_cost [WORK [STACKS [DEEPEST]]]     1000000 4000 150

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "daemon/otlp/profiles.h"
#include "daemon/view/diff.h"
#include "daemon/view/formats.h"
#include "tests/workloads/synthetic_capture.h"

namespace {

using gpuperf::Capture;

size_t get_argument(int argc, char** argv, int index, size_t otherwise) {
  return argc > index ? std::strtoul(argv[index], nullptr, 10) : otherwise;
}

rusage get_usage() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage;
}

double get_peak_megabytes() { return static_cast<double>(get_usage().ru_maxrss) / 1024; }

// Of this process, in user space and in the kernel.
double get_cpu_seconds() {
  const rusage usage = get_usage();
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

// In a child: its peak is of the capture and this one rendering. False: it died.
template <typename Render>
bool measure(std::string_view name, Render render) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    const auto begin = std::chrono::steady_clock::now();
    const size_t bytes = render();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    std::printf("| %.*s | %.2f | %.2f | %.0f | %.1f |\n", static_cast<int>(name.size()),
                name.data(), get_cpu_seconds(), taken.count(), get_peak_megabytes(),
                static_cast<double>(bytes) / 1e6);
    std::fflush(stdout);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  gpuperf::testing::SyntheticCapture options = {.stacks = get_argument(argc, argv, 2, 4000),
                                                .work = get_argument(argc, argv, 1, 1'000'000),
                                                .deepest = get_argument(argc, argv, 3, 150)};
  const Capture capture = make_synthetic_capture(options);
  std::printf("%zu pieces of work, %zu launches, %zu calls, %zu stacks; the capture: %.0f MB\n\n",
              capture.work.size(), capture.launches.size(), capture.calls.size(),
              capture.stacks.size(), get_peak_megabytes());
  std::printf(
      "| view | CPU seconds | seconds | peak MB, the capture included | output MB |\n"
      "|---|---|---|---|---|\n");
  bool is_good = true;
  for (const gpuperf::ViewFormat& format : gpuperf::list_view_formats()) {
    is_good &= measure(format.name, [&] { return format.render(capture, {}).size(); });
  }
  const gpuperf::ViewOptions cpu = {.weight = gpuperf::ViewWeight::kCpuTime};
  is_good &=
      measure("folded, CPU time", [&] { return render_view(capture, "folded", cpu)->size(); });
  is_good &= measure("diff flame graph, with itself",
                     [&] { return render_diff_flamegraph(capture, capture, {}).size(); });
  is_good &= measure("diff by frame, with itself", [&] {
    return diff_captures(capture, capture, {.by = gpuperf::DiffBy::kFrame}).size();
  });
  is_good &= measure("OTLP profiles, all three", [&] {
    size_t bytes = 0;
    const auto origin = gpuperf::otlp::make_origin({}, "");
    for (const auto& request : gpuperf::otlp::make_profile_requests(capture, origin, "")) {
      bytes += request.bytes.size();
    }
    return bytes;
  });
  return is_good ? 0 : 1;
}
