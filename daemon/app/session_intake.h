#pragma once

#include <functional>
#include <memory>
#include <string>

#include "daemon/base/clock.h"
#include "daemon/base/proc_files.h"
#include "daemon/base/result.h"
#include "daemon/config/config.h"
#include "daemon/model/drops.h"
#include "daemon/owner/pod_names.h"
#include "daemon/session/session_source.h"

namespace gpuperf {

// What a session source is put together with; all of it must outlive the source.
struct SessionParts {
  const Clock& clock;
  DropCounters& drops;
  PodNames& pod_names;
  ProcFiles proc;
  std::function<bool()> may_wait;  // see SessionSource::Setup
  std::function<void()> on_batch;
};

// Where injected processes connect.
std::string find_ingest_socket(const Settings& settings, const std::string& runtime_dir);

// By the settings of section `ingest`; the socket is in `runtime_dir` unless they say otherwise.
Result<std::unique_ptr<SessionSource>> make_session_source(const Settings& settings,
                                                           const std::string& runtime_dir,
                                                           SessionParts parts);

}  // namespace gpuperf
