#include "daemon/rpc/kernel_list.h"

#include <functional>
#include <map>
#include <optional>
#include <tuple>

#include "daemon/rpc/gpu_to_proto.h"
#include "daemon/rpc/kernel_limits.h"
#include "daemon/rpc/number_sort.h"

namespace gpuperf {
namespace {

using v1::KernelStats;

bool matches(const RowFilter& filter, const KernelRow& row) {
  return filter.matches_kernel(row.name->brief, row.name->full) && filter.matches(row.owner);
}

std::vector<KernelStats> list_per_process(const GpuReport& report, const RowFilter& filter) {
  std::vector<KernelStats> kernels;
  for (const auto& row : report.kernels) {
    if (matches(filter, *row) && filter.matches(row->process)) kernels.push_back(to_proto(*row));
  }
  return kernels;
}

std::vector<KernelStats> list_summed(const GpuReport& report, const RowFilter& filter) {
  struct Sum {
    KernelTextPtr name;
    KernelTotals totals;
    const KernelRow* longest = nullptr;  // with the most time
    std::optional<KernelStalls> stalls;
  };
  std::map<uint64_t, Sum> sums;  // by serial
  const auto add = [&](const KernelRow& row) {
    Sum& sum = sums[row.name->serial];
    sum.name = row.name;
    merge_totals(sum.totals, row.totals);
    const bool is_longer = sum.longest == nullptr ||
                           row.totals.duration.total_ns > sum.longest->totals.duration.total_ns;
    if (row.shape.id != 0 && is_longer) sum.longest = &row;
    if (row.stalls == nullptr) return;
    if (!sum.stalls) sum.stalls.emplace();
    merge_stalls(*sum.stalls, *row.stalls);
  };
  for (const auto& row : report.kernels) {
    if (matches(filter, *row) && filter.matches(row->process)) add(*row);
  }
  if (!filter.has_pid()) {
    for (const auto& row : report.retired_kernels) {
      if (matches(filter, *row)) add(*row);
    }
  }
  std::vector<KernelStats> kernels;
  kernels.reserve(sums.size());
  for (const auto& [serial, sum] : sums) {
    KernelStats& kernel = kernels.emplace_back(to_proto(*sum.name, sum.totals));
    const KernelRow nowhere;
    const KernelRow& launched = sum.longest != nullptr ? *sum.longest : nowhere;
    set_limits(launched.shape, launched.sm, sum.stalls ? &*sum.stalls : nullptr, kernel);
  }
  return kernels;
}

auto get_kernel_name_order(const KernelStats& stats) {
  return std::make_tuple(std::cref(stats.kernel()), stats.pid());
}

}  // namespace

Result<std::vector<KernelStats>> list_kernels(const Snapshot& snapshot, const RowFilter& filter,
                                              std::string_view sort, bool per_process) {
  std::vector<KernelStats> kernels =
      per_process ? list_per_process(snapshot.gpu, filter) : list_summed(snapshot.gpu, filter);
  double total_ns = 0;
  for (const KernelStats& kernel : kernels) total_ns += static_cast<double>(kernel.total_ns());
  for (KernelStats& kernel : kernels) {
    if (total_ns > 0) kernel.set_share_ratio(static_cast<double>(kernel.total_ns()) / total_ns);
  }
  RETURN_IF_ERROR(sort_by_number(sort, "kernel", get_kernel_name_order, kernels));
  return kernels;
}

}  // namespace gpuperf
