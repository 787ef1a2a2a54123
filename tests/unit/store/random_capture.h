#pragma once

// Captures whose every field has something in it, for tests of what keeps them.

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "daemon/model/capture.h"
#include "daemon/model/kernel_name.h"
#include "injector/session_abi.h"

namespace gpuperf::testing {

// How many rows of events; tables have some, too.
struct CaptureSizes {
  size_t calls = 0;
  size_t launches = 0;
  size_t work = 0;
  size_t waits = 0;
  size_t gaps = 0;
  size_t names = 0;  // rows of each table
};

// Equal for equal seeds.
class RandomCapture {
 public:
  explicit RandomCapture(uint32_t seed) : random_(seed) {}

  Capture make(const CaptureSizes& sizes) {
    Capture capture;
    capture.id = 7;
    capture.name = "run 7";
    capture.trigger = "request";
    capture.host = "host";
    capture.version = "0.1.0";
    capture.start_unix_ns = 1'777'630'245'123'456'789;
    capture.start_mono_ns = 5'000'000'000'000;
    capture.duration_ns = 10'000'000'000;
    add_tables(capture, sizes.names);
    add_host_events(capture, sizes);
    add_work(capture, sizes.work);
    add_gpu_counters(capture, sizes.gaps);
    capture.matches = {.launches = {sizes.launches, 1, 2, 3},
                       .work = sizes.work,
                       .work_matched = sizes.work / 2,
                       .work_no_call = 4,
                       .launches_no_stack = 5};
    return capture;
  }

 private:
  uint64_t below(uint64_t end) { return end == 0 ? 0 : random_() % end; }
  // Most often one of the table.
  uint32_t index(size_t size) {
    return size == 0 || below(8) == 0 ? kNoIndex : static_cast<uint32_t>(below(size));
  }
  std::string text(const char* begin, size_t i) {
    std::string made = begin + std::to_string(i);
    if (i % 5 == 1) made += "\xff\x00\"<&;";  // not UTF-8: processes choose their names
    return made;
  }

