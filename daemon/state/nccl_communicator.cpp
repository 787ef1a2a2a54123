#include "daemon/state/nccl_communicator.h"

#include <algorithm>
#include <bit>

namespace gpuperf {
namespace {

// Only one process sends and receives in them.
const std::vector<NcclSteps::Slot>& make_single(bool expects_kernels) {
  static const std::vector<NcclSteps::Slot> kWithout = {{.expects_kernels = false}};
  static const std::vector<NcclSteps::Slot> kWith = {{.expects_kernels = true}};
  return expects_kernels ? kWith : kWithout;
}

// Of kernels that ran beside each other, the one that waited least; empty = none was recorded.
std::optional<uint64_t> find_shortest_ns(const NcclSteps::Step& step) {
  std::optional<uint64_t> shortest_ns;
  for (const NcclSteps::Arrival& arrival : step.arrivals) {
    if (arrival.gpu_start_mono_ns == 0) continue;
    const uint64_t duration_ns = arrival.gpu_end_mono_ns - arrival.gpu_start_mono_ns;
    shortest_ns = std::min(shortest_ns.value_or(duration_ns), duration_ns);
  }
  return shortest_ns;
}

std::vector<NcclWaits::Start> list_starts(const NcclSteps::Step& step, NcclBasis basis) {
  std::vector<NcclWaits::Start> starts;
  for (size_t slot = 0; slot < step.arrivals.size(); ++slot) {
    const NcclSteps::Arrival& arrival = step.arrivals[slot];
    if (arrival.start_mono_ns == 0) continue;
    const uint64_t start_ns =
        basis == NcclBasis::kGpu ? arrival.gpu_start_mono_ns : arrival.start_mono_ns;
    if (start_ns == 0) return {};  // what one rank did is not known: none can be called the last
    starts.push_back({slot, start_ns});
  }
  return starts;
}

}  // namespace

NcclCommunicator::NcclCommunicator(const Identity& identity, DropCounters& drops)
    : drops_(drops), identity_(identity), collectives_(drops), all_to_alls_(drops) {}

size_t NcclCommunicator::add_rank(const ProcessKey& process, uint64_t comm,
                                  std::optional<uint32_t> rank) {
  shared_.reset();
  ranks_.push_back({.row = {.process = process, .comm = comm, .rank = rank}});
  slots_.emplace_back();
  singles_.emplace_back(drops_);
  return ranks_.size() - 1;
}

void NcclCommunicator::remove_rank(size_t slot) {
  shared_.reset();
  slots_[slot].is_active = false;
  if (lateness_ && lateness_->rank_index == slot) lateness_.reset();
  stall_.reset();
}

size_t NcclCommunicator::count_ranks() const {
  return static_cast<size_t>(std::ranges::count(slots_, true, &NcclSteps::Slot::is_active));
}

void NcclCommunicator::infer(size_t slot, uint32_t rank, uint32_t ranks) {
  NcclRankRow& row = ranks_[slot].row;
  if (row.rank && !row.is_rank_inferred) return;
  shared_.reset();
  row.rank = rank;
  row.is_rank_inferred = true;
  if (identity_.is_identified) return;
  identity_.ranks = ranks;
  is_size_inferred_ = ranks != 0;
}

void NcclCommunicator::set_rank(size_t slot, uint32_t rank, uint32_t ranks) {
  shared_.reset();
  ranks_[slot].row.rank = rank;
  ranks_[slot].row.is_rank_inferred = false;
  identity_.ranks = ranks;
}

NcclCommunicator::Stream NcclCommunicator::find_stream(const NcclWork& work) const {
  if (work.sends + work.receives == 0) return Stream::kCollectives;
  // To and from every rank, as much: how all-to-all is made where NCCL has no call for it.
  const uint32_t ranks = identity_.ranks;
  const bool is_of_all = ranks > 1 && work.sends == ranks && work.receives == ranks;
  if (is_of_all && work.are_sizes_equal && work.calls == 2 * ranks) return Stream::kAllToAlls;
  return work.operation == NcclOperation::kMixed ? Stream::kCollectives : Stream::kSingle;
}

NcclSteps& NcclCommunicator::get_steps(Stream stream, size_t slot) {
  if (stream == Stream::kSingle) return singles_[slot];
  return stream == Stream::kAllToAlls ? all_to_alls_ : collectives_;
}

NcclCommunicator::Place NcclCommunicator::add(size_t slot, const NcclWork& work) {
  shared_.reset();
  const Stream stream = find_stream(work);
  const NcclOperation operation =
      stream == Stream::kAllToAlls ? NcclOperation::kAllToAll : work.operation;
  // What all send together is what is counted of all-to-all: one rank's share is one of `ranks`.
  const uint64_t share_bytes =
      stream == Stream::kAllToAlls ? work.bytes / identity_.ranks : work.bytes;
  const uint64_t message_bytes = get_nccl_message_bytes(operation, share_bytes, identity_.ranks);
  const NcclSteps::Place place =
      get_steps(stream, slot)
          .add(stream == Stream::kSingle ? 0 : slot, operation, message_bytes, work.start_mono_ns);
  if (stream == Stream::kCollectives && !place.is_same) is_in_step_ = false;

  NcclRankRow& row = ranks_[slot].row;
  row.tid = work.tid;
  row.last_function_id = work.function_id;
  row.last_start_mono_ns = work.start_mono_ns;
  row.last_end_mono_ns = work.launch_end_mono_ns;
  row.last_stack_id = work.stack_id;
  if (stream == Stream::kCollectives) row.collectives = collectives_.get_next(slot);
  NcclRankTotals& totals = row.operations[static_cast<size_t>(operation)];
  totals.calls += work.calls;
  totals.bytes += work.bytes;
  totals.host_ns += work.host_ns;
  return {slot, stream, place.number, operation, work.calls};
}

void NcclCommunicator::add_kernel(const Place& place, bool is_first, uint64_t start_mono_ns,
                                  uint64_t end_mono_ns) {
  shared_.reset();
  NcclRankTotals& totals = ranks_[place.slot].row.operations[static_cast<size_t>(place.operation)];
  if (is_first) totals.timed_calls += place.calls;
  totals.gpu_ns += end_mono_ns - start_mono_ns;
  get_steps(place.stream, place.slot)
      .set_gpu(place.stream == Stream::kSingle ? 0 : place.slot, place.number, start_mono_ns,
               end_mono_ns);
}

void NcclCommunicator::add_look(size_t slot, const NcclLook& look) {
  Rank& rank = ranks_[slot];
  if (rank.row.activity != look.activity || rank.row.syscall != look.syscall) shared_.reset();
  rank.row.activity = look.activity;
  rank.row.syscall = look.syscall;
  rank.looks.push_back(look);
  if (rank.looks.size() > kMaxLooks) rank.looks.pop_front();
}

void NcclCommunicator::advance(uint64_t now_mono_ns) {
  settle(collectives_, slots_, true, now_mono_ns);
  settle(all_to_alls_, slots_, false, now_mono_ns);
  for (size_t slot = 0; slot < singles_.size(); ++slot) {
    settle(singles_[slot], make_single(slots_[slot].expects_kernels), false, now_mono_ns);
  }
  find_stall(now_mono_ns);
  if (window_begin_mono_ns_ == 0) window_begin_mono_ns_ = now_mono_ns;
  if (now_mono_ns - window_begin_mono_ns_ >= kWindowNs) end_window(now_mono_ns);
}

void NcclCommunicator::settle(NcclSteps& steps, const std::vector<NcclSteps::Slot>& slots,
                              bool is_of_all, uint64_t now_mono_ns) {
  while (const auto step = steps.take(slots, now_mono_ns)) {
    shared_.reset();
    count(*step);
    if (is_of_all && is_in_step_) judge_waits(*step);
  }
}

NcclSizeRow& NcclCommunicator::get_size(NcclOperation operation, uint64_t bytes) {
  const uint64_t size_bytes = std::bit_floor(bytes);
  NcclSizeRow& row = sizes_[{operation, size_bytes}];
  row.operation = operation;
  row.size_bytes = size_bytes;
  return row;
}

void NcclCommunicator::count(const NcclSteps::Step& step) {
  NcclSizeRow& row = get_size(step.operation, step.bytes);
  ++row.count;
  row.bytes += step.bytes;
  const auto shortest_ns = find_shortest_ns(step);
  if (!shortest_ns) return;
  row.min_ns = row.timed == 0 ? *shortest_ns : std::min(row.min_ns, *shortest_ns);
  ++row.timed;
  row.timed_bytes += step.bytes;
  row.timed_ns += *shortest_ns;
}

void NcclCommunicator::judge_waits(const NcclSteps::Step& step) {
  for (const NcclBasis basis : {NcclBasis::kHost, NcclBasis::kGpu}) {
    const auto starts = list_starts(step, basis);
    const auto wait = waits_[static_cast<size_t>(basis)].add(starts);
    if (!wait) continue;
    note_wait(basis, starts, *wait);
    if (basis == NcclBasis::kHost) note_activities(*wait);
  }
}

void NcclCommunicator::note_wait(NcclBasis basis, const std::vector<NcclWaits::Start>& starts,
                                 const NcclWaits::Wait& wait) {
  const auto at = static_cast<size_t>(basis);
  for (size_t i = 0; i < starts.size(); ++i) {
    ranks_[starts[i].slot].row.waited_ns[at] += wait.waited_ns[i];
  }
  ranks_[wait.late_slot].row.caused_ns[at] += wait.caused_ns;
  ++window_.steps[at];
  auto& tallies = window_.tallies[at];
  tallies.resize(ranks_.size());
  tallies[wait.late_slot].caused_ns += wait.caused_ns;
  if (wait.caused_ns >= kNoticeableNs) ++tallies[wait.late_slot].late_steps;
}

void NcclCommunicator::note_activities(const NcclWaits::Wait& wait) {
  window_.activities.resize(ranks_.size());
  for (const NcclLook& look : ranks_[wait.late_slot].looks) {
    if (look.mono_ns < wait.begin_mono_ns || look.mono_ns >= wait.begin_mono_ns + wait.caused_ns) {
      continue;
    }
    ++window_.activities[wait.late_slot][static_cast<size_t>(look.activity)];
  }
}

std::optional<NcclLateness> NcclCommunicator::find_late(NcclBasis basis, uint64_t window_ns,
                                                        double covered) const {
  const auto& tallies = window_.tallies[static_cast<size_t>(basis)];
  const auto late = std::ranges::max_element(tallies, {}, &Tally::caused_ns);
  if (late == tallies.end()) return std::nullopt;
  uint64_t late_steps = 0;
  for (const Tally& tally : tallies) late_steps += tally.late_steps;
  const auto slot = static_cast<size_t>(late - tallies.begin());
  NcclLateness found{.rank_index = slot,
                     .basis = basis,
                     .covered_ns = static_cast<uint64_t>(static_cast<double>(window_ns) * covered),
                     .steps = window_.steps[static_cast<size_t>(basis)],
                     .late_steps = late->late_steps,
                     .caused_ns = late->caused_ns};
  const auto& by_calls = window_.tallies[static_cast<size_t>(NcclBasis::kHost)];
  if (slot < by_calls.size()) {
    found.host_caused_ns =
        static_cast<uint64_t>(static_cast<double>(by_calls[slot].caused_ns) * covered);
  }
  if (slot < window_.activities.size()) found.activities = window_.activities[slot];
  const bool is_mostly = 2 * late->late_steps >= late_steps && late->late_steps > 0;
  if (!slots_[slot].is_active || !is_mostly || found.get_share() < kMinShare) return std::nullopt;
  return found;
}

void NcclCommunicator::end_window(uint64_t now_mono_ns) {
  const uint64_t window_ns = now_mono_ns - window_begin_mono_ns_;
  const uint64_t by_gpu = window_.steps[static_cast<size_t>(NcclBasis::kGpu)];
  const uint64_t by_host = window_.steps[static_cast<size_t>(NcclBasis::kHost)];
  // Kernels say who waited; calls only who called late, which a GPU with work left does not feel.
  // A tenth of the operations says enough, of the time that is theirs.
  const bool is_by_gpu = by_gpu > 0 && by_gpu * 10 >= by_host;
  const double covered =
      is_by_gpu ? std::min(1.0, static_cast<double>(by_gpu) / static_cast<double>(by_host)) : 1.0;
  const auto lateness =
      find_late(is_by_gpu ? NcclBasis::kGpu : NcclBasis::kHost, window_ns, covered);
  if (lateness != lateness_) shared_.reset();
  lateness_ = lateness;
  window_ = {};
  window_begin_mono_ns_ = now_mono_ns;
}

void NcclCommunicator::find_stall(uint64_t now_mono_ns) {
  std::optional<NcclStall> found;
  const auto missing = is_in_step_ ? collectives_.find_missing(slots_) : std::nullopt;
  if (missing) {
    const NcclSteps::Step& step = collectives_.get(missing->number);
    if (now_mono_ns >= step.newest_mono_ns + kStallNs) {
      found = NcclStall{.step = missing->number,
                        .operation = step.operation,
                        .since_mono_ns = static_cast<int64_t>(step.newest_mono_ns),
                        .missing_ranks = missing->slots};
    }
  }
  if (found == stall_) return;
  stall_ = std::move(found);
  shared_.reset();
}

std::shared_ptr<const NcclCommunicatorRow> NcclCommunicator::share() const {
  if (shared_ != nullptr) return shared_;
  auto row = std::make_shared<NcclCommunicatorRow>();
  row->id = identity_.id;
  row->is_identified = identity_.is_identified;
  row->is_in_step = is_in_step_;
  row->ranks = identity_.ranks;
  row->is_size_inferred = is_size_inferred_;
  std::vector<size_t> indexes(ranks_.size());  // by slot
  for (size_t slot = 0; slot < ranks_.size(); ++slot) {
    indexes[slot] = row->local_ranks.size();
    if (slots_[slot].is_active) row->local_ranks.push_back(ranks_[slot].row);
  }
  for (const auto& [key, size] : sizes_) row->sizes.push_back(size);
  row->lateness = lateness_;
  if (lateness_) row->lateness->rank_index = indexes[lateness_->rank_index];
  row->stall = stall_;
  if (stall_) {
    for (size_t& slot : row->stall->missing_ranks) slot = indexes[slot];
  }
  shared_ = std::move(row);
  return shared_;
}

}  // namespace gpuperf
