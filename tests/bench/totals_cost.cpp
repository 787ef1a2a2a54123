// What the daemon's totals cost, without a kernel: memory per row, reading cells, adding up rows, a
// scrape. Results in docs/overhead.md, "Memory".
//
// usage: totals_cost [buckets of a row's histogram in use, default 40]

#include <malloc.h>
#include <prometheus/text_serializer.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/collect/map_source.h"
#include "daemon/export/prometheus.h"
#include "daemon/state/function_stats.h"
#include "daemon/state/kernel_names.h"
#include "daemon/state/shape_table.h"

namespace gpuperf {
namespace {

constexpr uint32_t kFunctions = 250;
constexpr uint32_t kProcesses = 64;
constexpr uint32_t kPairs = kFunctions * kProcesses;

double read_cpu_ms() {
  timespec now{};
  (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);  // always there
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

double read_heap_bytes() {
  const struct mallinfo2 heap = mallinfo2();
  return static_cast<double>(heap.uordblks + heap.hblkhd);
}

template <typename Work>
void measure_ms(const char* what, Work work) {
  double best_ms = 1e9;
  for (int round = 0; round < 5; ++round) {
    const double start_ms = read_cpu_ms();
    work();
    best_ms = std::min(best_ms, read_cpu_ms() - start_ms);
  }
  std::printf("%-46s %8.2f ms\n", what, best_ms);
}

void print_bytes(const char* what, double heap_before, uint32_t count) {
  std::printf("%-46s %8.0f bytes\n", what, (read_heap_bytes() - heap_before) / count);
}

Owner make_owner(uint32_t pod) {
  return {.comm = "python3",
          .container = "0123456789ab",
          .pod = "llama-train-worker-" + std::to_string(pod),
          .pod_namespace = "research"};
}

// Every second bucket from 1 us on, so that none falls together with its neighbour.
constexpr uint16_t kFirstBucket = 50;

CellDelta make_delta(uint32_t function_id, uint32_t pid, uint32_t buckets, uint32_t pod) {
  CellDelta delta{.function_id = function_id,
                  .process = {.pid = pid, .start_boot_ns = pid},
                  .owner = make_owner(pod)};
  for (uint32_t i = 0; i < buckets; ++i) {
    delta.buckets.emplace_back(static_cast<uint16_t>(kFirstBucket + 2 * i), 10 + i);
    delta.calls += 10 + i;
  }
  delta.total_ns = delta.self_ns = 5'000 * delta.calls;
  delta.min_ns = 800;
  delta.max_ns = 1'000'000;
  delta.bytes[GPUPERF_BYTES_HOST_TO_DEVICE] = 4'096;
  return delta;
}

void measure_rows(uint32_t buckets, DropCounters& drops) {
  const double before = read_heap_bytes();
  FunctionStats stats({.max_series = kPairs}, drops);
  for (uint32_t pid = 1; pid <= kProcesses; ++pid) {
    for (uint32_t id = 0; id < kFunctions; ++id) stats.apply(make_delta(id, pid, buckets, 0));
  }
  print_bytes("row of (function, process)", before, kPairs);
  Snapshot snapshot;
  stats.fill(snapshot);
  measure_ms("add up 2,000 rows", [&snapshot] {
    FunctionTotals sum;
    for (size_t i = 0; i < 2'000; ++i) merge_totals(sum, snapshot.rows[i]->totals);
  });
}

void measure_scrape(uint32_t buckets, DropCounters& drops) {
  constexpr uint32_t kSide = 25;  // 25 functions x 25 owners x 33 series
  FunctionStats stats({.max_series = kPairs}, drops);
  FunctionList functions;
  for (uint32_t id = 0; id < kSide; ++id) {
    functions.push_back(
        {.id = id, .category = "cuda", .name = "cudaFunctionNumber" + std::to_string(id)});
    for (uint32_t pid = 1; pid <= kSide; ++pid) stats.apply(make_delta(id, pid, buckets, pid));
  }
  const auto snapshot = std::make_shared<Snapshot>();
  stats.fill(*snapshot);
  snapshot->functions = std::make_shared<const FunctionList>(functions);
  SnapshotBoard board;
  board.publish(snapshot);
  const PrometheusMetrics metrics(board, drops, kPairs, 100);
  const std::string text = render_metrics_text(metrics);
  std::printf("%-46s %8zu lines, %.1f MB\n", "size of a scrape",
              static_cast<size_t>(std::ranges::count(text, '\n')),
              static_cast<double>(text.size()) / 1e6);
  measure_ms("scrape, all of it", [&metrics] { (void)render_metrics_text(metrics); });
  measure_ms("scrape, without writing the text", [&metrics] { (void)metrics.Collect(); });
}

void measure_cells(uint32_t buckets, DropCounters& drops) {
  std::vector<gpuperf_cell> cells(kPairs);
  CellIndex index;
  for (uint32_t i = 0; i < kPairs; ++i) {
    cells[i].total_ns = cells[i].calls = 1;
    for (uint32_t bucket = 0; bucket < buckets; ++bucket) {
      cells[i].buckets[kFirstBucket + 2 * bucket] = 1;
    }
    index.push_back(
        {{.process_start_boot_ns = 1, .pid = 1 + i / kFunctions, .function_id = i % kFunctions},
         {.cell = i, .pad = 0, .comm = "python3"}});
  }
  CellStore store{.cells = cells};
  store.read_index = [&index] { return Result<CellIndex>(index); };
  store.read_process_info = [](const ProcessKey&) { return std::nullopt; };
  const double before = read_heap_bytes();
  MapSource source(
      store,
      {.find_owner = [](const ProcessKey&, const gpuperf_process_info*) { return make_owner(0); },
       .is_alive = [](const ProcessKey&) { return true; },
       .name_pod = [](Owner&) { return true; }},
      drops);
  const auto read = [&source] {
    std::vector<Event> events;
    (void)source.read(events);  // this store never fails
  };
  read();
  print_bytes("last reading of a cell", before, kPairs);
  measure_ms("read 16,000 cells, none changed", read);
  measure_ms("read 16,000 cells, all changed", [&cells, &read] {
    for (gpuperf_cell& cell : cells) ++cell.calls, ++cell.total_ns, ++cell.buckets[kFirstBucket];
    read();
  });
}

void measure_tables(DropCounters& drops) {
  constexpr uint32_t kShapes = 8'192;
  const double before_shapes = read_heap_bytes();
  ShapeTable shapes(drops);
  for (uint32_t i = 0; i < kShapes; ++i) {
    shapes.apply(ShapeDelta{.process = {.pid = 1 + i / 128, .start_boot_ns = 1},
                            .owner = make_owner(0),
                            .dimensions = {i, 1, 1, 1},
                            .calls = i});
  }
  print_bytes("GEMM shape", before_shapes, kShapes);
  const double before_names = read_heap_bytes();
  KernelNames names(drops);
  for (uint64_t handle = 0; handle < KernelNames::kMaxNames; ++handle) {
    names.apply(HandleNamed{{.pid = 1, .start_boot_ns = 1}, handle, std::string(255, 'k')});
  }
  print_bytes("name of a kernel, of 255 bytes", before_names, KernelNames::kMaxNames);
}

}  // namespace
}  // namespace gpuperf

int main(int argc, char** argv) {
  const int buckets = argc > 1 ? std::atoi(argv[1]) : 40;
  if (buckets < 1 || buckets > 250) {
    std::fprintf(stderr, "usage: %s [BUCKETS, 1 to 250]\n", argv[0]);
    return 2;
  }
  gpuperf::DropCounters drops;
  std::printf("histograms with %d buckets in use\n", buckets);
  gpuperf::measure_rows(static_cast<uint32_t>(buckets), drops);
  gpuperf::measure_cells(static_cast<uint32_t>(buckets), drops);
  gpuperf::measure_tables(drops);
  gpuperf::measure_scrape(static_cast<uint32_t>(buckets), drops);
}
