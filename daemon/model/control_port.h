#pragma once

// What may be asked of the daemon from outside. Whoever asks has been authorised.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/model/attach.h"
#include "daemon/model/capture_order.h"
#include "daemon/model/overhead.h"
#include "daemon/model/session.h"

namespace gpuperf {

// What a change of the probe set came to.
struct ProbeChange {
  uint32_t added = 0;    // functions that became probed, or wait for their library
  uint32_t removed = 0;  // functions that are no longer probed
  uint32_t changed = 0;  // functions whose threshold or arguments changed
  uint32_t unchanged = 0;
  // Settings of the new configuration that take effect only after a restart ("grpc.listen").
  std::vector<std::string> restart_needed;
  std::vector<std::string> warnings;  // about the configuration, each a line
  bool operator==(const ProbeChange&) const = default;
};

// Changes the daemon, from any thread.
//
// Each call returns at once and answers later, once the change is in force, on the daemon's loop;
// `done` must not block. After stop every call is answered with UNAVAILABLE.
class ControlPort {
 public:
  using Done = std::function<void(Result<ProbeChange>)>;
  using SessionsDone = std::function<void(Result<size_t>)>;  // how many sessions were told
  using CaptureDone = std::function<void(Result<CaptureRow>)>;
  using AttachDone = std::function<void(Result<AttachRow>)>;
  using AttachListDone = std::function<void(Result<std::vector<AttachRow>>)>;
  virtual ~ControlPort() = default;

  // Reads the configuration file anew. InvalidArgument: it has errors, each on a line of the
  // message; nothing has changed.
  virtual void post_reload(Done done) = 0;
  // Adds one probe until the daemon ends; `value_json` is what would stand behind its name in the
  // section: a symbol in quotes, or an object. InvalidArgument as above; AlreadyExists.
  virtual void post_add_probe(std::string section, std::string name, std::string value_json,
                              Done done) = 0;
  // Removes one that was added so. NotFound; FailedPrecondition: it is in the configuration.
  virtual void post_remove_probe(std::string section, std::string name, Done done) = 0;
  // Takes out, or puts in again, the functions of this category whose name matches (`*` matches any
  // run of characters), until the daemon ends. NotFound: there is none.
  virtual void post_set_enabled(std::string category, std::string name, bool enabled,
                                Done done) = 0;
  // Sets the threshold of slow calls of those functions until the daemon ends, for calls in flight
  // too; 0 = never slow by it, empty = as configured. NotFound: there is none.
  virtual void post_set_threshold(std::string category, std::string name,
                                  std::optional<uint64_t> threshold_ns, Done done) = 0;
  // Puts a demand in force for so long, in place of the one before.
  virtual void post_overhead_demand(OverheadDemand::Kind kind, int64_t duration_ns,
                                    std::string reason, Done done) = 0;
  // Begins to measure what gpuperf costs, for so long; answers at once with nothing changed.
  // FailedPrecondition, NotFound: it cannot be measured now.
  virtual void post_measure_overhead(int64_t duration_ns, Done done) = 0;
  // Tells the open sessions of the target what to collect. NotFound: there is none.
  // FailedPrecondition: this daemon takes no sessions.
  virtual void post_session_order(const SessionTarget& target, const SessionOrder& order,
                                  SessionsDone done) = 0;
  // Brings the injected library into a process that runs already; takes it out; lists processes by
  // whether that can be done. FailedPrecondition: this daemon attaches to none. What is refused of
  // one process is an answer with the reason.
  virtual void post_attach(const AttachOrder& order, AttachDone done) = 0;
  virtual void post_detach(uint32_t pid, AttachDone done) = 0;
  virtual void post_list_attachable(AttachListDone done) = 0;
  // Starts a capture, or schedules it, and answers with it. InvalidArgument; NotFound: no process
  // of that target; PermissionDenied: a process of another user; ResourceExhausted: as many as may
  // run do; FailedPrecondition: nothing can be captured here.
  virtual void post_start_capture(const CaptureOrder& order, CaptureDone done) = 0;
  // Ends one that runs, and answers at once: it is stored when its state says so. NotFound;
  // FailedPrecondition: it has ended.
  virtual void post_stop_capture(uint64_t id, CaptureDone done) = 0;
  // Makes a capture of what the flight recorder holds. Errors as above.
  virtual void post_freeze_recorder(const FreezeOrder& order, CaptureDone done) = 0;
  // Deletes a stored or failed one for good. NotFound; FailedPrecondition: it has not ended.
  virtual void post_delete_capture(uint64_t id, CaptureDone done) = 0;
};

}  // namespace gpuperf
