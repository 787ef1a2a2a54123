#include "daemon/state/nccl_groups.h"

#include <algorithm>

namespace gpuperf {
namespace {

NcclWork make_work(const NcclCall& call) {
  return {.process = call.process,
          .tid = call.tid,
          .comm = call.comm,
          .operation = call.operation,
          .calls = 0,
          .start_mono_ns = call.start_mono_ns,
          .launch_start_mono_ns = call.start_mono_ns,
          .launch_end_mono_ns = call.end_mono_ns};
}

struct Traffic {
  uint64_t sent_bytes = 0;
  uint64_t received_bytes = 0;
  uint64_t each_bytes = 0;
};

void add(NcclWork& work, Traffic& traffic, const NcclCall& call) {
  const bool is_single = call.operation == NcclOperation::kSendReceive;
  if (work.operation != call.operation) work.operation = NcclOperation::kMixed;
  ++work.calls;
  work.host_ns += call.end_mono_ns - call.start_mono_ns;
  work.function_id = call.function_id;
  work.stack_id = call.stack_id;
  if (!is_single) {
    work.bytes += call.bytes;
    return;
  }
  if (work.sends + work.receives > 0 && traffic.each_bytes != call.bytes) {
    work.are_sizes_equal = false;
  }
  traffic.each_bytes = call.bytes;
  ++(call.is_send ? work.sends : work.receives);
  (call.is_send ? traffic.sent_bytes : traffic.received_bytes) += call.bytes;
}

void finish(NcclWork& work, const Traffic& traffic) {
  work.bytes += work.sends > 0 ? traffic.sent_bytes : traffic.received_bytes;
}

std::vector<NcclWork> make_works(const std::vector<NcclCall>& calls, const NcclCall& end) {
  std::vector<NcclWork> works;
  std::vector<Traffic> traffic;
  for (const NcclCall& call : calls) {
    auto work = std::ranges::find(works, call.comm, &NcclWork::comm);
    if (work == works.end()) {
      works.push_back(make_work(call));
      traffic.emplace_back();
      work = works.end() - 1;
    }
    add(*work, traffic[static_cast<size_t>(work - works.begin())], call);
  }
  for (size_t i = 0; i < works.size(); ++i) {
    finish(works[i], traffic[i]);
    works[i].is_launch_shared = works.size() > 1;
    works[i].launch_start_mono_ns = end.start_mono_ns;
    works[i].launch_end_mono_ns = end.end_mono_ns;
  }
  if (!works.empty()) works.back().host_ns += end.end_mono_ns - end.start_mono_ns;
  return works;
}

}  // namespace

std::vector<NcclWork> NcclGroups::add(const NcclCall& call) {
  loop_thread_.check();
  const std::pair thread{call.process, call.tid};
  const auto known = groups_.find(thread);
  if (call.kind == NcclCallKind::kGroupStart) {
    if (known == groups_.end() && groups_.size() >= kMaxGroups) {
      drops_.add(DropCause::kNcclGroupsFull);
      return {};
    }
    ++groups_[thread].depth;
    return {};
  }
  if (call.kind == NcclCallKind::kGroupEnd) {
    // Unknown: begun before the daemon.
    if (known == groups_.end() || --known->second.depth > 0) return {};
    std::vector<NcclWork> works = make_works(known->second.calls, call);
    groups_.erase(known);
    return works;
  }
  if (known != groups_.end()) {
    if (known->second.calls.size() < kMaxCalls) {
      known->second.calls.push_back(call);
      return {};
    }
    drops_.add(DropCause::kNcclGroupsFull);
  }
  NcclWork work = make_work(call);
  Traffic traffic;
  gpuperf::add(work, traffic, call);
  finish(work, traffic);
  return {work};
}

void NcclGroups::forget(const ProcessKey& process) {
  loop_thread_.check();
  std::erase_if(groups_,
                [&](const auto& group) { return is_same_process(group.first.first, process); });
}

}  // namespace gpuperf
