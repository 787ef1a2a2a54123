#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "daemon/base/mutex.h"
#include "daemon/base/result.h"
#include "daemon/inject/container_edits.h"
#include "daemon/inject/device_plugin.h"
#include "daemon/model/snapshot.h"

namespace gpuperf {

// The ways by which containers get the injected library that are switched on: the CDI file, the
// device plugin. A thread looks after both every `interval`: whether the library and the socket are
// there, whether the file is, whether the kubelet knows us; what does not work is tried again.
//
// Owns its thread. The CDI file stays behind at the end: without it containers that name its device
// would not start while the daemon is down (docs/decisions/0018).
class InjectionWays {
 public:
  struct Options {
    std::string cdi_spec;          // empty = off
    DevicePlugin::Options plugin;  // without a folder: off
    std::string library;           // by the host's path, here too
    std::string socket;            // in a folder that containers may mount
    std::chrono::milliseconds interval{1'000};
  };
  struct Report {
    std::vector<InjectionWay> ways;
    std::vector<Problem> problems;
    bool operator==(const Report&) const = default;
  };

  // `on_change` is called on the thread whenever the report is another one.
  InjectionWays(Options options, std::function<void()> on_change);
  ~InjectionWays();
  InjectionWays(const InjectionWays&) = delete;
  InjectionWays& operator=(const InjectionWays&) = delete;

  Report report() const;  // any thread

 private:
  void run();
  Report look();
  Status look_at_cdi(const Status& health);
  void publish(Report report);

  // Set once in the constructor.
  const Options options_;
  const std::function<void()> on_change_;
  const std::string cdi_text_;
  const std::unique_ptr<DevicePlugin> plugin_;  // null = off
  // Thread only.
  Status cdi_written_ = absl::UnavailableError("not written yet");
  mutable Mutex mutex_;
  ConditionVariable wake_;
  Report report_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: runs on all of the above
};

}  // namespace gpuperf
