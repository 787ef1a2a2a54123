#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "daemon/model/event.h"
#include "daemon/model/function.h"
#include "daemon/model/step.h"

namespace gpuperf {

// Steps of a process none of whose functions says where its steps are: learned from the copies by
// which it reads results back from the GPU (decision 0035).
//
// A turn is what a thread does from its first work for the GPU after one such copy until somebody
// has waited for the next one. A site is where in the program that copy is made. Steps end at the
// sites that most of the time goes by at, or whose turns are about as long; turns of other sites
// are part of the step after them. The first turn of a process is none: the program has started.
// Thread: one. Bounds: kMaxSites, kMaxUnawaited copies, kMaxThreads.
class LearnedSteps {
 public:
  static constexpr size_t kTurnsToLearn = 8;  // held until there are so many
  static constexpr size_t kMaxSites = 32;
  static constexpr size_t kMaxUnawaited = 3;
  static constexpr size_t kMaxThreads = 64;
  static constexpr uint64_t kHoldNs = 5'000'000'000;
  // A site ends steps if its turns are this part of the length, in the median, of those of the site
  // with the most time; or if they have this share of the time of all and this share of them follow
  // each other: a part of a step follows what it is a part of. Sites with fewer than kTurnsOfSite
  // turns are not compared with: one long wait is no loop.
  static constexpr uint64_t kShareOfLength = 4;
  static constexpr uint64_t kShareOfTime = 20;
  static constexpr uint64_t kShareOfRepeats = 10;
  static constexpr uint64_t kTurnsOfSite = 4;
  // Where so many steps replay CUDA graphs, one that does not is a prefill.
  static constexpr double kGraphTurns = 0.5;

  // A copy to the host. Appends what it completes to `steps`, without ids and thresholds.
  void take_copy(const ReportedCall& copy, const Function& function, std::vector<Step>& steps);
  // A wait after such a copy.
  void take_wait(const ReportedCall& wait, const Function& function, std::vector<Step>& steps);
  // Call several times a second: what nobody has waited for within kHoldNs.
  void expire(uint64_t now_mono_ns, std::vector<Step>& steps);
  // The process has ended.
  void end(std::vector<Step>& steps);

 private:
  struct Turn {
    Step step;  // its times, thread, function and site
    uint64_t bytes = 0;
    uint64_t product_rows = 0;
    uint32_t graphs = 0;
  };
  struct Site {
    uint64_t turns = 0;
    uint64_t repeats = 0;                   // of them, right after another one on their thread
    std::array<uint64_t, 15> lengths_ns{};  // of the last turns, as a ring
    uint64_t divisor_bytes = 0;             // greatest that all its copies are multiples of

    uint64_t get_length_ns() const;  // the median
    uint64_t get_time_ns() const { return turns * get_length_ns(); }
  };
  struct Thread {
    uint64_t results_mono_ns = 0;                           // when its last results were there
    uint64_t site = 0;                                      // of its last turn
    uint64_t part_start_mono_ns = 0, part_end_mono_ns = 0;  // turns that belong to the next step
  };

  void complete(uint64_t end_mono_ns, StepQuality quality, std::vector<Step>& steps);
  void learn(const Turn& turn);
  void decide(const Turn& turn, std::vector<Step>& steps);
  bool ends_steps(const Site& site) const;
  void describe(const Turn& turn, Step& step) const;

  std::deque<Turn> unawaited_;  // oldest first
  std::vector<Turn> held_;      // until kTurnsToLearn were seen
  std::map<uint64_t, Site> sites_;
  std::map<uint32_t, Thread> threads_;  // by tid
  bool has_started_ = false;
  bool has_learned_ = false;
  double graph_turns_ = 0;  // the share of turns that replay CUDA graphs, of late
};

}  // namespace gpuperf
