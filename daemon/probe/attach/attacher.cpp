#include "daemon/probe/attach/attacher.h"

#include <algorithm>
#include <iterator>
#include <thread>
#include <utility>

namespace gpuperf {
namespace {

// A thread may run the old link's program on a hit that began before the new link was there.
constexpr std::chrono::milliseconds kAttachGrace{10};
// Exit sites of one link; they count like points for the time that locks are held.
constexpr size_t kLinkExits = 1024;

uint64_t make_cookie(const ProbePoint& point, uint32_t lane, uint8_t generation,
                     uint8_t condition) {
  return point.function_id | uint64_t{lane} << GPUPERF_COOKIE_LANE_SHIFT |
         uint64_t{generation} << GPUPERF_COOKIE_GENERATION_SHIFT |
         uint64_t{condition} << GPUPERF_COOKIE_CONDITION_SHIFT;
}

uint32_t lane_of(uint64_t cookie) {
  return cookie >> GPUPERF_COOKIE_LANE_SHIFT & ((1u << GPUPERF_COOKIE_LANE_BITS) - 1);
}

uint8_t generation_of(uint64_t cookie) {
  return static_cast<uint8_t>(cookie >> GPUPERF_COOKIE_GENERATION_SHIFT);
}

uint8_t next_generation(uint8_t generation) {
  return static_cast<uint8_t>(GPUPERF_NEXT_GENERATION(generation));
}

// Where the functions begin, or every exit they have.
std::vector<ProbePlace> list_places(std::span<const ProbePoint> points, uint32_t lane,
                                    uint8_t generation, bool at_exits) {
  std::vector<ProbePlace> places;
  for (const ProbePoint& point : points) {
    if (!at_exits) {
      places.push_back({point.offset_bytes, point.semaphore_offset_bytes,
                        make_cookie(point, lane, generation, point.tensor_layout)});
      continue;
    }
    for (const ExitSite& exit : point.exits) {
      places.push_back(
          {exit.offset_bytes, 0, make_cookie(point, lane, generation, exit.condition)});
    }
  }
  return places;
}

}  // namespace

Attacher::Attacher(Programs& programs) : programs_(programs) {
  for (uint32_t number = GPUPERF_LANES; number-- > 0;) free_lanes_.push_back(number);
}

Attacher::~Attacher() { detach_all(); }

std::vector<ProbeOutcome> Attacher::attach(const ProbedFile& file,
                                           std::span<const ProbePoint> points) {
  std::vector<ProbeOutcome> outcomes;
  for (const ProbePoint& point : points) outcomes.push_back({point, absl::OkStatus()});
  // A perf link holds one function: a lane of its own lets it go alone.
  const size_t most = programs_.mechanism() == Mechanism::kPerf ? 1 : kLinkPoints;
  for (const Timing timing : {Timing::kReturn, Timing::kExits, Timing::kNone}) {
    std::vector<ProbeOutcome*> slice;
    size_t exits = 0;
    const auto finish = [&] {
      if (!slice.empty()) attach_slice(file, timing, slice);
      slice.clear();
      exits = 0;
    };
    for (ProbeOutcome& outcome : outcomes) {
      if (outcome.point.timing != timing) continue;
      if (slice.size() == most || exits > kLinkExits) finish();
      slice.push_back(&outcome);
      exits += outcome.point.exits.size();
    }
    finish();
  }
  return outcomes;
}

// The kernel takes a link whole or not at all; halving finds the points it refuses.
void Attacher::attach_slice(const ProbedFile& file, Timing timing, std::span<ProbeOutcome*> slice) {
  Status status = absl::ResourceExhaustedError(file.name + ": no free probe link: more than " +
                                               std::to_string(GPUPERF_LANES) + " links");
  if (!free_lanes_.empty()) {
    Lane lane{.number = free_lanes_.back(), .file_id = file.id, .timing = timing};
    const auto used = generations_.find(lane.number);
    if (used != generations_.end()) lane.generation = next_generation(used->second);
    for (const ProbeOutcome* outcome : slice) lane.points.push_back(outcome->point);
    // Open before the first hit, so that none of this link is turned away.
    programs_.set_lane(lane.number, lane.generation);
    Result<ProbeLinks> links = make_links(file, lane);
    status = links.status();
    if (status.ok()) {
      free_lanes_.pop_back();
      lane.links = std::move(*links);
      generations_[lane.number] = lane.generation;
      lanes_.push_back(std::move(lane));
      return;
    }
  }
  if (slice.size() > 1 && !absl::IsPermissionDenied(status)) {
    attach_slice(file, timing, slice.first(slice.size() / 2));
    attach_slice(file, timing, slice.subspan(slice.size() / 2));
    return;
  }
  for (ProbeOutcome* outcome : slice) outcome->status = status;
}

// The end of a call before its beginning: an entry without its end would stay in flight for ever.
Result<ProbeLinks> Attacher::make_links(const ProbedFile& file, const Lane& lane) const {
  ProbeLinks links;
  const auto add = [&](const char* program, bool at_exits) {
    const auto places = list_places(lane.points, lane.number, lane.generation, at_exits);
    return add_probe_links(programs_, file, program, places, links);
  };
  Status status;
  switch (lane.timing) {
    case Timing::kNone:
      status = add("probe_count", false);
      break;
    case Timing::kExits:
      status = add("probe_exit", true);
      if (status.ok()) status = add("probe_entry_to_exit", false);
      break;
    case Timing::kReturn:
      if (programs_.mechanism() == Mechanism::kSession) {
        status = add("probe_session", false);
        break;
      }
      status = add("probe_return", false);
      if (status.ok()) status = add("probe_entry", false);
      break;
  }
  if (status.ok()) return links;
  std::vector<ProbeLinks> closing;
  closing.push_back(std::move(links));
  close_links(std::move(closing));
  return status;
}

Status Attacher::detach(const ProbedFile& file, const std::set<uint32_t>& function_ids,
                        Time deadline) {
  const auto leaves = [&](const ProbePoint& point) {
    return function_ids.contains(point.function_id);
  };
  Status first_error;
  std::vector<std::pair<std::list<Lane>::iterator, Lane>> replaced;
  for (auto lane = lanes_.begin(); lane != lanes_.end(); ++lane) {
    if (lane->file_id != file.id || std::ranges::none_of(lane->points, leaves)) continue;
    Lane next{.number = lane->number,
              .generation = next_generation(lane->generation),
              .file_id = lane->file_id,
              .timing = lane->timing,
              .points = lane->points};
    std::erase_if(next.points, leaves);
    programs_.set_lane(lane->number, lane->generation | GPUPERF_LANE_CHANGING);
    if (!next.points.empty()) {
      Result<ProbeLinks> links = make_links(file, next);  // its hits do not count yet
      if (!links.ok()) {
        first_error.Update(links.status());  // the old link stays as it is
        settle_lane(lane->number, lane->generation);
        continue;
      }
      next.links = std::move(*links);
    }
    replaced.emplace_back(lane, std::move(next));
  }
  const bool is_any_new = std::ranges::any_of(
      replaced, [](const auto& change) { return !change.second.points.empty(); });
  if (is_any_new) std::this_thread::sleep_for(kAttachGrace);
  for (auto& [lane, next] : replaced) {
    retire(*lane, deadline);  // from here on those of the new link count
    if (next.points.empty()) {
      lanes_.erase(lane);
    } else {
      *lane = std::move(next);
    }
  }
  return first_error;
}

void Attacher::retire(Lane& lane, Time deadline) {
  const uint8_t next = next_generation(lane.generation);
  programs_.set_lane(lane.number, next | GPUPERF_LANE_CHANGING);
  generations_[lane.number] = next;
  retired_.push_back({.lane = lane.number,
                      .generation = lane.generation,
                      .links = std::move(lane.links),
                      .since = std::chrono::steady_clock::now(),
                      .deadline = deadline});
}

void Attacher::close_retired(const std::set<uint64_t>& in_flight, Time now) {
  std::vector<ProbeLinks> closing;
  std::set<uint32_t> closed;
  for (auto entry = retired_.begin(); entry != retired_.end();) {
    const auto retired = entry++;
    const bool busy = std::ranges::any_of(in_flight, [&](uint64_t cookie) {
      return lane_of(cookie) == retired->lane && generation_of(cookie) == retired->generation;
    });
    if (now < retired->since + kRetireGrace || (busy && now < retired->deadline)) continue;
    closing.push_back(std::move(retired->links));
    closed.insert(retired->lane);
    retired_.erase(retired);
  }
  close_links(std::move(closing));
  for (const uint32_t number : closed) free_lane(number);
}

// Nothing is left to agree on once one link at most is there.
bool Attacher::settle_lane(uint32_t number, uint8_t generation) {
  if (std::ranges::any_of(retired_, [&](const Retired& other) { return other.lane == number; })) {
    return false;
  }
  programs_.set_lane(number, generation);
  return true;
}

// After some of a lane's old links are gone.
void Attacher::free_lane(uint32_t number) {
  if (!settle_lane(number, generations_[number])) return;
  const bool in_use =
      std::ranges::any_of(lanes_, [&](const Lane& lane) { return lane.number == number; });
  if (!in_use) free_lanes_.push_back(number);
}

void Attacher::detach_files(const std::set<int>& file_ids) {
  std::vector<ProbeLinks> closing;
  std::vector<uint32_t> numbers;
  for (auto lane = lanes_.begin(); lane != lanes_.end();) {
    const auto current = lane++;
    if (!file_ids.contains(current->file_id)) continue;
    closing.push_back(std::move(current->links));
    numbers.push_back(current->number);
    lanes_.erase(current);
  }
  close_links(std::move(closing));
  for (const uint32_t number : numbers) free_lane(number);
}

void Attacher::detach_all() {
  std::vector<ProbeLinks> closing;
  for (Lane& lane : lanes_) closing.push_back(std::move(lane.links));
  for (Retired& retired : retired_) closing.push_back(std::move(retired.links));
  lanes_.clear();
  retired_.clear();
  close_links(std::move(closing));
}

}  // namespace gpuperf
