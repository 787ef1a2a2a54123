#include "daemon/app/nccl_part.h"

#include <chrono>
#include <memory>
#include <vector>

#include "daemon/app/kernel_part.h"
#include "daemon/app/sessions_part.h"

namespace gpuperf {
namespace {

// A rank that is late by 20 ms of every 100 is met once a second. No divisor of what steps usually
// take, so that looks do not keep pace with them.
constexpr std::chrono::milliseconds kLookPeriod{199};

}  // namespace

Status NcclPart::start() {
  nccl_.follow(sessions_.registry());
  return core_.loop->add_timer(kLookPeriod, [this] { look(); });
}

void NcclPart::advance(int64_t now_mono_ns) {
  nccl_.advance(now_mono_ns);
  name_stacks();
}

void NcclPart::learn_world(const ProcessKey& process, const WorldTask& world) {
  if (world.rank) nccl_.learn_world(process, *world.rank, world.ranks);
}

void NcclPart::look() {
  std::map<uint32_t, ThreadReading> readings;
  for (const NcclState::Watched& thread : nccl_.list_watched()) {
    const ThreadReading now = threads_.read(thread.process.pid, thread.tid, core_.clock.mono_ns());
    nccl_.add_look(thread, {.mono_ns = static_cast<uint64_t>(now.mono_ns),
                            .activity = judge_activity(readings_[thread.tid], now),
                            .syscall = now.syscall});
    readings.emplace(thread.tid, now);
  }
  readings_ = std::move(readings);
}

// Of communicators in which some rank is waited for, of all their ranks: to be compared.
void NcclPart::name_stacks() {
  NcclReport report;
  nccl_.fill(report);
  std::map<uint64_t, ProcessKey> wanted;
  for (const auto& communicator : report.communicators) {
    if (!communicator->lateness && !communicator->stall) continue;
    for (const NcclRankRow& rank : communicator->local_ranks) {
      if (rank.last_stack_id != 0) wanted.emplace(rank.last_stack_id, rank.process);
    }
  }
  stacks_.keep(wanted);
}

void NcclPart::fill(Snapshot& snapshot) const {
  nccl_.fill(snapshot.nccl);
  nccl_.fill(snapshot.self);
  stacks_.fill(snapshot);
}

}  // namespace gpuperf
