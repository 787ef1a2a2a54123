#pragma once

#include <functional>
#include <string>

#include "daemon/model/control_port.h"
#include "gpuperf/v1/control.grpc.pb.h"

namespace gpuperf {

// Who calls: decided once per connection, by the kernel's word for it (RpcServer).
enum class Caller {
  kRoot,   // uid 0 behind the Unix socket
  kOther,  // anyone else who may open it
  kTcp,    // nothing says who
};

// Answers gpuperf.v1.Control: hands what root asks for to the daemon, and refuses everyone else.
//
// Thread: gRPC's, several at once; answers come back on the daemon's loop. `port`, which may be
// null (then every call is UNAVAILABLE), must outlive the server. A call that is cancelled, or
// still open when the server stops, is answered at once; what it asked for may come into force all
// the same, and the answer says so. Not here: what a change means and whether it is valid
// (ControlPort).
class ControlService final : public v1::Control::CallbackService {
 public:
  ControlService(ControlPort* port, Caller caller) : port_(port), caller_(caller) {}

  grpc::ServerUnaryReactor* ReloadConfig(grpc::CallbackServerContext* context,
                                         const v1::ReloadConfigRequest* request,
                                         v1::ReloadConfigResponse* response) override;
  grpc::ServerUnaryReactor* AddProbe(grpc::CallbackServerContext* context,
                                     const v1::AddProbeRequest* request,
                                     v1::AddProbeResponse* response) override;
  grpc::ServerUnaryReactor* EnableProbes(grpc::CallbackServerContext* context,
                                         const v1::EnableProbesRequest* request,
                                         v1::EnableProbesResponse* response) override;
  grpc::ServerUnaryReactor* DisableProbes(grpc::CallbackServerContext* context,
                                          const v1::DisableProbesRequest* request,
                                          v1::DisableProbesResponse* response) override;
  grpc::ServerUnaryReactor* SetSlowThreshold(grpc::CallbackServerContext* context,
                                             const v1::SetSlowThresholdRequest* request,
                                             v1::SetSlowThresholdResponse* response) override;
  grpc::ServerUnaryReactor* SetSession(grpc::CallbackServerContext* context,
                                       const v1::SetSessionRequest* request,
                                       v1::SetSessionResponse* response) override;

 private:
  using Post = std::function<void(ControlPort& port, ControlPort::Done done)>;
  // Calls `post` if the caller may, and answers into `change` when it is done.
  grpc::ServerUnaryReactor* start(v1::ProbeChange* change, const Post& post) const;
  grpc::ServerUnaryReactor* start_set_enabled(const std::string& category,
                                              const std::string& function, bool enabled,
                                              v1::ProbeChange* change) const;
  // Why nothing may be asked for; OK = it may.
  Status check_caller() const;

  ControlPort* const port_;
  const Caller caller_;
};

}  // namespace gpuperf
