#include "daemon/state/function_stats.h"

#include <algorithm>

namespace gpuperf {
namespace {

// Adds `delta` and keeps the number of error codes bounded: a hostile program may return a new code
// with every call of every process it starts. Codes already known keep their own counts.
void add_bounded(FunctionTotals& totals, const CellDelta& delta) {
  if (totals.errors.size() + delta.errors.size() <= FunctionStats::kMaxErrorCodes) {
    return add_delta(totals, delta);
  }
  CellDelta folded = delta;
  folded.errors.clear();
  size_t free_codes = FunctionStats::kMaxErrorCodes - totals.errors.size();
  for (const auto& [code, count] : delta.errors) {
    const bool known = totals.errors.contains(code);
    if (known || free_codes > 0) {
      folded.errors.emplace_back(code, count);
      free_codes -= known ? 0 : 1;
    } else {
      folded.other_errors += count;
    }
  }
  add_delta(totals, folded);
}

uint64_t get_ended(const CellDelta& delta) {
  uint64_t ended = static_cast<uint64_t>(delta.abandoned) + delta.untimed;
  for (const auto& [bucket, count] : delta.buckets) ended += count;
  return ended;
}

}  // namespace

FunctionStats::FunctionStats(const Limits& limits, DropCounters& drops)
    : drops_(drops), limits_(limits) {}

FunctionTotals& FunctionStats::change(RowSlot& slot) {
  if (slot.shared) slot.row = std::make_shared<FunctionRow>(*slot.row);
  slot.shared = false;
  return slot.row->totals;
}

FunctionTotals& FunctionStats::change(SeriesSlot& slot) {
  if (slot.shared) slot.series = std::make_shared<FunctionSeries>(*slot.series);
  slot.shared = false;
  return slot.series->totals;
}

FunctionStats::SeriesSlot& FunctionStats::get_series(uint32_t function_id, const Owner& owner) {
  const auto found = series_.find({function_id, owner});
  if (found != series_.end()) return found->second;
  const bool full = series_.size() >= limits_.max_series && owner != other_owner();
  if (full) drops_.add(DropCause::kStatsSeriesFull);
  const Owner& kept = full ? other_owner() : owner;
  SeriesSlot& slot = series_[{function_id, kept}];
  if (slot.series == nullptr) {
    slot.series = std::make_shared<FunctionSeries>();
    slot.series->function_id = function_id;
    slot.series->owner = kept;
  }
  return slot;
}

FunctionStats::RowSlot& FunctionStats::get_row(Process& process, const CellDelta& delta) {
  if (process.rows.empty()) process.owner = delta.owner;
  RowSlot& slot = process.rows[delta.function_id];
  if (slot.row != nullptr) return slot;
  slot.row = std::make_shared<FunctionRow>();
  slot.row->function_id = delta.function_id;
  slot.row->process = delta.process;
  // The first owner stays: a call must end in the series in which it began.
  slot.row->owner = delta.owner;
  slot.row->exited = process.exited;
  slot.series = &get_series(delta.function_id, delta.owner);
  if (process.exited) ++exited_rows_;
  return slot;
}

void FunctionStats::abandon_in_flight(RowSlot& slot) {
  const uint64_t in_flight = get_in_flight(slot.row->totals);
  if (in_flight == 0) return;
  change(slot).abandoned += in_flight;
  change(*slot.series).abandoned += in_flight;
  slot.abandoned_by_exit += in_flight;
}

void FunctionStats::take_back_abandoned(RowSlot& slot) {
  if (slot.abandoned_by_exit == 0) return;
  change(slot).abandoned -= slot.abandoned_by_exit;
  change(*slot.series).abandoned -= slot.abandoned_by_exit;
  slot.abandoned_by_exit = 0;
}

void FunctionStats::apply(const CellDelta& delta) {
  loop_thread_.check();
  if (forgotten_.contains(delta.process)) return apply_to_forgotten(delta);
  Process& process = processes_[delta.process];
  RowSlot& slot = get_row(process, delta);
  if (process.exited) take_back_abandoned(slot);
  add_bounded(change(slot), delta);
  add_bounded(change(*slot.series), delta);
  if (process.exited) abandon_in_flight(slot);
}

FunctionStats::RowSlot* FunctionStats::find_row(const ProcessKey& process, uint32_t function_id) {
  const auto known = processes_.find(process);
  if (known == processes_.end()) return nullptr;
  const auto slot = known->second.rows.find(function_id);
  return slot == known->second.rows.end() ? nullptr : &slot->second;
}

void FunctionStats::add_past_hooks(const ProcessKey& process, uint32_t function_id,
                                   uint64_t calls) {
  loop_thread_.check();
  RowSlot* const slot = find_row(process, function_id);
  if (slot == nullptr) return;
  change(*slot).past_hooks += calls;
  change(*slot->series).past_hooks += calls;
}

void FunctionStats::add_missed(const ProcessKey& process, uint32_t function_id,
                               const CallsEstimate& missed) {
  loop_thread_.check();
  RowSlot* const slot = find_row(process, function_id);
  if (slot == nullptr) return;
  change(*slot).missed += missed;
  change(*slot->series).missed += missed;
}

// The row is gone, so only the series is told; every call the delta leaves open is abandoned, and
// every call it ends beyond those it begins had been abandoned at the exit.
void FunctionStats::apply_to_forgotten(const CellDelta& delta) {
  drops_.add(DropCause::kStatsProcessesFull);
  FunctionTotals& totals = change(get_series(delta.function_id, delta.owner));
  add_bounded(totals, delta);
  const auto left_open = static_cast<int64_t>(delta.calls - get_ended(delta));
  if (left_open >= 0) {
    totals.abandoned += static_cast<uint64_t>(left_open);
  } else {
    totals.abandoned -= std::min(totals.abandoned, static_cast<uint64_t>(-left_open));
  }
}

void FunctionStats::apply(const ProcessExited& exited, int64_t now_mono_ns) {
  loop_thread_.check();
  if (exited.process.pid == 0) return;
  const auto found = processes_.find(exited.process);
  if (found == processes_.end() || found->second.exited) return;
  Process& process = found->second;
  process.exited = true;
  process.exited_mono_ns = now_mono_ns;
  for (auto& [function_id, slot] : process.rows) {
    (void)change(slot);  // `exited` is about to change
    slot.row->exited = true;
    abandon_in_flight(slot);
  }
  exited_.push_back(exited.process);
  exited_rows_ += process.rows.size();
  while (exited_.size() > limits_.max_exited_processes || exited_rows_ > limits_.max_exited_rows) {
    drops_.add(DropCause::kStatsProcessesFull, processes_.at(exited_.front()).rows.size());
    forget_oldest();
  }
}

void FunctionStats::expire(int64_t now_mono_ns) {
  loop_thread_.check();
  const int64_t keep_ns = std::chrono::nanoseconds(limits_.keep_exited).count();
  while (!exited_.empty() &&
         now_mono_ns - processes_.at(exited_.front()).exited_mono_ns >= keep_ns) {
    forget_oldest();
  }
}

void FunctionStats::forget_oldest() {
  const auto oldest = processes_.find(exited_.front());
  exited_rows_ -= oldest->second.rows.size();
  forgotten_.add(oldest->first);
  processes_.erase(oldest);
  exited_.pop_front();
}

void FunctionStats::fill(Snapshot& snapshot) const {
  snapshot.self.add(Bound::kFunctionSeries, series_.size(), limits_.max_series);
  snapshot.self.add(Bound::kExitedRows, exited_rows_, limits_.max_exited_rows);
  snapshot.rows.clear();
  snapshot.series.clear();
  snapshot.processes.clear();
  snapshot.processes.reserve(processes_.size());
  for (const auto& [key, process] : processes_) {
    ProcessRow row{.process = key, .owner = process.owner, .exited = process.exited};
    row.functions = static_cast<uint32_t>(process.rows.size());
    for (const auto& [function_id, slot] : process.rows) {
      row.calls += slot.row->totals.calls;
      row.slow_calls += slot.row->totals.slow_calls;
      slot.shared = true;
      snapshot.rows.push_back(slot.row);
    }
    snapshot.processes.push_back(std::move(row));
  }
  snapshot.series.reserve(series_.size());
  for (const auto& [key, slot] : series_) {
    slot.shared = true;
    snapshot.series.push_back(slot.series);
  }
}

}  // namespace gpuperf
