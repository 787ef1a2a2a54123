#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/model/capture.h"
#include "daemon/view/path_weights.h"
#include "daemon/view/time_groups.h"
#include "daemon/view/time_use.h"

namespace gpuperf {

// Puts pieces of a process's wall time to its steps.
//
// Steps that the window has whole count. In training a step is a turn of the loop: from the start
// of one backward pass to that of the next on its thread, or of the optimizer where no backward
// pass is seen.
// Thread: one. Borrows the capture and the table.
class StepGroups {
 public:
  // `asked_mono_ns`: see explain_time.
  StepGroups(const Capture& capture, const PathTable& table, uint32_t process,
             std::optional<uint64_t> asked_mono_ns);

  // In order of their beginning.
  void add(const TimePiece& piece);
  // By function and phase, most time first.
  std::vector<StepUse> finish();

 private:
  struct Span {
    uint64_t begin_ns = 0;
    uint64_t end_ns = 0;
    uint64_t tokens = 0;  // 0 = not known
    size_t kind = 0;
    bool is_shown = false;  // the longest of its kind, or the one asked for
  };
  struct Kind {
    StepUse use;
    std::vector<size_t> spans;
    TimeGroups shown;
    TimeGroups others;
  };

  size_t get_kind(uint32_t function, StepPhase phase);
  void add_span(const CaptureStep& step, uint64_t end_ns);
  void add_turns(std::vector<const CaptureStep*> steps);
  size_t find_asked(uint64_t asked_mono_ns) const;
  void describe(Kind& kind, size_t asked);
  static void compare(const ProcessTimeUse& shown, const ProcessTimeUse& others, StepUse& use);

  const Capture& capture_;
  const PathTable& table_;
  std::vector<Kind> kinds_;
  std::vector<Span> spans_;  // by begin
  size_t next_ = 0;          // of spans_: the first that no piece has reached
  std::vector<size_t> open_;
};

}  // namespace gpuperf
