// What records of sessions cost the loop: nanoseconds of CPU per record, by kind and mixed as an
// eager model sends them, and what a snapshot of it costs. Results in docs/overhead.md, "GPU
// records".
//
// usage: gpu_state_cost [thousands of launches, default 2000] [kernel names, default 200]

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/state/gpu_state.h"

namespace gpuperf {
namespace {

constexpr size_t kBatchRecords = 1'300;  // a message of 64 KiB
constexpr int64_t kStartNs = 1'000'000'000'000;
constexpr uint64_t kLaunchNs = 3'000;  // from launch to launch: as fast as CUDA goes

double read_cpu_ns() {
  timespec now{};
  (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);  // always there
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

struct Choice {
  uint32_t launches = 2'000'000;
  uint32_t names = 200;
  uint32_t processes = 1;
  bool has_apis = true;
  uint32_t kernels_behind = 0;  // launches by which kernels come later than their calls
};

std::vector<SessionEvent> make_start(const Choice& choice) {
  std::vector<SessionEvent> events;
  for (uint32_t id = 1; id <= choice.processes; ++id) {
    events.emplace_back(SessionOpened{.session_id = id,
                                      .process = {.pid = id, .start_boot_ns = id},
                                      .owner = {.comm = "python3"}});
    uint32_t level =
        GPUPERF_SESSION_LEVEL_KERNELS | GPUPERF_SESSION_LEVEL_COPIES | GPUPERF_SESSION_LEVEL_GRAPHS;
    if (choice.has_apis) level |= GPUPERF_SESSION_LEVEL_APIS;
    events.emplace_back(SessionStatus{.session_id = id, .level = level});
    SessionBatch names{.session_id = id};
    for (uint32_t name = 1; name <= choice.names; ++name) {
      names.names.push_back({.id = name, .text = "kernel_" + std::to_string(name)});
    }
    names.places = {{.id = 1, .device_uuid = {1}}, {.id = 2, .device_uuid = {1}}};
    events.emplace_back(std::move(names));
  }
  return events;
}

// Launches one after the other, kernels of a few microseconds with what varies between them.
std::vector<SessionEvent> make_batches(const Choice& choice) {
  std::mt19937 random(7);
  std::vector<SessionEvent> events;
  std::vector<SessionBatch> open(choice.processes);
  for (uint32_t i = 0; i < choice.launches + choice.kernels_behind; ++i) {
    const uint32_t process = i % choice.processes;
    SessionBatch& batch = open[process];
    batch.session_id = process + 1;
    if (choice.has_apis && i < choice.launches) {
      batch.apis.push_back(
          {.start_mono_ns = kStartNs + i * kLaunchNs, .duration_ns = 2'000, .correlation_id = i});
    }
    if (i >= choice.kernels_behind) {
      const uint32_t id = i - choice.kernels_behind;
      batch.kernels.push_back(
          {.start_mono_ns = kStartNs + id * kLaunchNs + 4'000 + random() % 1'000,
           .duration_ns = 1'500 + random() % (1u << (4 + random() % 12)),
           .correlation_id = id,
           .name_id = 1 + id % choice.names,
           .place_id = 1 + id % 2});
    }
    if (batch.apis.size() + batch.kernels.size() >= kBatchRecords) {
      events.emplace_back(std::exchange(batch, {}));
    }
  }
  for (SessionBatch& batch : open) {
    if (batch.session_id != 0) events.emplace_back(std::move(batch));
  }
  return events;
}

void measure(const char* what, const Choice& choice) {
  DropCounters drops;
  SessionMemory memory(drops);
  SessionRegistry sessions({}, drops, memory);
  GpuStatistics statistics({}, drops);
  statistics.follow(sessions);
  for (const SessionEvent& event : make_start(choice)) sessions.apply(event, kStartNs);
  const std::vector<SessionEvent> events = make_batches(choice);
  uint64_t records = 0;
  double publish_ns = 0;
  uint32_t published = 0;
  uint64_t now_ns = kStartNs;
  uint64_t next_publish_ns = kStartNs;
  const double start_ns = read_cpu_ns();
  for (const SessionEvent& event : events) {
    const auto& batch = std::get<SessionBatch>(event);
    records += batch.kernels.size() + batch.apis.size();
    if (!batch.kernels.empty()) now_ns = std::max(now_ns, batch.kernels.back().start_mono_ns);
    if (!batch.apis.empty()) now_ns = std::max(now_ns, batch.apis.back().start_mono_ns);
    sessions.apply(event, static_cast<int64_t>(now_ns));
    if (now_ns < next_publish_ns) continue;
    next_publish_ns = now_ns + 250'000'000;
    const double before_ns = read_cpu_ns();
    sessions.expire(static_cast<int64_t>(now_ns));
    statistics.expire(static_cast<int64_t>(now_ns));
    GpuReport report;
    sessions.fill(report);
    statistics.fill(report);
    publish_ns += read_cpu_ns() - before_ns;
    ++published;
  }
  const double ns = read_cpu_ns() - start_ns;
  for (const DropRow& row : drop_rows()) {
    if (drops.get(row.cause) == 0) continue;
    std::printf("dropped: %s %s %llu\n", row.stage.data(), row.reason.data(),
                static_cast<unsigned long long>(drops.get(row.cause)));
  }
  GpuReport report;
  sessions.fill(report);
  statistics.fill(report);
  uint64_t joined = 0;
  for (const auto& row : report.sessions) joined += row->join.joined;
  std::printf("%-44s %6.1f ns/record %9.0f records/ms %7.2f ms/snapshot  joined %.3f busy %.3f\n",
              what, ns / static_cast<double>(records), static_cast<double>(records) / ns * 1e6,
              publish_ns / 1e6 / published, static_cast<double>(joined) / choice.launches,
              report.activity.empty() ? 0
                                      : static_cast<double>(report.activity[0].busy_ns) /
                                            static_cast<double>(report.activity[0].newest_mono_ns -
                                                                report.activity[0].since_mono_ns));
}

}  // namespace
}  // namespace gpuperf

int main(int argc, char** argv) {
  using gpuperf::Choice;
  Choice choice;
  if (argc > 1) choice.launches = static_cast<uint32_t>(std::atoi(argv[1])) * 1'000;
  if (argc > 2) choice.names = static_cast<uint32_t>(std::atoi(argv[2]));
  Choice kernels = choice;
  kernels.has_apis = false;
  Choice behind = choice;
  behind.kernels_behind = 100'000;
  Choice several = choice;
  several.processes = 8;
  gpuperf::measure("kernels alone", kernels);
  gpuperf::measure("calls and kernels", choice);
  gpuperf::measure("kernels 0.3 s behind their calls", behind);
  gpuperf::measure("8 processes on one GPU", several);
}
