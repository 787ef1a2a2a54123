#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/probe/attach/probe_links.h"
#include "daemon/probe/attach/programs.h"
#include "daemon/probe/code/placement.h"

namespace gpuperf {

// One place to probe in one file.
struct ProbePoint {
  uint32_t function_id = 0;
  uint64_t offset_bytes = 0;  // in the file
  Timing timing = Timing::kReturn;
  std::vector<ExitSite> exits = {};     // of kExits
  uint64_t semaphore_offset_bytes = 0;  // of a USDT probe; 0 = has none
  uint8_t tensor_layout = 0;            // number of that of an operator; 0 = none, or not known
  bool operator==(const ProbePoint&) const = default;
};

// What became of a ProbePoint.
struct ProbeOutcome {
  ProbePoint point;
  Status status;
};

// Puts probes into files and takes them out again.
//
// Thread: one. Owns the links; destroying it removes every probe. `programs` must outlive it.
// A file's probes go in as few links, at most kLinkPoints each; a point the kernel refuses does not
// keep the others out. Probes act on the file, hence on every process that maps it, now or later.
// Taking a function out replaces its link by one without it, in a way that misses no call of the
// others and counts none twice (lanes, bpf/records.h). The old link then waits for the calls it saw
// begin: see close_retired.
class Attacher {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // Each registration holds locks of every process that maps the file; 256 points at a time keep
  // that short (docs/decisions/0002).
  static constexpr size_t kLinkPoints = 256;
  // A thread may be between the test of its lane and the place where its call can be seen.
  static constexpr std::chrono::milliseconds kRetireGrace{20};

  explicit Attacher(Programs& programs);
  ~Attacher();
  Attacher(const Attacher&) = delete;
  Attacher& operator=(const Attacher&) = delete;

  // One outcome per point, in order.
  std::vector<ProbeOutcome> attach(const ProbedFile& file, std::span<const ProbePoint> points);
  // Takes functions out of the file. Calls of them that are in flight are still timed when they end
  // before `deadline`.
  Status detach(const ProbedFile& file, const std::set<uint32_t>& function_ids, Time deadline);
  // Removes every probe of the files at once, calls in flight or not; their descriptors may be
  // closed.
  void detach_files(const std::set<int>& file_ids);
  void detach_all();

  // Closes the replaced links whose calls have all ended, or whose deadline has passed.
  // `in_flight`: cookies of all calls in flight, read since the last change.
  void close_retired(const std::set<uint64_t>& in_flight, Time now);
  bool has_retired() const { return !retired_.empty(); }

 private:
  struct Lane {
    uint32_t number = 0;
    uint8_t generation = 1;
    int file_id = 0;
    Timing timing = Timing::kReturn;
    std::vector<ProbePoint> points;
    ProbeLinks links;
  };
  struct Retired {
    uint32_t lane = 0;
    uint8_t generation = 0;
    ProbeLinks links;
    Time since;
    Time deadline;
  };

  void attach_slice(const ProbedFile& file, Timing timing, std::span<ProbeOutcome*> slice);
  Result<ProbeLinks> make_links(const ProbedFile& file, const Lane& lane) const;
  void retire(Lane& lane, Time deadline);
  bool settle_lane(uint32_t number, uint8_t generation);
  void free_lane(uint32_t number);

  Programs& programs_;
  std::list<Lane> lanes_;
  std::list<Retired> retired_;
  std::vector<uint32_t> free_lanes_;         // numbers, lowest last
  std::map<uint32_t, uint8_t> generations_;  // last one used, of lanes used before
};

}  // namespace gpuperf
