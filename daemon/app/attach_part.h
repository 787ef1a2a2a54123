#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>

#include "daemon/app/part.h"
#include "daemon/attach/process_attacher.h"
#include "daemon/model/control_port.h"

namespace gpuperf {

class SessionsPart;

// Attaching to processes that run already, when root asks for it (docs/attach.md); and taking up
// those again that a daemon before this one attached to.
class AttachPart final : public Part {
 public:
  AttachPart(Core& core, SessionsPart& sessions);
  // Before the daemon gives up its rights: starts the thread that keeps those it needs. Does
  // nothing where sessions.attach is false.
  void prepare();
  Status start() override;
  void stop() override;
  void advance(int64_t now_mono_ns) override;
  void fill(Snapshot& snapshot) const override {
    if (!attacher_) return;
    snapshot.self.add(Bound::kAttachQueue, attacher_->take_highest_queued(),
                      ProcessAttacher::kMaxWaiting);
  }

  // On the loop; answers there, too.
  void post_attach(const AttachOrder& order, ControlPort::AttachDone done);
  void post_detach(uint32_t pid, ControlPort::AttachDone done);
  void post_list(ControlPort::AttachListDone done);

 private:
  Status check_allowed() const;
  bool has_session(uint32_t pid) const;

  SessionsPart& sessions_;
  std::unique_ptr<ProcessAttacher> attacher_;  // null = sessions.attach is false
  std::set<uint32_t> attached_;                // processes that were, as far as this daemon knows
  int64_t next_look_mono_ns_ = 0;
};

}  // namespace gpuperf