  void add_tables(Capture& capture, size_t rows) {
    for (size_t i = 0; i < rows; ++i) {
      const auto number = static_cast<uint32_t>(i);
      capture.processes.push_back({.process = {.pid = number + 1, .start_boot_ns = below(1u << 30)},
                                   .owner = {.comm = text("comm", i),
                                             .container = text("c", i),
                                             .pod = text("pod", i),
                                             .pod_namespace = text("ns", i),
                                             .slurm_job = text("job", i),
                                             .slurm_rank = text("rank", i)},
                                   .is_injected = i % 2 == 0});
      capture.threads.push_back(
          {.process = index(i + 1), .tid = number + 100, .comm = text("t", i)});
      capture.functions.push_back({.category = text("cuda", i % 3), .name = text("cudaF", i)});
      const std::string kernel = text("void kernel<float>", i);
      capture.kernels.push_back({.name = kernel, .short_name = shorten_kernel_name(kernel)});
      capture.frames.push_back({.symbol = text("symbol", i),
                                .module = text("/usr/lib/lib.so", i % 7),
                                .offset_bytes = below(4096),
                                .address = random_(),
                                .file = text("model.py", i % 11),
                                .line = static_cast<uint32_t>(below(5000)),
                                .is_inlined = i % 3 == 0,
                                .kind = static_cast<StackFrameKind>(i % 4)});
      CaptureStack stack = {.frames = {}, .end = static_cast<StackEnd>(i % 5)};
      for (size_t k = 0; k < i % 40; ++k) {
        stack.frames.push_back(static_cast<uint32_t>(below(rows)));
      }
      capture.stacks.push_back(stack);
      capture.operations.push_back({.parent = i == 0 ? kNoIndex : index(i),
                                    .function = static_cast<uint32_t>(below(rows)),
                                    .shape = {below(9), below(9), below(9), random_()}});
      capture.devices.push_back({.uuid = {}, .number = number});
      for (uint8_t& byte : capture.devices.back().uuid) byte = static_cast<uint8_t>(random_());
      capture.streams.push_back({.process = index(rows),
                                 .device = index(rows),
                                 .context = number,
                                 .stream = i % 4 == 0 ? UINT32_MAX : number});
      capture.shapes.push_back({.grid = {number, 2, 3},
                                .block = {4, UINT32_MAX, 6},
                                .shared_memory_bytes = number,
                                .registers_per_thread = 8});
      capture.stalls.push_back({.process = index(rows),
                                .kernel = index(rows),
                                .stall = number % GPUPERF_STALL_COUNT,
                                .samples = below(1'000'000),
                                .idle_samples = below(1'000)});
    }
  }

  void add_host_events(Capture& capture, const CaptureSizes& sizes) {
    uint64_t time_ns = capture.start_mono_ns;
    for (size_t i = 0; i < sizes.calls; ++i) {
      capture.calls.push_back({.start_mono_ns = time_ns += below(20'000),
                               .duration_ns = below(100'000),
                               .off_cpu_ns = below(100),
                               .thread = index(sizes.names),
                               .function = index(sizes.names),
                               .stack = index(sizes.names),
                               .depth = static_cast<uint32_t>(below(4))});
    }
    time_ns = capture.start_mono_ns;
    for (size_t i = 0; i < sizes.launches; ++i) {
      capture.launches.push_back({.start_mono_ns = time_ns += below(20'000),
                                  .duration_ns = below(10'000),
                                  .thread = index(sizes.names),
                                  .function = index(sizes.names),
                                  .stack = index(sizes.names),
                                  .operation = index(sizes.names),
                                  .correlation_id = static_cast<uint32_t>(1000 + i),
                                  .match = static_cast<LaunchMatch>(below(kLaunchMatches))});
    }
    for (size_t i = 0; i < sizes.names; ++i) {
      capture.capture_sites.push_back({.start_mono_ns = below(20'000),
                                       .thread = index(sizes.names),
                                       .function = index(sizes.names),
                                       .stack = index(sizes.names),
                                       .operation = index(sizes.names)});
    }
    time_ns = capture.start_mono_ns;
    for (size_t i = 0; i < sizes.waits; ++i) {
      capture.waits.push_back({.start_mono_ns = time_ns += below(20'000),
                               .duration_ns = below(10'000),
                               .thread = index(sizes.names),
                               .stream = index(sizes.names),
                               .type = static_cast<uint32_t>(below(5))});
    }
    time_ns = capture.start_mono_ns;
    for (size_t i = 0; i < sizes.waits; ++i) {
      capture.thread_times.push_back({.start_mono_ns = time_ns += below(20'000),
                                      .duration_ns = below(10'000),
                                      .thread = index(sizes.names),
                                      .state = static_cast<HostState>(below(kHostStates)),
                                      .stack = index(sizes.names),
                                      .waker_pid = static_cast<uint32_t>(below(3)),
                                      .waker_tid = static_cast<uint32_t>(below(5))});
    }
    time_ns = capture.start_mono_ns;
    const auto quality = [this] { return static_cast<StepQuality>(below(kStepQualities)); };
    for (size_t i = 0; i < sizes.gaps; ++i) {
      capture.steps.push_back({.start_mono_ns = time_ns += below(20'000),
                               .duration_ns = below(10'000),
                               .thread = index(sizes.names),
                               .function = index(sizes.names),
                               .phase = static_cast<StepPhase>(below(kStepPhases)),
                               .phase_quality = quality(),
                               .duration_quality = quality(),
                               .tokens = {below(5'000), quality()},
                               .sequences = {below(300), quality()}});
    }
    for (size_t i = 0; i < sizes.gaps; ++i) {
      capture.gaps.push_back({.start_mono_ns = capture.start_mono_ns + i,
                              .duration_ns = below(10'000),
                              .process = index(sizes.names),
                              .cause = text("records_lost", i % 2),
                              .count = below(100)});
    }
  }

  void add_gpu_counters(Capture& capture, size_t rows) {
    auto time_ns = static_cast<int64_t>(capture.start_mono_ns);
    for (size_t i = 0; i < rows; ++i) {
      GpuCounterRecord row{.uuid = {static_cast<uint8_t>(i % 3)},
                           .gpu = static_cast<uint32_t>(i % 3),
                           .window = {.start_mono_ns = time_ns}};
      row.window.end_mono_ns = time_ns += 1 + static_cast<int64_t>(below(1'000'000'000));
      if (i % 4 == 1) row.gpu_instance = static_cast<uint32_t>(below(14));
      for (auto& value : row.window.values) {
        if (below(5) > 0) value = below(1'000'000);
      }
      capture.gpu_counters.push_back(row);
    }
  }

  void add_work(Capture& capture, size_t rows) {
    uint64_t time_ns = capture.start_mono_ns;
    for (size_t i = 0; i < rows; ++i) {
      const size_t launches = capture.launches.size();
      // As it is in truth: work comes about in the order of its launches.
      const size_t near = launches == 0 ? 0 : i * launches / rows;
      capture.work.push_back(
          {.start_mono_ns = time_ns += below(10'000),
           .duration_ns = below(10'000),
           .bytes = i % 9 == 0 ? random_() : 0,
           .kind = static_cast<WorkKind>(i % 9 == 0 ? below(4) : 0),
           .direction = static_cast<uint8_t>(i % 9 == 0 ? below(256) : 0),
           .kernel = index(capture.kernels.size()),
           .stream = index(capture.streams.size()),
           .launch = launches == 0 ? kNoIndex : static_cast<uint32_t>(near),
           .capture_site = i % 9 == 0 ? index(capture.capture_sites.size()) : kNoIndex,
           .shape = index(capture.shapes.size()),
           .graph_id = i % 9 == 0 ? static_cast<uint32_t>(below(3)) : 0,
           .node_id = i % 9 == 0 ? static_cast<uint32_t>(random_()) : 0});
    }
  }

  std::mt19937_64 random_;
};

}  // namespace gpuperf::testing
