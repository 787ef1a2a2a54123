#include "daemon/collect/map_source.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

namespace gpuperf {
namespace {

constexpr DropCause kLossCauses[GPUPERF_LOSS_COUNT] = {
    DropCause::kBpfCellsFull,      DropCause::kBpfIndexFull,    DropCause::kBpfThreadState,
    DropCause::kBpfCallDepth,      DropCause::kBpfSlowRingFull, DropCause::kBpfProcessRingFull,
    DropCause::kBpfUnpairedReturn,
};

// The kernel writes these words while we read them: each is read once and whole.
template <typename T>
T load(T& shared) {
  return std::atomic_ref(shared).load(std::memory_order_acquire);
}

std::string text_of(const char (&comm)[GPUPERF_COMM_BYTES]) {
  return {comm, strnlen(comm, sizeof comm)};
}

}  // namespace

MapSource::MapSource(CellStore store, FindOwner find_owner, IsAlive is_alive, DropCounters& drops)
    : store_(std::move(store)),
      find_owner_(std::move(find_owner)),
      is_alive_(std::move(is_alive)),
      drops_(drops) {}

const Owner& MapSource::get_owner(const ProcessKey& process, const std::string& comm_hint) {
  const auto known = owners_.find(process);
  if (known != owners_.end()) return known->second;
  Owner owner = find_owner_(process);
  // The kernel's name was taken at the first call; /proc may already be empty or another process's.
  if (!comm_hint.empty()) owner.comm = comm_hint;
  return owners_.emplace(process, std::move(owner)).first->second;
}

Status MapSource::read(std::vector<Event>& events) {
  ASSIGN_OR_RETURN(const auto index, store_.read_index());
  for (uint32_t cell = 0; cell < store_.overflow_cells; ++cell) {
    read_cell(cell, cell, ProcessKey{}, "other", events);
  }
  for (const auto& [key, owner] : index) {
    const ProcessKey process{key.pid, key.process_start_boot_ns};
    read_cell(owner.cell, key.function_id, process, text_of(owner.comm), events);
    if (!exited_.contains(process)) continue;
    seen_.erase(owner.cell);
    std::memset(static_cast<void*>(&store_.cells[owner.cell]), 0, sizeof(gpuperf_cell));
    store_.release(key, owner.cell);
  }
  for (const ProcessKey& process : exited_) {
    owners_.erase(process);
    store_.forget_process(process);
    events.emplace_back(ProcessExited{process});
  }
  exited_ = std::exchange(exiting_, {});
  count_losses();
  return absl::OkStatus();
}

void MapSource::read_cell(uint32_t cell_index, uint32_t function_id, const ProcessKey& process,
                          const std::string& comm, std::vector<Event>& events) {
  if (cell_index >= store_.cells.size()) return;  // cannot be: the kernel only hands out its own
  gpuperf_cell& cell = store_.cells[cell_index];
  // The kernel adds a completed call to total_ns last, so everything of the calls in this sum is
  // found below; what is found beyond it changes the sum again and is seen by the next read.
  // `calls` is read last: a call that ends in between is then still in flight, never negative.
  const uint64_t total_ns = load(cell.total_ns);
  CellDelta delta{.function_id = function_id, .process = process};
  const auto entry = seen_.find(cell_index);
  const std::array<uint64_t, 8> none{};
  const std::array<uint64_t, 8>& before = entry == seen_.end() ? none : entry->second->header;
  std::array<uint64_t, 8> now{};
  __u64* const words[] = {&cell.abandoned, &cell.total_ns,   &cell.self_ns, &cell.inverted_min_ns,
                          &cell.max_ns,    &cell.slow_calls, &cell.untimed, &cell.calls};
  if (total_ns == before[1] && load(cell.calls) == before[7] && load(cell.abandoned) == before[0] &&
      load(cell.untimed) == before[6]) {
    return;
  }
  Seen& seen = entry == seen_.end()
                   ? *seen_.emplace(cell_index, std::make_unique<Seen>()).first->second
                   : *entry->second;
  for (uint16_t i = 0; i < GPUPERF_BUCKETS; ++i) {
    const uint32_t count = load(cell.buckets[i]);
    const uint32_t gained =
        count - std::exchange(seen.buckets[i], count);  // wraps as the kernel's does
    if (gained != 0) delta.buckets.emplace_back(i, gained);
  }
  for (size_t i = 0; i < std::size(words); ++i) now[i] = load(*words[i]);
  now[1] = total_ns;
  for (size_t i = 0; i < GPUPERF_ERROR_SLOTS; ++i) {
    const uint64_t tag = load(cell.errors[i].status_tag);
    const uint64_t count = load(cell.errors[i].count);
    const uint64_t gained = count - std::exchange(seen.errors[i].count, count);
    if (gained != 0) {
      delta.errors.emplace_back(static_cast<int32_t>(static_cast<uint32_t>(tag)), gained);
    }
  }
  const uint64_t other_errors = load(cell.other_errors);
  delta.other_errors = other_errors - std::exchange(seen.other_errors, other_errors);
  delta.abandoned = static_cast<int64_t>(now[0] - seen.header[0]);
  delta.total_ns = now[1] - seen.header[1];
  delta.self_ns = now[2] - seen.header[2];
  delta.min_ns = now[3] == 0 ? 0 : ~now[3];
  delta.max_ns = now[4];
  delta.slow_calls = now[5] - seen.header[5];
  delta.untimed = now[6] - seen.header[6];
  delta.calls = now[7] - seen.header[7];
  seen.header = now;
  delta.owner = process.pid == 0 ? Owner{.comm = comm} : get_owner(process, comm);
  events.emplace_back(std::move(delta));
}

void MapSource::sweep() {
  for (const auto& [process, owner] : owners_) {
    if (!is_alive_(process)) note_exit(process);
  }
}

void MapSource::count_losses() {
  for (size_t i = 0; i < std::min<size_t>(store_.losses.size(), GPUPERF_LOSS_COUNT); ++i) {
    // The span is const for everyone else; atomic_ref wants the object itself and only reads it.
    const uint64_t count = load(const_cast<uint64_t&>(store_.losses[i]));
    drops_.add(kLossCauses[i], count - std::exchange(seen_losses_[i], count));
  }
}

}  // namespace gpuperf
