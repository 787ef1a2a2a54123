#pragma once

#include <functional>
#include <optional>
#include <string>

#include "daemon/app/part.h"
#include "daemon/model/control_port.h"

namespace gpuperf {

class AttachPart;
class OverheadPart;
class ProbingPart;
class SessionsPart;
class TracingPart;

// Changes of the configuration, of single probes, sessions and captures, as they are asked for:
// passed to the loop, made there by the parts.
class Control final : public ControlPort {
 public:
  Control(Core& core, ProbingPart& probing, SessionsPart& sessions, AttachPart& attach,
          TracingPart& tracing, OverheadPart& overhead)
      : core_(core),
        probing_(probing),
        sessions_(sessions),
        attach_(attach),
        tracing_(tracing),
        overhead_(overhead) {}

  void on_reload_signal();  // on the loop

  void post_reload(Done done) override;
  void post_add_probe(std::string section, std::string name, std::string value_json,
                      Done done) override;
  void post_remove_probe(std::string section, std::string name, Done done) override;
  void post_set_enabled(std::string category, std::string name, bool enabled, Done done) override;
  void post_set_threshold(std::string category, std::string name,
                          std::optional<uint64_t> threshold_ns, Done done) override;
  void post_measure_overhead(int64_t duration_ns, Done done) override;
  void post_overhead_demand(OverheadDemand::Kind kind, int64_t duration_ns, std::string reason,
                            Done done) override;
  void post_session_order(const SessionTarget& target, const SessionOrder& order,
                          SessionsDone done) override;
  void post_attach(const AttachOrder& order, AttachDone done) override;
  void post_detach(uint32_t pid, AttachDone done) override;
  void post_list_attachable(AttachListDone done) override;
  void post_start_capture(const CaptureOrder& order, CaptureDone done) override;
  void post_stop_capture(uint64_t id, CaptureDone done) override;
  void post_freeze_recorder(const FreezeOrder& order, CaptureDone done) override;
  void post_delete_capture(uint64_t id, CaptureDone done) override;

 private:
  void post_capture_change(std::function<Result<CaptureRow>()> change, CaptureDone done);
  void reload(Done done);
  Result<ProbeChange> reload_file();
  void put_in_force(Result<ProbeChange> change, Done done);

  Core& core_;
  ProbingPart& probing_;
  SessionsPart& sessions_;
  AttachPart& attach_;
  TracingPart& tracing_;
  OverheadPart& overhead_;
};

}  // namespace gpuperf
