#include "daemon/state/process_memory.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "daemon/model/snapshot.h"

namespace gpuperf {
namespace {

using Operation = MemoryCall::Operation;
using Space = MemoryCall::Space;

constexpr int kSpaceShift = 62;  // above every address and handle

uint64_t make_key(Space space, uint64_t place) {
  return place ^ static_cast<uint64_t>(space) << kSpaceShift;
}

}  // namespace

ProcessMemory::ProcessMemory(const ProcessKey& process, const Room& room) : room_(room) {
  row_.process = process;
  for (uint32_t kind = 0; kind < kMemoryKindCount; ++kind) {
    sites_[kind].row.kind = static_cast<MemoryKind>(kind);
    merged_into_.push_back(kind);
  }
}

ProcessMemory::~ProcessMemory() {
  return_places(pieces_.size() + physicals_.size() + mappings_.size());
  room_.sites.give_back(room_.holder, sites_.size() - kMemoryKindCount);
}

bool ProcessMemory::apply(const MemoryCall& call, uint32_t site) {
  if (call.is_unreadable) {
    row_.gaps |= kMemoryUnreadable;
    if (call.place == 0) return true;
  }
  switch (call.operation) {
    case Operation::kAllocate:
      return allocate(call, site);
    case Operation::kRelease:
      release(call);
      return true;
    case Operation::kMap:
      return map(call);
    case Operation::kUnmap:
      unmap(call);
      return true;
    case Operation::kRetain:
      retain(call);
      return true;
    case Operation::kContextBegins:
      begin_context(call);
      return true;
    case Operation::kContextEnds:
      end_context(call);
      return true;
  }
  return true;  // only reached with a value outside the enum
}

bool ProcessMemory::allocate(const MemoryCall& call, uint32_t site) {
  const Piece piece{.bytes = call.bytes,
                    .start_ns = call.start_mono_ns,
                    .end_ns = call.end_mono_ns,
                    .site = site};
  if (call.space == Space::kHandle) return allocate_virtual(call, piece);
  const uint64_t key = make_key(call.space, call.place);
  Piece* former = pieces_.find(key);
  if (former != nullptr && call.kind == MemoryKind::kImported &&
      get_site(former->site).row.kind == call.kind) {
    ++former->opens;
    return true;
  }
  if (former != nullptr) {
    take_off(*former);
    displace(key, call.end_mono_ns);
  } else if (!take_place()) {
    return false;
  }
  pieces_.get(key) = piece;
  add(piece);
  return true;
}

bool ProcessMemory::allocate_virtual(const MemoryCall& call, const Piece& piece) {
  if (!take_place()) return false;
  const auto former = handles_.find(call.place);
  if (former != handles_.end()) {
    displace(make_key(Space::kHandle, call.place), call.end_mono_ns);
    drop_reference(former->second.physical);
  }
  physicals_[++last_physical_] = {.piece = piece, .references = 1};
  handles_[call.place] = {.physical = last_physical_, .end_ns = call.end_mono_ns};
  add(piece);
  return true;
}

void ProcessMemory::release(const MemoryCall& call) {
  if (call.place == 0) return;  // allowed, and does nothing
  const uint64_t key = make_key(call.space, call.place);
  if (call.space != Space::kHandle) {
    Piece* piece = pieces_.find(key);
    if (piece != nullptr && call.start_mono_ns >= piece->end_ns) {
      if (--piece->opens > 0) return;
      take_off(*piece);
      pieces_.erase(key);
      return return_places(1);
    }
  } else {
    const auto handle = handles_.find(call.place);
    if (handle != handles_.end() && call.start_mono_ns >= handle->second.end_ns) {
      if (--handle->second.count > 0) return;
      const uint32_t physical = handle->second.physical;
      handles_.erase(handle);
      return drop_reference(physical);
    }
  }
  if (!take_owed(key, call.start_mono_ns)) note_unknown_release();
}

bool ProcessMemory::map(const MemoryCall& call) {
  const auto handle = handles_.find(call.handle);
  if (handle == handles_.end()) {
    row_.gaps |= kMemoryUnknownReleases;  // of what was created before
    return true;
  }
  const uint32_t physical = handle->second.physical;
  const auto former = mappings_.find(call.place);
  if (former != mappings_.end()) {
    displace(make_key(Space::kAddress, call.place), call.end_mono_ns);
    drop_reference(former->second.physical);
  } else if (!take_place()) {
    return false;
  }
  ++physicals_.at(physical).references;
  mappings_[call.place] = {.physical = physical, .end_ns = call.end_mono_ns};
  return true;
}

// Of as many mappings as lie in the range.
void ProcessMemory::unmap(const MemoryCall& call) {
  auto mapping = mappings_.lower_bound(call.place);
  while (mapping != mappings_.end() && mapping->first - call.place < call.bytes) {
    if (call.start_mono_ns < mapping->second.end_ns) {
      (void)take_owed(make_key(Space::kAddress, mapping->first), call.start_mono_ns);
      ++mapping;
      continue;
    }
    const uint32_t physical = mapping->second.physical;
    mapping = mappings_.erase(mapping);
    return_places(1);
    drop_reference(physical);
  }
}

void ProcessMemory::retain(const MemoryCall& call) {
  auto mapping = mappings_.upper_bound(call.place);
  if (mapping == mappings_.begin()) return;
  const uint32_t physical = std::prev(mapping)->second.physical;
  const auto [handle, is_new] = handles_.try_emplace(
      call.handle, Reference{.physical = physical, .end_ns = call.end_mono_ns});
  if (is_new) {
    ++physicals_.at(physical).references;
  } else {
    ++handle->second.count;
  }
}

void ProcessMemory::begin_context(const MemoryCall& call) {
  if (call.is_primary) {
    ++primary_contexts_[call.place];
  } else {
    contexts_.insert(call.place);
  }
}

// All that a context allocated ends with it. Which context that was nobody says: where there is
// only one, it is this.
void ProcessMemory::end_context(const MemoryCall& call) {
  const bool is_only =
      primary_contexts_.size() + contexts_.size() == 1 && (row_.gaps & kMemoryLateStart) == 0 &&
      (call.is_primary ? primary_contexts_.contains(call.place) : contexts_.contains(call.place));
  if (call.is_primary) {
    const auto context = primary_contexts_.find(call.place);
    const bool lasts =
        !call.is_ended_whole && context != primary_contexts_.end() && --context->second > 0;
    if (lasts) return;
    if (!call.is_ended_whole && context != primary_contexts_.end()) {
      primary_contexts_.erase(context);
    }
  } else {
    contexts_.erase(call.place);
  }
  if (is_only) {
    release_before(call.start_mono_ns);
  } else if (pieces_.size() > 0) {
    row_.gaps |= kMemoryContextEnded;
  }
}

// Pools and physical memory are no context's.
void ProcessMemory::release_before(uint64_t mono_ns) {
  std::vector<uint64_t> keys;
  pieces_.for_each([&](uint64_t key, const Piece& piece) {
    const bool is_of_context = get_site(piece.site).row.kind != MemoryKind::kAsync;
    if (is_of_context && piece.end_ns <= mono_ns) keys.push_back(key);
  });
  for (const uint64_t key : keys) {
    take_off(*pieces_.find(key));
    pieces_.erase(key);
  }
  return_places(keys.size());
}

void ProcessMemory::add(const Piece& piece) {
  MemorySite& site = get_site(piece.site).row;
  add_allocation(site.totals, piece.bytes);
  add_allocation(row_.kinds[static_cast<size_t>(site.kind)], piece.bytes);
  row_.on_gpu_peak_bytes = std::max(row_.on_gpu_peak_bytes, get_on_gpu_bytes(row_));
}

void ProcessMemory::take_off(const Piece& piece) {
  Site& site = get_site(piece.site);
  add_release(site.row.totals, piece.bytes);
  add_release(row_.kinds[static_cast<size_t>(site.row.kind)], piece.bytes);
  site.growth.note(site.row.totals);
}

void ProcessMemory::drop_reference(uint32_t physical) {
  const auto found = physicals_.find(physical);
  if (--found->second.references > 0) return;
  take_off(found->second.piece);
  physicals_.erase(found);
  return_places(1);
}

void ProcessMemory::displace(uint64_t key, uint64_t end_ns) {
  if (owed_.size() >= kMaxOwed) note_missed_release();
  owed_.push_back({.key = key, .before_ns = end_ns});
}

bool ProcessMemory::take_owed(uint64_t key, uint64_t start_ns) {
  const auto owed = std::ranges::find_if(owed_, [&](const Owed& release) {
    return release.key == key && start_ns < release.before_ns;
  });
  if (owed == owed_.end()) return false;
  owed_.erase(owed);
  return true;
}

void ProcessMemory::note_unknown_release() {
  ++row_.unknown_releases;
  row_.gaps |= kMemoryUnknownReleases;
}

// The oldest that is owed.
void ProcessMemory::note_missed_release() {
  owed_.pop_front();
  ++row_.missed_releases;
  row_.gaps |= kMemoryMissedReleases;
}

bool ProcessMemory::take_place() {
  if (room_.pieces.take(room_.holder) == Shares::Verdict::kTaken) return true;
  row_.gaps |= kMemoryTableFull;
  return false;
}

ProcessMemory::Site& ProcessMemory::get_site(uint32_t site) {
  while (merged_into_[site] != site) site = merged_into_[site];
  return sites_.at(site);
}

ProcessMemory::FoundSite ProcessMemory::find_site(MemoryKind kind, uint32_t function_id,
                                                  uint64_t stack_id) {
  const SiteKey key{kind, function_id, stack_id};
  const auto known = site_index_.find(key);
  if (known != site_index_.end()) return {.site = known->second};
  const bool has_place =
      merged_into_.size() < kMaxSites && room_.sites.take(room_.holder) == Shares::Verdict::kTaken;
  if (!has_place) return {.site = static_cast<uint32_t>(kind), .is_refused = true};
  const auto site = static_cast<uint32_t>(merged_into_.size());
  merged_into_.push_back(site);
  sites_[site].row.kind = kind;
  sites_[site].row.function_id = function_id;
  site_index_[key] = site;
  return {.site = site, .is_new = true};
}

// A stack that the kernel side could not walk to its end has another number each time.
void ProcessMemory::set_stack(uint32_t site, std::shared_ptr<const Stack> stack) {
  if (stack == nullptr || merged_into_[site] != site) return;
  MemorySite& row = sites_.at(site).row;
  row.stack = std::move(stack);
  for (const auto& [other, known] : sites_) {
    const bool is_same = other != site && known.row.kind == row.kind &&
                         known.row.function_id == row.function_id && known.row.stack != nullptr &&
                         known.row.stack->id == row.stack->id;
    if (is_same) return merge(site, other);
  }
}

void ProcessMemory::merge(uint32_t from, uint32_t into) {
  merge_totals(sites_.at(into).row.totals, sites_.at(from).row.totals);
  merged_into_[from] = into;
  sites_.erase(from);
  std::erase_if(site_index_, [from](const auto& entry) { return entry.second == from; });
  room_.sites.give_back(room_.holder);
}

void ProcessMemory::set_on_gpus(std::vector<MemoryOnGpu> gpus) {
  row_.gpus = std::move(gpus);
  const uint64_t used_bytes = get_used_bytes(row_);
  if (used_bytes == 0) return;
  const uint64_t rest_bytes = used_bytes - std::min(used_bytes, get_on_gpu_bytes(row_));
  row_.least_rest_bytes = std::min(row_.least_rest_bytes.value_or(rest_bytes), rest_bytes);
}

void ProcessMemory::end_window(int64_t now_mono_ns) {
  const auto now_ns = static_cast<uint64_t>(now_mono_ns);
  while (!owed_.empty() && owed_.front().before_ns + kOwedNs < now_ns) note_missed_release();
  size_t growing = 0, steady = 0, used = 0;
  for (auto& [number, site] : sites_) {
    site.growth.end_window(site.row.totals);
    growing += site.growth.is_growing() ? 1 : 0;
    steady += site.growth.is_steady() ? 1 : 0;
    used += site.row.totals.allocations > 0 ? 1 : 0;
  }
  const bool is_rest_steady = steady > 0 && growing <= std::max<size_t>(used / 4, 1);
  for (auto& [number, site] : sites_) {
    site.row.growth = site.growth.judge(is_rest_steady);
    row_.has_leaked = row_.has_leaked || is_leak(site.row);
  }
  find_oldest();
}

void ProcessMemory::find_oldest() {
  for (auto& [number, site] : sites_) site.row.oldest_mono_ns = 0;
  const auto look = [this](const Piece& piece) {
    uint64_t& oldest_ns = get_site(piece.site).row.oldest_mono_ns;
    oldest_ns = oldest_ns == 0 ? piece.start_ns : std::min(oldest_ns, piece.start_ns);
  };
  pieces_.for_each([&](uint64_t, const Piece& piece) { look(piece); });
  for (const auto& [number, physical] : physicals_) look(physical.piece);
}

MemoryProcess ProcessMemory::make_row() const {
  MemoryProcess row = row_;
  for (const auto& [number, site] : sites_) {
    if (site.row.totals.allocations > 0) row.sites.push_back(site.row);
  }
  std::ranges::stable_sort(row.sites, std::ranges::greater(),
                           [](const MemorySite& site) { return site.totals.live_bytes; });
  return row;
}

}  // namespace gpuperf
