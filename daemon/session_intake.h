#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "daemon/base/clock.h"
#include "daemon/base/log.h"
#include "daemon/base/result.h"
#include "daemon/collect/session_source.h"
#include "daemon/config.h"
#include "daemon/model/drops.h"
#include "daemon/model/session.h"
#include "daemon/resolve/pod_names.h"

namespace gpuperf {

// What a session source is put together with; all of it must outlive the source.
struct SessionParts {
  const Clock& clock;
  DropCounters& drops;
  PodNames& pod_names;
  std::function<void()> on_batch;
};

// Where injected processes connect.
std::string find_ingest_socket(const Settings& settings, const std::string& runtime_dir);

// By the settings of section `ingest`; the socket is in `runtime_dir` unless they say otherwise.
Result<std::unique_ptr<SessionSource>> make_session_source(const Settings& settings,
                                                           const std::string& runtime_dir,
                                                           SessionParts parts);

// Takes what sessions tell, on the loop: keeps which are open and how much each has told, and says
// in the log when one comes, goes or changes what it does.
//
// Thread: loop. Bounds: those of the source on open sessions.
class SessionIntake {
 public:
  explicit SessionIntake(const Clock& clock);

  void take(SessionEvent& event);
  size_t open_count() const { return sessions_.size(); }

 private:
  struct Session {
    ProcessKey process;
    std::string comm;
    uint64_t records = 0;
    uint64_t names = 0;
    uint32_t state = 0;  // enum gpuperf_session_state; 0 = not told yet
  };

  void take_event(SessionOpened& opened);
  void take_event(SessionBatch& batch);
  void take_event(SessionStatus& status);
  void take_event(SessionClosed& closed);
  void take_event(ClockStepped& stepped);

  bool may_log(int64_t mono_ns);

  const Clock& clock_;
  LogLimiter log_;
  std::map<uint64_t, Session> sessions_;  // by id
};

}  // namespace gpuperf
