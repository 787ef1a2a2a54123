#include "daemon/collect/map_source.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <unordered_map>
#include <utility>

namespace gpuperf {
namespace {

// The compiler refuses a loss without a case.
DropCause get_cause(gpuperf_loss loss) {
  switch (loss) {
    case GPUPERF_LOSS_CELLS_FULL:
      return DropCause::kBpfCellsFull;
    case GPUPERF_LOSS_INDEX_FULL:
      return DropCause::kBpfIndexFull;
    case GPUPERF_LOSS_THREAD_STATE:
      return DropCause::kBpfThreadState;
    case GPUPERF_LOSS_CALL_DEPTH:
      return DropCause::kBpfCallDepth;
    case GPUPERF_LOSS_SLOW_RING_FULL:
      return DropCause::kBpfSlowRingFull;
    case GPUPERF_LOSS_PROCESS_RING_FULL:
      return DropCause::kBpfProcessRingFull;
    case GPUPERF_LOSS_UNPAIRED_RETURN:
      return DropCause::kBpfUnpairedReturn;
    case GPUPERF_LOSS_SHAPES_FULL:
      return DropCause::kBpfShapesFull;
    case GPUPERF_LOSS_NAME_RING_FULL:
      return DropCause::kBpfNameRingFull;
    case GPUPERF_LOSS_SLOW_THINNED:
      return DropCause::kSlowThinned;
    case GPUPERF_LOSS_STACK_RING_FULL:
      return DropCause::kBpfStackRingFull;
    case GPUPERF_LOSS_STACK_COPY:
      return DropCause::kBpfStackCopy;
    case GPUPERF_LOSS_STACK_STATE:
      return DropCause::kBpfStackState;
    case GPUPERF_LOSS_REPORT_RING_FULL:
      return DropCause::kBpfReportRingFull;
    case GPUPERF_LOSS_OPERATORS_FULL:
      return DropCause::kBpfOperatorsFull;
    case GPUPERF_LOSS_OPERATOR_UNREAD:
      return DropCause::kBpfOperatorUnread;
    case GPUPERF_LOSS_RESPONSES_FULL:
      return DropCause::kBpfResponsesFull;
    case GPUPERF_LOSS_TRACE_RING_FULL:
      return DropCause::kBpfTraceRingFull;
    case GPUPERF_LOSS_CELLS_USER_FULL:
      return DropCause::kBpfCellsUserFull;
    case GPUPERF_LOSS_HOOKED_CALLS:
      return DropCause::kBpfHookedCalls;
    case GPUPERF_LOSS_COUNT:
      break;
  }
  return DropCause::kRingUnknownKind;  // not reached: who asks stays below GPUPERF_LOSS_COUNT
}

// Of a cell whose calls go on ending while it is read: the last look is a call or two apart.
constexpr int kLooksMax = 4;

// The kernel writes these words while we read them: each is read once and whole.
template <typename T>
T load(T& shared) {
  return std::atomic_ref(shared).load(std::memory_order_acquire);
}

// What `shared` gained since it was `seen`.
template <typename Seen>
uint64_t get_gain(__u64& shared, Seen& seen) {
  const uint64_t now = load(shared);
  return now - std::exchange(seen, now);
}

std::string_view text_of(const char (&comm)[GPUPERF_COMM_BYTES]) {
  return {comm, strnlen(comm, sizeof comm)};
}

}  // namespace

MapSource::MapSource(CellStore store, Who who, DropCounters& drops)
    : store_(std::move(store)), who_(std::move(who)), drops_(drops), seen_(store_.cells.size()) {}

MapSource::KnownOwner& MapSource::find_known_owner(const ProcessKey& process,
                                                   std::string_view comm_hint) {
  const auto known = owners_.find(process);
  if (known != owners_.end()) return known->second;
  const std::optional<gpuperf_process_info> info = store_.read_process_info(process);
  KnownOwner found{.owner = who_.find_owner(process, info ? &*info : nullptr),
                   .final_at_read = reads_ + kReadsHeld};
  // The kernel's name was taken at the first call; /proc may already be empty or another process's.
  if (!comm_hint.empty()) found.owner.comm = comm_hint;
  return owners_.emplace(process, std::move(found)).first->second;
}

const Owner& MapSource::get_owner(const ProcessKey& process, std::string_view comm_hint) {
  return find_known_owner(process, comm_hint).owner;
}

// Whether its totals are left for a later read. A process that has gone has no later one.
bool MapSource::is_held(const CellUser& user) {
  if (user.process.pid == 0) return false;
  KnownOwner& known = find_known_owner(user.process, user.comm);
  if (!known.is_final) {
    known.is_final = who_.name_pod(known.owner) || reads_ >= known.final_at_read ||
                     exited_.contains(user.process);
  }
  return !known.is_final;
}

Owner MapSource::make_owner(const CellUser& user) {
  if (user.process.pid == 0) return Owner{.comm = std::string(user.comm)};
  return get_owner(user.process, user.comm);
}

Status MapSource::read(std::vector<Event>& events) {
  ASSIGN_OR_RETURN(const CellIndex index, store_.read_index());
  used_cells_ = index.size();
  std::vector<CellUser> users;
  users.reserve(store_.overflow_cells + index.size());
  const uint32_t overflow_cells = is_overflow_used() ? store_.overflow_cells : 0;
  for (uint32_t cell = 0; cell < overflow_cells; ++cell) {
    users.push_back({.cell = cell, .function_id = cell, .process = {}, .comm = "other"});
  }
  for (const auto& [key, owner] : index) {
    const ProcessKey process{key.pid, key.process_start_boot_ns};
    users.push_back({owner.cell, key.function_id, process, text_of(owner.comm)});
    // What leaves with its cell is looked for even where no operation was counted: m n k may be 0.
    if (exited_.contains(process)) shapes_changed_ = true;
  }
  ++reads_;
  for (const CellUser& user : users) {
    if (user.cell >= store_.cells.size()) continue;  // cannot be: the kernel hands out its own
    RETURN_IF_ERROR(store_.map_cell(user.cell));
    for (int look = 0; look < kLooksMax && read_cell(user, events); ++look) {
    }
  }
  if (shapes_changed_) RETURN_IF_ERROR(read_shapes(users, events));
  release_exited(index);
  for (const ProcessKey& process : exited_) {
    owners_.erase(process);
    store_.forget_process(process);
    events.emplace_back(ProcessExited{process});
  }
  exited_ = std::exchange(exiting_, {});
  count_losses();
  return absl::OkStatus();
}

std::vector<BoundLevel> MapSource::list_levels() const {
  const size_t cells = store_.cells.size() - store_.overflow_cells;
  return {{.bound = Bound::kCells, .used = used_cells_, .limit = cells},
          {.bound = Bound::kCellUsers, .used = used_users_, .limit = store_.max_users},
          {.bound = Bound::kKernelShapes, .used = used_shapes_, .limit = store_.max_shapes}};
}

// They take calls of nobody else's, whose loss of rows is counted first.
bool MapSource::is_overflow_used() const {
  return std::ranges::any_of(
      std::array{GPUPERF_LOSS_CELLS_FULL, GPUPERF_LOSS_INDEX_FULL, GPUPERF_LOSS_CELLS_USER_FULL},
      [this](gpuperf_loss loss) {
        return load(const_cast<uint64_t&>(store_.losses[loss])) != 0;  // as in count_losses()
      });
}

void MapSource::release_exited(const CellIndex& index) {
  CellsByUser left;
  for (const auto& [key, owner] : index) {
    if (exited_.contains({key.pid, key.process_start_boot_ns})) {
      release(key, owner.cell);
    } else if (owner.uid != 0) {
      ++left[owner.uid];
    }
  }
  used_users_ = left.size();
  store_.count_users(left);
}

void MapSource::release(const gpuperf_cell_key& key, uint32_t cell) {
  seen_[cell].reset();
  // Before the cell has its next user, whose shapes they would be.
  if (const auto shapes = seen_shapes_.extract(cell)) {
    for (const auto& [shape, totals] : shapes.mapped()) {
      gpuperf_shape_key shape_key{.cell = cell, .pad = 0, .dimensions = {}, .types = {}};
      std::ranges::copy(shape.first, shape_key.dimensions);
      std::ranges::copy(shape.second, shape_key.types);
      store_.release_shape(shape_key);
    }
  }
  std::memset(static_cast<void*>(&store_.cells[cell]), 0, sizeof(gpuperf_cell));
  store_.release(key, cell);
}

// Whether calls ended meanwhile: then some are counted whose time is not in the sum.
bool MapSource::read_cell(const CellUser& user, std::vector<Event>& events) {
  gpuperf_cell& cell = store_.cells[user.cell];
  // The kernel adds a completed call to total_ns last, so everything of the calls in this sum is
  // found below; what is found beyond it changes the sum again and is seen by the next look.
  // `calls` is read last: a call that ends in between is then still in flight, never negative.
  const uint64_t total_ns = load(cell.total_ns);
  std::unique_ptr<Seen>& entry = seen_[user.cell];
  const std::array<uint64_t, 8> none{};
  const std::array<uint64_t, 8>& before = entry == nullptr ? none : entry->header;
  if (total_ns == before[1] && load(cell.calls) == before[7] && load(cell.abandoned) == before[0] &&
      load(cell.untimed) == before[6]) {
    return false;
  }
  if (is_held(user)) return false;
  if (entry == nullptr) entry = std::make_unique<Seen>();
  Seen& seen = *entry;
  CellDelta delta{.function_id = user.function_id, .process = user.process};
  read_buckets(cell, seen, delta);
  std::array<uint64_t, 8> now{};
  __u64* const words[] = {&cell.abandoned, &cell.total_ns,   &cell.self_ns, &cell.inverted_min_ns,
                          &cell.max_ns,    &cell.slow_calls, &cell.untimed, &cell.calls};
  // A successful call is added to these first of all, so they are never behind its total_ns.
  delta.flops = get_gain(cell.flops, seen.flops);
  for (size_t i = 0; i < GPUPERF_BYTE_SLOTS; ++i) {
    delta.bytes[i] = get_gain(cell.bytes[i], seen.bytes[i]);
  }
  // A shape is added before its call's total_ns: whatever was added to one shows as a changed cell.
  if (seen.flops != 0) shapes_changed_ = true;
  delta.hooked = get_gain(cell.hooked, seen.hooked);
  for (size_t i = 0; i < std::size(words); ++i) now[i] = load(*words[i]);
  now[1] = total_ns;
  read_errors(cell, seen, delta);
  delta.abandoned = static_cast<int64_t>(now[0] - seen.header[0]);
  delta.total_ns = now[1] - seen.header[1];
  delta.self_ns = now[2] - seen.header[2];
  delta.min_ns = now[3] == 0 ? 0 : ~now[3];
  delta.max_ns = now[4];
  delta.slow_calls = now[5] - seen.header[5];
  delta.untimed = now[6] - seen.header[6];
  delta.calls = now[7] - seen.header[7];
  seen.header = now;
  delta.owner = make_owner(user);
  events.emplace_back(std::move(delta));
  return load(cell.total_ns) != total_ns;
}

void MapSource::read_buckets(gpuperf_cell& cell, Seen& seen, CellDelta& delta) {
  auto known = seen.buckets.begin();
  for (uint16_t i = 0; i < GPUPERF_BUCKETS; ++i) {
    const uint32_t count = load(cell.buckets[i]);
    const bool is_known = known != seen.buckets.end() && known->bucket == i;
    if (!is_known && count == 0) continue;
    if (!is_known) known = seen.buckets.insert(known, {.bucket = i});
    const uint32_t gained = count - std::exchange(known->count, count);  // wraps as the kernel's
    if (gained != 0) delta.buckets.emplace_back(i, gained);
    ++known;
  }
}

void MapSource::read_errors(gpuperf_cell& cell, Seen& seen, CellDelta& delta) {
  for (size_t i = 0; i < GPUPERF_ERROR_SLOTS; ++i) {
    const uint64_t tag = load(cell.errors[i].status_tag);
    const uint64_t gained = get_gain(cell.errors[i].count, seen.errors[i].count);
    if (gained == 0) continue;
    delta.errors.emplace_back(static_cast<int32_t>(static_cast<uint32_t>(tag)), gained);
  }
  delta.other_errors = get_gain(cell.other_errors, seen.other_errors);
}

Status MapSource::read_shapes(std::span<const CellUser> users, std::vector<Event>& events) {
  ASSIGN_OR_RETURN(const ShapeTotals shapes, store_.read_shapes());
  used_shapes_ = shapes.size();
  std::unordered_map<uint32_t, const CellUser*> by_cell;
  if (!shapes.empty()) {
    for (const CellUser& user : users) by_cell.emplace(user.cell, &user);
  }
  for (const auto& [key, totals] : shapes) {
    const auto user = by_cell.find(key.cell);
    // Of a cell handed out since the index was read, or held: a later read sees the cell change.
    if (user == by_cell.end() || is_held(*user->second)) continue;
    Shape shape;
    std::ranges::copy(key.dimensions, shape.first.begin());
    std::ranges::copy(key.types, shape.second.begin());
    gpuperf_shape_totals& seen = seen_shapes_[key.cell][shape];
    const uint64_t calls = totals.calls - std::exchange(seen.calls, totals.calls);
    const uint64_t total_ns = totals.total_ns - std::exchange(seen.total_ns, totals.total_ns);
    if (calls == 0 && total_ns == 0) continue;
    events.emplace_back(ShapeDelta{.function_id = user->second->function_id,
                                   .process = user->second->process,
                                   .owner = make_owner(*user->second),
                                   .dimensions = shape.first,
                                   .types = shape.second,
                                   .calls = calls,
                                   .total_ns = total_ns});
  }
  shapes_changed_ = false;
  return absl::OkStatus();
}

void MapSource::sweep() {
  for (const auto& [process, known] : owners_) {
    if (!who_.is_alive(process)) note_exit(process);
  }
}

void MapSource::count_losses() {
  for (size_t i = 0; i < std::min<size_t>(store_.losses.size(), GPUPERF_LOSS_COUNT); ++i) {
    // The span is const for everyone else; atomic_ref wants the object itself and only reads it.
    const uint64_t count = load(const_cast<uint64_t&>(store_.losses[i]));
    drops_.add(get_cause(static_cast<gpuperf_loss>(i)),
               count - std::exchange(seen_losses_[i], count));
  }
}

}  // namespace gpuperf
