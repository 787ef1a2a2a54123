#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "daemon/model/control_port.h"

namespace gpuperf::testing {

// Remembers what it was asked and answers the same to everything, at once or when told to.
// Thread: any.
class FakeControlPort final : public ControlPort {
 public:
  Result<ProbeChange> result = ProbeChange{};  // set before the first call
  Result<size_t> told_sessions = 1;            // likewise
  Result<CaptureRow> capture = CaptureRow{};   // likewise
  Result<AttachRow> attachment = AttachRow{};  // likewise
  bool answers_at_once = true;                 // likewise

  void post_reload(Done done) override { take("reload", std::move(done)); }
  void post_add_probe(std::string section, std::string name, std::string value_json,
                      Done done) override {
    take("add " + section + " " + name + " " + value_json, std::move(done));
  }
  void post_remove_probe(std::string section, std::string name, Done done) override {
    take("remove " + section + " " + name, std::move(done));
  }
  void post_set_enabled(std::string category, std::string name, bool enabled, Done done) override {
    take((enabled ? "enable " : "disable ") + category + " " + name, std::move(done));
  }
  void post_set_threshold(std::string category, std::string name,
                          std::optional<uint64_t> threshold_ns, Done done) override {
    take("threshold " + category + " " + name + " " +
             (threshold_ns ? std::to_string(*threshold_ns) : "as configured"),
         std::move(done));
  }

  void post_measure_overhead(int64_t duration_ns, Done done) override {
    take("measure " + std::to_string(duration_ns), std::move(done));
  }
  void post_overhead_demand(OverheadDemand::Kind kind, int64_t duration_ns, std::string reason,
                            Done done) override {
    take(std::string("demand ") + get_demand_name(kind) + " " + std::to_string(duration_ns) + " " +
             reason,
         std::move(done));
  }
  void post_session_order(const SessionTarget& target, const SessionOrder& order,
                          SessionsDone done) override {
    {
      const std::lock_guard lock(mutex_);
      orders_.emplace_back(target, order);
    }
    done(told_sessions);
  }

  void post_attach(const AttachOrder& order, AttachDone done) override {
    take_attach("attach " + std::to_string(order.pid) +
                (order.accept_seccomp ? " whatever its filter" : ""));
    done(attachment);
  }

  void post_detach(uint32_t pid, AttachDone done) override {
    take_attach("detach " + std::to_string(pid));
    done(attachment);
  }

  void post_list_attachable(AttachListDone done) override {
    take_attach("list attachable");
    if (!attachment.ok()) return done(attachment.status());
    done(std::vector<AttachRow>{*attachment, {.process = {.pid = 71}, .state = "injected"}});
  }

  void post_start_capture(const CaptureOrder& order, CaptureDone done) override {
    {
      const std::lock_guard lock(mutex_);
      capture_orders_.push_back(order);
    }
    take_capture("start", std::move(done));
  }
  void post_stop_capture(uint64_t id, CaptureDone done) override {
    take_capture("stop " + std::to_string(id), std::move(done));
  }
  void post_freeze_recorder(const FreezeOrder& order, CaptureDone done) override {
    {
      const std::lock_guard lock(mutex_);
      freeze_orders_.push_back(order);
    }
    take_capture("freeze", std::move(done));
  }
  void post_delete_capture(uint64_t id, CaptureDone done) override {
    take_capture("delete " + std::to_string(id), std::move(done));
  }

  std::vector<CaptureOrder> capture_orders() const {
    const std::lock_guard lock(mutex_);
    return capture_orders_;
  }
  std::vector<FreezeOrder> freeze_orders() const {
    const std::lock_guard lock(mutex_);
    return freeze_orders_;
  }
  std::vector<std::pair<SessionTarget, SessionOrder>> orders() const {
    const std::lock_guard lock(mutex_);
    return orders_;
  }
  std::vector<std::string> asked() const {
    const std::lock_guard lock(mutex_);
    return asked_;
  }
  // All of that: for tests that ask without end.
  void forget() {
    const std::lock_guard lock(mutex_);
    asked_.clear();
    orders_.clear();
    capture_orders_.clear();
    freeze_orders_.clear();
  }
  // Waits for the next call that was not answered at once.
  Done wait_for_call() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !waiting_.empty(); });
    Done done = std::move(waiting_.back());
    waiting_.pop_back();
    return done;
  }

 private:
  void take_capture(std::string what, CaptureDone done) {
    {
      const std::lock_guard lock(mutex_);
      asked_.push_back(std::move(what));
    }
    done(capture);
  }
  void take_attach(std::string what) {
    const std::lock_guard lock(mutex_);
    asked_.push_back(std::move(what));
  }
  void take(std::string what, Done done) {
    {
      const std::lock_guard lock(mutex_);
      asked_.push_back(std::move(what));
      if (!answers_at_once) {
        waiting_.push_back(std::move(done));
        changed_.notify_all();
        return;
      }
    }
    done(result);
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> asked_;                              // guarded by mutex_
  std::vector<Done> waiting_;                                   // guarded by mutex_
  std::vector<std::pair<SessionTarget, SessionOrder>> orders_;  // guarded by mutex_
  std::vector<CaptureOrder> capture_orders_;                    // guarded by mutex_
  std::vector<FreezeOrder> freeze_orders_;                      // guarded by mutex_
};

}  // namespace gpuperf::testing
