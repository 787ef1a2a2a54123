#include "daemon/state/nccl_kernel_join.h"

#include <algorithm>
#include <utility>

#include "daemon/model/kernel_name.h"

namespace gpuperf {

struct NcclKernelJoin::Session final : SessionFollower {
  Session(NcclKernelJoin& its_join, SessionEntry& entry)
      : join(its_join),
        process(entry.row().facts.process),
        account(entry.memory(), entry.holder()) {
    join.sessions_.insert(this);
  }
  ~Session() override { join.sessions_.erase(this); }
  void take_batch(const SessionBatch& batch, int64_t now_mono_ns) override {
    join.apply(*this, batch, static_cast<uint64_t>(now_mono_ns));
  }
  void take_status(const SessionStatus& status, int64_t) override {
    is_collecting = status.state == GPUPERF_SESSION_STATE_COLLECTING &&
                    (status.level & GPUPERF_SESSION_LEVEL_KERNELS) != 0;
  }
  void expire(int64_t now_mono_ns) override {
    join.match(*this, static_cast<uint64_t>(now_mono_ns));
  }

  NcclKernelJoin& join;
  const ProcessKey process;
  SessionMemory::Account account;  // of `apis`
  bool is_collecting = false;
  std::vector<bool> is_nccl;              // by name id
  std::vector<Api> apis;                  // whose calls may still be reported
  std::map<uint32_t, Launched> launched;  // by correlation id
  std::map<uint32_t, Kernel> kernels;     // likewise
};

void NcclKernelJoin::follow(SessionRegistry& sessions) {
  sessions.add([this](SessionEntry& entry) { return std::make_unique<Session>(*this, entry); });
}

bool NcclKernelJoin::is_recorded(const ProcessKey& process) const {
  return std::ranges::any_of(sessions_, [&](const Session* session) {
    return session->is_collecting && is_same_process(session->process, process);
  });
}

size_t NcclKernelJoin::count_waiting() const {
  size_t most = 0;
  for (const Session* session : sessions_) most = std::max(most, session->kernels.size());
  return most;
}

void NcclKernelJoin::add(const ProcessKey& process, uint32_t tid, uint64_t start_mono_ns,
                         uint64_t end_mono_ns, const Work& work) {
  loop_thread_.check();
  auto& launches = processes_[process][tid];
  launches.push_back(std::make_shared<Launch>(
      Launch{.start_mono_ns = start_mono_ns, .end_mono_ns = end_mono_ns, .work = work}));
  if (launches.size() > kMaxLaunches) launches.pop_front();
}

void NcclKernelJoin::apply(Session& session, const SessionBatch& batch, uint64_t now_mono_ns) {
  loop_thread_.check();
  learn(session, batch.names);
  const auto process = processes_.find(session.process);
  if (process == processes_.end()) return;  // it does not use NCCL
  for (const ApiRecord& record : batch.apis) add(session, process->second, record);
  for (const KernelRecord& record : batch.kernels) add(session, record);
  match(session, now_mono_ns);
}

void NcclKernelJoin::learn(Session& session, const std::vector<KernelName>& names) {
  for (const KernelName& name : names) {
    if (name.id >= GPUPERF_NAMES_MAX || !is_nccl_kernel(name.text)) continue;
    if (name.id >= session.is_nccl.size()) session.is_nccl.resize(name.id + 1, false);
    session.is_nccl[name.id] = true;
  }
}

void NcclKernelJoin::add(Session& session, const Threads& threads, const ApiRecord& record) {
  if (!record.has_work || record.return_value != 0 || !threads.contains(record.tid)) return;
  const size_t before = session.apis.capacity();
  if (session.apis.size() >= kMaxApis || !session.account.has_room()) {
    return drops_.add(DropCause::kNcclJoinFull);
  }
  session.apis.push_back({.start_mono_ns = record.start_mono_ns,
                          .correlation_id = record.correlation_id,
                          .tid = record.tid});
  session.account.add((session.apis.capacity() - before) * sizeof(Api));
}

void NcclKernelJoin::add(Session& session, const KernelRecord& record) {
  const bool is_nccl = record.name_id < session.is_nccl.size() && session.is_nccl[record.name_id];
  const bool is_node = record.graph_id != 0 || (record.flags & GPUPERF_KERNEL_FROM_GRAPH) != 0;
  if (!is_nccl || is_node) return;
  if (session.kernels.size() >= kMaxKernels) return drops_.add(DropCause::kNcclJoinFull);
  session.kernels[record.correlation_id] = {
      .start_mono_ns = record.start_mono_ns,
      .end_mono_ns = record.start_mono_ns + record.duration_ns};
}

void NcclKernelJoin::match(Session& session, uint64_t now_mono_ns) {
  loop_thread_.check();
  const auto process = processes_.find(session.process);
  if (process != processes_.end()) match_apis(session, process->second, now_mono_ns);
  match_kernels(session, now_mono_ns);
}

// Calls of a thread are reported in order of their ends: one that may hold an API call has not come
// as long as the last reported one ended before that.
void NcclKernelJoin::match_apis(Session& session, const Threads& threads, uint64_t now_mono_ns) {
  std::erase_if(session.apis, [&](const Api& api) {
    const auto thread = threads.find(api.tid);
    if (thread == threads.end()) return true;
    const auto& launches = thread->second;
    const auto launch = std::ranges::lower_bound(
        launches, api.start_mono_ns, {}, [](const LaunchPtr& one) { return one->end_mono_ns; });
    if (launch == launches.end()) return now_mono_ns >= api.start_mono_ns + kApiWaitNs;
    if ((*launch)->start_mono_ns > api.start_mono_ns + kClockNs) return true;  // between two
    if (session.launched.size() >= kMaxKernels) {
      drops_.add(DropCause::kNcclJoinFull);
    } else {
      session.launched[api.correlation_id] = {*launch, now_mono_ns};
    }
    return true;
  });
}

void NcclKernelJoin::match_kernels(Session& session, uint64_t now_mono_ns) {
  std::erase_if(session.kernels, [&](const auto& entry) {
    const auto& [correlation_id, kernel] = entry;
    const auto launched = session.launched.find(correlation_id);
    if (launched == session.launched.end()) {
      const bool is_over = now_mono_ns >= kernel.end_mono_ns + kKernelWaitNs;
      if (is_over) drops_.add(DropCause::kNcclKernelsExpired);
      return is_over;
    }
    Launch& launch = *launched->second.launch;
    on_kernel_(launch.work, !std::exchange(launch.has_kernel, true), kernel.start_mono_ns,
               kernel.end_mono_ns);
    session.launched.erase(launched);
    return true;
  });
  std::erase_if(session.launched, [&](const auto& entry) {
    return now_mono_ns >= entry.second.found_mono_ns + kLaunchedWaitNs;
  });
}

}  // namespace gpuperf
