#include "daemon/view/path_weights.h"

#include <absl/container/flat_hash_map.h>

#include "daemon/view/call_nesting.h"
#include "daemon/view/kernel_samples.h"
#include "daemon/view/time_use.h"

namespace gpuperf {

namespace {

// Rows by what they are added under.
class WeightRows {
 public:
  void add(uint32_t path, uint32_t gpu_frame, uint64_t weight_ns, uint32_t kernel = kNoIndex) {
    const uint64_t key = uint64_t{path} << 32 | gpu_frame;
    const auto [found, is_new] = index_.try_emplace(key, rows_.size());
    if (is_new) {
      rows_.push_back({.path = path, .gpu_frame = gpu_frame});
      kernels_.push_back(kernel);
    }
    rows_[found->second].weight_ns += weight_ns;
    ++rows_[found->second].count;
  }
  std::vector<PathWeight> take() { return std::move(rows_); }
  // With the rows of kernels that were sampled by stall; the pieces are those of its first row.
  std::vector<PathWeight> take_by_stall(const Capture& capture, PathTable& table) {
    const std::map<uint32_t, KernelStalls> samples = sum_samples(capture);
    std::vector<PathWeight> rows;
    for (size_t i = 0; i < rows_.size(); ++i) {
      PathWeight& row = rows_[i];
      const auto found = samples.find(kernels_[i]);
      if (kernels_[i] == kNoIndex || found == samples.end()) {
        rows.push_back(row);
        continue;
      }
      for (const StallTime& part : split_by_stall(found->second, row.weight_ns)) {
        row.stall_frame = table.find_stall_frame(part.stall);
        row.weight_ns = part.time_ns;
        rows.push_back(row);
        row.count = 0;
      }
    }
    return rows;
  }

 private:
  std::vector<PathWeight> rows_;
  std::vector<uint32_t> kernels_;  // of the capture, by row; kNoIndex = of no kernel
  absl::flat_hash_map<uint64_t, size_t> index_;
};

// Paths of launches, each looked for once.
class LaunchPaths {
 public:
  LaunchPaths(const std::vector<CaptureLaunch>& launches, PathTable& table)
      : launches_(launches), table_(table), paths_(launches.size(), kNoIndex) {}

  // kNoIndex = there is no such launch.
  uint32_t find(uint32_t launch) {
    if (launch >= paths_.size()) return kNoIndex;
    if (paths_[launch] == kNoIndex) paths_[launch] = table_.find_path(launches_[launch]);
    return paths_[launch];
  }

 private:
  const std::vector<CaptureLaunch>& launches_;
  PathTable& table_;
  std::vector<uint32_t> paths_;
};

std::vector<PathWeight> weigh_gpu_time(const Capture& capture, const ViewOptions& options,
                                       PathTable& table) {
  WeightRows rows;
  const std::vector<bool> is_counted = find_counted_work(capture);
  LaunchPaths launches(capture.launches, table);
  LaunchPaths capture_sites(capture.capture_sites, table);
  for (size_t index = 0; index < capture.work.size(); ++index) {
    if (!is_counted[index]) continue;
    const CaptureWork& work = capture.work[index];
    uint32_t path = options.by_capture_site ? capture_sites.find(work.capture_site) : kNoIndex;
    if (path == kNoIndex) path = launches.find(work.launch);
    if (path == kNoIndex) path = table.find_path_without_launch(work);
    rows.add(path, table.find_gpu_frame(work), work.duration_ns,
             work.kind == WorkKind::kKernel ? work.kernel : kNoIndex);
  }
  return options.with_stalls ? rows.take_by_stall(capture, table) : rows.take();
}

std::vector<PathWeight> weigh_host_time(const Capture& capture, ViewWeight weight,
                                        PathTable& table) {
  WeightRows rows;
  for (const NestedCall& call : nest_calls(capture, table)) {
    const uint64_t weight_ns = get_self_ns(call, weight);
    if (weight_ns > 0) rows.add(call.path, kNoIndex, weight_ns);
  }
  return rows.take();
}

}  // namespace

std::vector<PathWeight> weigh_paths(const Capture& capture, const ViewOptions& options,
                                    PathTable& table) {
  if (options.weight == ViewWeight::kGpuTime) return weigh_gpu_time(capture, options, table);
  if (options.weight == ViewWeight::kIdleTime) return weigh_idle_time(capture, table);
  return weigh_host_time(capture, options.weight, table);
}

std::vector<bool> find_counted_work(const Capture& capture) {
  std::vector<bool> has_nodes(capture.launches.size());
  for (const CaptureWork& work : capture.work) {
    if (work.kind != WorkKind::kGraph && work.graph_id != 0 && work.launch < has_nodes.size()) {
      has_nodes[work.launch] = true;
    }
  }
  std::vector<bool> is_counted(capture.work.size(), true);
  for (size_t index = 0; index < capture.work.size(); ++index) {
    const CaptureWork& work = capture.work[index];
    if (work.kind == WorkKind::kGraph && work.launch < has_nodes.size() && has_nodes[work.launch]) {
      is_counted[index] = false;
    }
  }
  return is_counted;
}

}  // namespace gpuperf
