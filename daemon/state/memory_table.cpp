#include "daemon/state/memory_table.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "daemon/model/snapshot.h"

namespace gpuperf {
namespace {

bool overlap(const std::vector<MemoryOnGpu>& process, const std::vector<uint32_t>& gpus) {
  return std::ranges::any_of(process, [&](const MemoryOnGpu& gpu) {
    return std::ranges::find(gpus, gpu.index) != gpus.end();
  });
}

}  // namespace

MemoryTable::MemoryTable(const Limits& limits, Sources sources, DropCounters& drops)
    : limits_(limits),
      sources_(std::move(sources)),
      drops_(drops),
      pieces_({.total = limits.max_pieces,
               .kept_for_root = limits.max_pieces / 8,
               .of_root = limits.max_pieces,
               .of_process = limits.max_pieces / 2}),
      sites_({.total = limits.max_sites,
              .kept_for_root = limits.max_sites / 8,
              .of_process = limits.max_sites / 2}) {}

MemoryTable::Process* MemoryTable::find_process(const ReportedCall& call) {
  const auto known = processes_.find(call.process);
  if (known != processes_.end()) return &known->second;
  if (processes_.size() >= limits_.max_processes) return nullptr;
  const Facts facts = sources_.find_facts(call.process);
  Process& process = processes_[call.process];
  process.memory = std::make_unique<ProcessMemory>(
      call.process, ProcessMemory::Room{.pieces = pieces_,
                                        .sites = sites_,
                                        .holder = {.uid = facts.uid, .pid = call.process.pid}});
  process.memory->set_first(call.start_mono_ns);
  if (facts.is_late) process.memory->add_gaps(kMemoryLateStart);
  set_owner(process);
  return &process;
}

void MemoryTable::apply(const Function& function, const ReportedCall& call) {
  loop_thread_.check();
  const auto memory = read_memory_call(function, call);
  if (!memory) return;
  const bool is_allocation = memory->operation == MemoryCall::Operation::kAllocate;
  const bool has_failed = memory->status == kCudaOutOfMemory && is_allocation;
  if (memory->status != 0 && !has_failed) return;
  Process* process = find_process(call);
  if (process == nullptr) return drops_.add(DropCause::kMemoryFull);
  if (has_failed) return note_failure(*process, *memory, call);
  uint32_t site = 0;
  if (is_allocation && memory->place != 0) {
    const auto found = process->memory->find_site(memory->kind, call.outermost_id, call.stack_id);
    site = found.site;
    if (found.is_refused) drops_.add(DropCause::kMemorySitesFull);
    if (found.is_new && call.stack_id != 0) {
      unnamed_.push_back({.process = call.process, .stack_id = call.stack_id, .site = site});
    }
  }
  if (!process->memory->apply(*memory, site)) drops_.add(DropCause::kMemoryFull);
}

void MemoryTable::apply(const ProcessExited& exited, int64_t now_mono_ns) {
  loop_thread_.check();
  const auto known = processes_.find(exited.process);
  if (known != processes_.end()) known->second.exited_mono_ns = now_mono_ns;
}

void MemoryTable::apply(const GpuHealthReport& report) {
  loop_thread_.check();
  std::map<uint32_t, std::vector<MemoryOnGpu>> by_pid;
  for (const GpuHealth& gpu : report.gpus) {
    for (const GpuProcessMemory& process : gpu.processes) {
      if (!process.memory_bytes) continue;
      by_pid[process.pid].push_back({.index = gpu.index, .used_bytes = *process.memory_bytes});
    }
  }
  for (auto& [key, process] : processes_) {
    if (process.exited_mono_ns == 0) process.memory->set_on_gpus(std::move(by_pid[key.pid]));
  }
}

void MemoryTable::add_gaps(uint32_t gaps, uint64_t since_mono_ns) {
  loop_thread_.check();
  for (auto& [key, process] : processes_) {
    if (process.memory->row().first_mono_ns >= since_mono_ns) process.memory->add_gaps(gaps);
  }
}

void MemoryTable::set_stack(const Unnamed& named, const std::shared_ptr<const Stack>& stack) {
  loop_thread_.check();
  if (named.incident != 0) return set_incident_stack(named.incident, stack);
  const auto known = processes_.find(named.process);
  if (known != processes_.end()) known->second.memory->set_stack(named.site, stack);
}

// Tries by one stack may have come under several numbers: see ProcessMemory::set_stack.
void MemoryTable::set_incident_stack(uint64_t id, const std::shared_ptr<const Stack>& stack) {
  const auto found =
      std::ranges::find_if(incidents_, [id](const auto& one) { return one->id == id; });
  if (found == incidents_.end()) return;
  const OutOfMemory& incident = **found;
  const auto former = std::ranges::find_if(incidents_, [&](const auto& known) {
    return known->id != id && stack != nullptr && known->stack != nullptr &&
           known->stack->id == stack->id && known->process == incident.process &&
           known->kind == incident.kind && known->function_id == incident.function_id &&
           known->last_unix_ns <= incident.unix_ns &&
           incident.unix_ns - known->last_unix_ns < kSameIncidentNs;
  });
  if (former == incidents_.end()) {
    *found = std::make_shared<OutOfMemory>(incident);  // reports have the other
    (*found)->stack = stack;
    return new_incidents_.push_back(id);
  }
  *former = std::make_shared<OutOfMemory>(**former);
  (*former)->times += incident.times;
  (*former)->last_unix_ns = incident.last_unix_ns;
  incidents_.erase(found);
}

std::vector<MemoryTable::IncidentPtr> MemoryTable::take_incidents() {
  std::vector<IncidentPtr> told;
  std::erase_if(new_incidents_, [&](uint64_t id) {
    const auto found =
        std::ranges::find_if(incidents_, [id](const auto& one) { return one->id == id; });
    if (found == incidents_.end()) return true;
    if ((*found)->owner.comm.empty() && processes_.contains((*found)->process)) return false;
    told.push_back(*found);
    return true;
  });
  return told;
}

void MemoryTable::advance(int64_t now_mono_ns) {
  loop_thread_.check();
  for (auto& [key, process] : processes_) set_owner(process);
  for (auto entry = processes_.begin(); entry != processes_.end();) {
    Process& process = entry->second;
    const bool has_gone =
        process.exited_mono_ns != 0 && now_mono_ns - process.exited_mono_ns >= kExitDelayNs;
    if (has_gone) retire(process);
    entry = has_gone ? processes_.erase(entry) : std::next(entry);
  }
  if (now_mono_ns - window_mono_ns_ < static_cast<int64_t>(SiteGrowth::kShortNs)) return;
  window_mono_ns_ = now_mono_ns;
  for (auto& [key, process] : processes_) process.memory->end_window(now_mono_ns);
}

// Its statistics come later than its first calls.
void MemoryTable::set_owner(Process& process) {
  const MemoryProcess& row = process.memory->row();
  if (!row.owner.comm.empty()) return;
  Owner owner = sources_.find_owner(row.process);
  if (owner.comm.empty()) return;
  for (auto& incident : incidents_) {
    if (incident->process != row.process) continue;
    incident = std::make_shared<OutOfMemory>(*incident);  // reports have the other
    incident->owner = owner;
  }
  process.memory->set_owner(std::move(owner));
  count_failures(process);
}

void MemoryTable::count_failures(Process& process) {
  if (process.failures == 0) return;
  const Owner& owner = process.memory->row().owner;
  const bool has_place = incident_counts_.contains(owner) || incident_counts_.size() < kOwners;
  incident_counts_[has_place ? owner : other_owner()] += std::exchange(process.failures, 0);
}

void MemoryTable::retire(Process& process) {
  count_failures(process);
  MemoryProcess row = process.memory->make_row();
  row.exited = true;
  exited_.push_back(std::make_shared<const MemoryProcess>(std::move(row)));
  if (exited_.size() > kExited) exited_.pop_front();
}

void MemoryTable::note_failure(Process& process, const MemoryCall& memory,
                               const ReportedCall& call) {
  ++process.failures;
  if (!process.memory->row().owner.comm.empty()) count_failures(process);
  const uint64_t unix_ns = sources_.to_unix_ns(memory.end_mono_ns);
  const auto same = std::ranges::find_if(incidents_, [&](const auto& known) {
    return known->process == call.process && known->kind == memory.kind &&
           known->function_id == call.outermost_id && known->stack_id == call.stack_id &&
           unix_ns - known->last_unix_ns < kSameIncidentNs;
  });
  if (same == incidents_.end()) return add_incident(process, memory, call, unix_ns);
  *same = std::make_shared<OutOfMemory>(**same);
  ++(*same)->times;
  (*same)->last_unix_ns = unix_ns;
}

void MemoryTable::add_incident(const Process& process, const MemoryCall& memory,
                               const ReportedCall& call, uint64_t unix_ns) {
  auto incident = std::make_shared<OutOfMemory>();
  incident->id = ++last_incident_;
  incident->unix_ns = incident->last_unix_ns = unix_ns;
  incident->process = call.process;
  incident->tid = call.tid;
  incident->owner = process.memory->row().owner;
  incident->kind = memory.kind;
  incident->function_id = call.outermost_id;
  incident->asked_bytes = memory.bytes;
  incident->stack_id = call.stack_id;
  for (const MemoryOnGpu& gpu : process.memory->row().gpus) incident->gpus.push_back(gpu.index);
  incident->holders = list_holders(incident->gpus);
  incidents_.push_back(incident);
  if (incidents_.size() > kIncidents) incidents_.pop_front();
  if (call.stack_id == 0) return new_incidents_.push_back(incident->id);
  unnamed_.push_back(
      {.process = call.process, .stack_id = call.stack_id, .incident = incident->id});
}

// Of all processes where the GPUs are not known.
std::vector<MemoryHolder> MemoryTable::list_holders(const std::vector<uint32_t>& gpus) const {
  std::vector<MemoryHolder> holders;
  for (const auto& [key, process] : processes_) {
    const MemoryProcess& row = process.memory->row();
    if (process.exited_mono_ns != 0 || (!gpus.empty() && !overlap(row.gpus, gpus))) continue;
    const uint64_t used_bytes = get_used_bytes(row);
    holders.push_back({.process = key,
                       .owner = {},
                       .live_bytes = get_on_gpu_bytes(row),
                       .used_bytes = used_bytes == 0 ? std::nullopt : std::optional(used_bytes),
                       .sites = {}});
  }
  std::ranges::stable_sort(holders, std::ranges::greater(), [](const MemoryHolder& holder) {
    return holder.used_bytes.value_or(holder.live_bytes);
  });
  if (holders.size() > kHolders) holders.resize(kHolders);
  for (MemoryHolder& holder : holders) {
    MemoryProcess row = processes_.at(holder.process).memory->make_row();
    holder.owner = std::move(row.owner);
    holder.sites = std::move(row.sites);
    std::erase_if(holder.sites, [](const MemorySite& site) {
      return !is_on_gpu(site.kind) || site.totals.live_bytes == 0;
    });
    if (holder.sites.size() > kHolderSites) holder.sites.resize(kHolderSites);
  }
  return holders;
}

std::shared_ptr<const MemoryReport> MemoryTable::make_report() const {
  auto report = std::make_shared<MemoryReport>();
  for (const auto& [key, process] : processes_) {
    report->processes.push_back(std::make_shared<const MemoryProcess>(process.memory->make_row()));
  }
  report->processes.insert(report->processes.end(), exited_.rbegin(), exited_.rend());
  report->out_of_memory.assign(incidents_.rbegin(), incidents_.rend());
  report->out_of_memory_counts.assign(incident_counts_.begin(), incident_counts_.end());
  return report;
}

void MemoryTable::fill(SelfReport& report) const {
  report.add(Bound::kMemoryPieces, pieces_.used(), limits_.max_pieces);
  report.add(Bound::kMemorySites, sites_.used(), limits_.max_sites);
}

}  // namespace gpuperf
