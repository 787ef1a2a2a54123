#include "daemon/resolve/stack_merge.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace gpuperf {
namespace {

// The frames of Python, evaluation by evaluation: each is run by one C frame.
class Evaluations {
 public:
  Evaluations(const std::vector<PythonFrame>& python, std::vector<StackFrame> names,
              const std::optional<EvaluationCode>& code)
      : python_(python), names_(std::move(names)), code_(code) {
    size_t begin = 0;
    for (size_t i = 0; i < python.size(); ++i) {
      if (!code && python[i].entry_sp == 0) continue;
      evaluations_.push_back({.begin = begin, .end = i + 1, .entry_sp = python[i].entry_sp});
      begin = i + 1;
    }
    if (begin < python.size()) evaluations_.push_back({.begin = begin, .end = python.size()});
  }

  // Moves the evaluation that stands in the native frame at `index` to `frames`, if one does.
  bool take(const std::vector<NativeFrame>& native, size_t index, std::vector<StackFrame>& frames) {
    const auto found = std::ranges::find_if(evaluations_, [&](const Evaluation& evaluation) {
      return !evaluation.is_taken && stands_in(evaluation, native, index);
    });
    if (found == evaluations_.end()) return false;
    move(*found, frames);
    return true;
  }

  void take_rest(std::vector<StackFrame>& frames) {
    for (Evaluation& evaluation : evaluations_) {
      if (!evaluation.is_taken) move(evaluation, frames);
    }
  }

 private:
  struct Evaluation {
    size_t begin = 0;  // in names_
    size_t end = 0;
    uint64_t entry_sp = 0;  // 0 = not known
    bool is_taken = false;
  };

  bool stands_in(const Evaluation& evaluation, const std::vector<NativeFrame>& native,
                 size_t index) const {
    const NativeFrame& frame = native[index];
    if (code_) {
      const uint64_t pc = frame.pc - (frame.is_exact ? 0 : 1);
      return pc >= code_->begin && pc < code_->end;
    }
    // A frame reaches up to the next one; where a signal changed stacks that says nothing.
    return index + 1 < native.size() && evaluation.entry_sp >= frame.sp &&
           evaluation.entry_sp < native[index + 1].sp;
  }

  void move(Evaluation& evaluation, std::vector<StackFrame>& frames) {
    evaluation.is_taken = true;
    for (size_t i = evaluation.begin; i < evaluation.end; ++i) {
      // One of the interpreter's own only says where the evaluation stands.
      if (python_[i].code != 0) frames.push_back(std::move(names_[i]));
    }
  }

  const std::vector<PythonFrame>& python_;
  std::vector<StackFrame> names_;
  const std::optional<EvaluationCode>& code_;
  std::vector<Evaluation> evaluations_;  // innermost first, within one interpreter
};

}  // namespace

std::vector<StackFrame> merge_stacks(const std::vector<NativeFrame>& native,
                                     std::vector<FrameGroup> groups,
                                     const std::vector<PythonFrame>& python,
                                     std::vector<StackFrame> names,
                                     const std::optional<EvaluationCode>& evaluation) {
  Evaluations evaluations(python, std::move(names), evaluation);
  std::vector<StackFrame> frames;
  for (size_t i = 0; i < native.size(); ++i) {
    if (!evaluations.take(native, i, frames)) {
      std::ranges::move(groups[i], std::back_inserter(frames));
    }
  }
  evaluations.take_rest(frames);
  return frames;
}

}  // namespace gpuperf
