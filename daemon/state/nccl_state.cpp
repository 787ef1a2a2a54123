#include "daemon/state/nccl_state.h"

#include <algorithm>
#include <initializer_list>
#include <tuple>

namespace gpuperf {
namespace {

// FNV-1a: the same on every host, so that a communicator has one label everywhere.
uint64_t hash(std::initializer_list<uint64_t> parts) {
  uint64_t value = 0xcbf29ce484222325;
  for (const uint64_t part : parts) {
    for (int shift = 0; shift < 64; shift += 8) {
      value = (value ^ (part >> shift & 0xff)) * 0x100000001b3;
    }
  }
  return value;
}

}  // namespace

NcclState::NcclState(DropCounters& drops)
    : drops_(drops),
      groups_(drops),
      join_(drops, [this](const NcclKernelJoin::Work& work, bool is_first, uint64_t start_mono_ns,
                          uint64_t end_mono_ns) {
        const auto found = communicators_.find(work.communicator);
        if (found == communicators_.end()) return;  // destroyed since
        found->second.add_kernel(work.place, is_first, start_mono_ns, end_mono_ns);
      }) {}

void NcclState::apply(const Function& function, const ReportedCall& reported) {
  loop_thread_.check();
  const auto call = decode_nccl_call(function, reported);
  if (!call) return;
  ++calls_;
  switch (call->kind) {
    case NcclCallKind::kCreate:
      return create(*call);
    case NcclCallKind::kSplit:
      return split(*call);
    case NcclCallKind::kDestroy:
      return destroy(call->process, call->comm);
    case NcclCallKind::kOperation:
    case NcclCallKind::kGroupStart:
    case NcclCallKind::kGroupEnd:
      for (const NcclWork& work : groups_.add(*call)) take(work);
  }
}

void NcclState::create(const NcclCall& call) {
  const auto& id = call.unique_id;
  destroy(call.process, call.comm);  // its memory is used anew
  (void)add_handle(call.process, call.comm,
                   {.id = hash({id[0], id[1], id[2]}), .is_identified = true, .ranks = call.ranks},
                   call.rank);
}

void NcclState::split(const NcclCall& call) {
  const auto parent = handles_.find({call.process, call.parent});
  if (parent == handles_.end()) return;
  NcclCommunicator& communicator = communicators_.at(parent->second.communicator);
  const uint64_t splits = communicator.count_splits(parent->second.slot);
  const NcclCommunicator::Identity identity = communicator.identity();
  const auto parent_rank = communicator.row(parent->second.slot).rank;
  if (!identity.is_identified) return;
  if (call.comm != 0) {
    const uint64_t id = hash({identity.id, splits, static_cast<uint32_t>(call.color)});
    destroy(call.process, call.comm);
    (void)add_handle(call.process, call.comm, {.id = id, .is_identified = true}, std::nullopt);
  }
  if (!parent_rank) return;
  note_split(identity.id, splits, identity.ranks,
             {.process = call.process,
              .comm = call.comm,
              .parent_rank = *parent_rank,
              .color = call.color,
              .key = call.key});
}

// Ranks are in order of their keys, then of their ranks before.
void NcclState::note_split(uint64_t parent_id, uint64_t number, uint32_t ranks,
                           const Split& split) {
  const std::pair key{parent_id, number};
  if (!splits_.contains(key) && splits_.size() >= kMaxSplits) {
    return drops_.add(DropCause::kNcclRanksFull);
  }
  std::vector<Split>& splits = splits_[key];
  splits.push_back(split);
  if (splits.size() != ranks) return;
  std::ranges::sort(
      splits, {}, [](const Split& one) { return std::tuple(one.color, one.key, one.parent_rank); });
  for (const Split& one : splits) {
    const auto handle = handles_.find({one.process, one.comm});
    if (one.comm == 0 || handle == handles_.end()) continue;
    const auto first = std::ranges::lower_bound(splits, one.color, {}, &Split::color);
    const auto end = std::ranges::upper_bound(splits, one.color, {}, &Split::color);
    const auto rank = static_cast<uint32_t>(&one - &*first);
    communicators_.at(handle->second.communicator)
        .set_rank(handle->second.slot, rank, static_cast<uint32_t>(end - first));
  }
  splits_.erase(key);
}

void NcclState::destroy(const ProcessKey& process, uint64_t comm) {
  if (const auto handle = handles_.find({process, comm}); handle != handles_.end()) leave(handle);
}

NcclState::Handle* NcclState::add_handle(const ProcessKey& process, uint64_t comm,
                                         const NcclCommunicator::Identity& identity,
                                         std::optional<uint32_t> rank) {
  const auto of_process = std::ranges::count_if(
      handles_, [&](const auto& handle) { return is_same_process(handle.first.first, process); });
  if (handles_.size() >= kMaxRanks || static_cast<size_t>(of_process) >= kMaxRanksOfProcess) {
    drops_.add(DropCause::kNcclRanksFull);
    return nullptr;
  }
  const auto known = identity.is_identified ? identified_.find(identity.id) : identified_.end();
  const uint64_t number = known != identified_.end() ? known->second : ++last_number_;
  const auto communicator = communicators_.try_emplace(number, identity, drops_).first;
  if (identity.is_identified) identified_[identity.id] = number;
  const size_t slot = communicator->second.add_rank(process, comm, rank);
  communicator->second.set_expects_kernels(slot, join_.is_recorded(process));
  Handle& handle = handles_[{process, comm}];
  handle = {.communicator = number, .slot = slot};
  if (!rank) infer(process);
  return &handle;
}

NcclState::Handle* NcclState::find_or_add(const NcclWork& work) {
  const auto known = handles_.find({work.process, work.comm});
  if (known != handles_.end()) return &known->second;
  return add_handle(work.process, work.comm,
                    {.id = hash({work.process.pid, work.process.start_boot_ns, work.comm})},
                    std::nullopt);
}

void NcclState::take(const NcclWork& work) {
  const Handle* handle = find_or_add(work);
  if (handle == nullptr) return;
  const auto place = communicators_.at(handle->communicator).add(handle->slot, work);
  if (work.is_launch_shared) return;
  join_.add(work.process, work.tid, work.launch_start_mono_ns, work.launch_end_mono_ns,
            {.communicator = handle->communicator, .place = place});
}

void NcclState::leave(Handles::iterator handle) {
  const auto found = communicators_.find(handle->second.communicator);
  NcclCommunicator& communicator = found->second;
  communicator.remove_rank(handle->second.slot);
  handles_.erase(handle);
  if (communicator.count_ranks() > 0) return;
  if (communicator.identity().is_identified) {
    const uint64_t id = communicator.identity().id;
    identified_.erase(id);
    std::erase_if(splits_, [id](const auto& split) { return split.first.first == id; });
  }
  communicators_.erase(found);
}

void NcclState::forget(const ProcessKey& process) {
  loop_thread_.check();
  groups_.forget(process);
  join_.forget(process);
  worlds_.erase(process);
  for (auto handle = handles_.begin(); handle != handles_.end();) {
    const auto current = handle++;
    if (is_same_process(current->first.first, process)) leave(current);
  }
}

void NcclState::advance(int64_t now_mono_ns) {
  loop_thread_.check();
  for (const auto& [key, handle] : handles_) {
    communicators_.at(handle.communicator)
        .set_expects_kernels(handle.slot, join_.is_recorded(key.first));
  }
  for (auto& [number, communicator] : communicators_) {
    communicator.advance(static_cast<uint64_t>(now_mono_ns));
  }
}

std::vector<NcclState::Watched> NcclState::list_watched() const {
  std::vector<Watched> threads;
  for (const auto& [key, handle] : handles_) {
    const NcclCommunicator& communicator = communicators_.at(handle.communicator);
    const Watched thread{key.first, communicator.row(handle.slot).tid};
    if (communicator.count_ranks() < 2 || thread.tid == 0) continue;
    if (std::ranges::count(threads, thread) == 0) threads.push_back(thread);
  }
  return threads;
}

void NcclState::add_look(const Watched& thread, const NcclLook& look) {
  for (const auto& [key, handle] : handles_) {
    NcclCommunicator& communicator = communicators_.at(handle.communicator);
    const bool is_it = is_same_process(key.first, thread.process) &&
                       communicator.row(handle.slot).tid == thread.tid;
    if (is_it) communicator.add_look(handle.slot, look);
  }
}

void NcclState::learn_world(const ProcessKey& process, uint32_t rank, uint32_t ranks) {
  loop_thread_.check();
  if (worlds_.size() >= kMaxWorlds) return drops_.add(DropCause::kNcclRanksFull);
  worlds_[process] = {.rank = rank, .ranks = ranks};
  infer(process);
}

// A process's only communicator is its launcher's world; of several, none can be told to be it.
void NcclState::infer(const ProcessKey& process) {
  const auto world = worlds_.find(process);
  if (world == worlds_.end()) return;
  std::vector<const Handle*> found;
  for (const auto& [key, handle] : handles_) {
    if (is_same_process(key.first, process)) found.push_back(&handle);
  }
  const uint32_t ranks = found.size() == 1 ? world->second.ranks : 0;
  for (const Handle* handle : found) {
    communicators_.at(handle->communicator).infer(handle->slot, world->second.rank, ranks);
  }
}

void NcclState::fill(NcclReport& report) const {
  for (const auto& [number, communicator] : communicators_) {
    report.communicators.push_back(communicator.share());
  }
  report.calls = calls_;
}

}  // namespace gpuperf
