#include "daemon/rpc/function_list.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "daemon/rpc/number_sort.h"
#include "daemon/rpc/to_proto.h"

namespace gpuperf {
namespace {

using v1::FunctionStats;

template <typename Row>
bool matches_row(const RowFilter& filter, const Function* function, const Row& row) {
  return function != nullptr && filter.matches_function(function->category, function->name) &&
         filter.matches(row.owner);
}

// Age of the oldest call in flight of each (function, process) that has one.
using OldestCalls = std::map<std::pair<uint32_t, ProcessKey>, uint64_t>;
OldestCalls find_oldest_calls(const Snapshot& snapshot) {
  OldestCalls oldest;
  if (snapshot.in_flight == nullptr) return oldest;
  for (const InFlightCall& call : snapshot.in_flight->calls) {
    uint64_t& age_ns = oldest[{call.function_id, call.process}];
    age_ns = std::max(age_ns, get_age_ns(*snapshot.in_flight, call));
  }
  return oldest;
}

auto get_name_order(const FunctionStats& stats) {
  return std::make_tuple(std::cref(stats.function()), std::cref(stats.category()), stats.pid());
}

void add_buckets(const FunctionTotals& totals, FunctionStats& stats) {
  for (const auto& [index, count] : totals.histogram.buckets()) {
    v1::DurationBucket& bucket = *stats.add_buckets();
    bucket.set_duration_ns(bucket_middle_ns(index));
    bucket.set_calls(count);
  }
}

}  // namespace

const Function* find_function(const Snapshot& snapshot, uint32_t function_id) {
  if (snapshot.functions == nullptr || function_id >= snapshot.functions->size()) return nullptr;
  return &(*snapshot.functions)[function_id];
}

std::vector<FunctionStats> list_per_process(const Snapshot& snapshot, const RowFilter& filter,
                                            WithBuckets with_buckets) {
  const OldestCalls oldest = find_oldest_calls(snapshot);
  std::vector<FunctionStats> functions;
  for (const auto& row : snapshot.rows) {
    const Function* function = find_function(snapshot, row->function_id);
    if (!matches_row(filter, function, *row) || !filter.matches(row->process)) continue;
    const auto call = oldest.find({row->function_id, row->process});
    const FunctionNow now{.coverage = get_coverage(snapshot, row->function_id),
                          .oldest_in_flight_ns = call == oldest.end() ? 0 : call->second};
    functions.push_back(to_proto(*function, *row, now));
    if (with_buckets == WithBuckets::kYes) add_buckets(row->totals, functions.back());
  }
  return functions;
}

std::vector<FunctionStats> list_summed(const Snapshot& snapshot, const RowFilter& filter,
                                       WithBuckets with_buckets) {
  std::map<uint32_t, FunctionTotals> sums;
  const auto add = [&](const auto& row) {
    if (matches_row(filter, find_function(snapshot, row.function_id), row)) {
      merge_totals(sums[row.function_id], row.totals);
    }
  };
  if (filter.has_pid()) {
    for (const auto& row : snapshot.rows) {
      if (filter.matches(row->process)) add(*row);
    }
  } else {
    for (const auto& series : snapshot.series) add(*series);
  }
  std::map<uint32_t, uint64_t> oldest;
  for (const auto& [key, age_ns] : find_oldest_calls(snapshot)) {
    const auto& [id, process] = key;
    if (!filter.matches(process) || !filter.matches(get_owner(snapshot, process))) continue;
    oldest[id] = std::max(oldest[id], age_ns);
  }
  std::vector<FunctionStats> functions;
  functions.reserve(sums.size());
  for (const auto& [id, totals] : sums) {
    functions.push_back(
        to_proto((*snapshot.functions)[id], totals,
                 {.coverage = get_coverage(snapshot, id), .oldest_in_flight_ns = oldest[id]}));
    if (with_buckets == WithBuckets::kYes) add_buckets(totals, functions.back());
  }
  return functions;
}

Status sort_functions(std::string_view field_name, std::vector<FunctionStats>& functions) {
  return sort_by_number(field_name, "function", get_name_order, functions);
}

}  // namespace gpuperf
