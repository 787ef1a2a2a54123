#include <set>
#include <string>
#include <utility>

#include "daemon/app/leaf_parts.h"
#include "daemon/base/work_watch.h"

namespace gpuperf {
namespace {

// Says which threads hang: in the log once, in the snapshot for as long as they do.
class WatchPart final : public Part {
 public:
  using Part::Part;

  Status start() override { return absl::OkStatus(); }

  void advance(int64_t /*now_mono_ns*/) override {
    std::set<std::string> late;
    for (const WorkAtHand& work : list_late_work()) late.insert(work.thread);
    if (late == late_) return;
    for (const std::string& thread : late) {
      if (!late_.contains(thread)) log_warn("thread hangs", {{"thread", thread}});
    }
    for (const std::string& thread : late_) {
      if (!late.contains(thread)) log_info("thread recovered", {{"thread", thread}});
    }
    late_ = std::move(late);
    core_.changed = true;
  }

  void fill(Snapshot& snapshot) const override {
    for (const std::string& thread : late_) {
      snapshot.problems.push_back({"thread " + thread, "one piece of its work takes too long",
                                   "its other work waits, and /readyz answers 503; if it does not "
                                   "recover, restart gpuperfd"});
    }
  }

 private:
  std::set<std::string> late_;
};

}  // namespace

std::unique_ptr<Part> make_watch_part(Core& core) { return std::make_unique<WatchPart>(core); }

}  // namespace gpuperf
