#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "daemon/model/control_port.h"
#include "daemon/rpc/answer_budget.h"
#include "daemon/rpc/capture_owners.h"
#include "gpuperf/v1/control.grpc.pb.h"

namespace gpuperf {

// Who calls: decided once per connection, by the kernel's word for it (RpcServer).
enum class Caller {
  kRoot,   // uid 0 behind the Unix socket
  kUser,   // one other user who may open it
  kOther,  // anyone else who may open it, nobody knows who
  kTcp,    // anyone with a certificate
};

struct CallerId {
  Caller caller = Caller::kOther;
  uint32_t uid = 0;  // of kUser
};

// Answers gpuperf.v1.Control: hands what root asks for to the daemon, and refuses everyone else,
// but for captures of a user's own processes: those orders carry the user.
//
// Thread: gRPC's, several at once; answers come back on the daemon's loop. `port`, which may be
// null (then every call is UNAVAILABLE), must outlive the server. A call that is cancelled, or
// still open when the server stops, is answered at once; what it asked for may come into force all
// the same, and the answer says so. Not here: what a change means and whether it is valid
// (ControlPort).
class ControlService final : public v1::Control::CallbackService {
 public:
  // The owners and the budget must outlive it.
  ControlService(ControlPort* port, CallerId caller, CaptureOwners& owners, AnswerBudget& budget)
      : port_(port), caller_(caller), owners_(owners), budget_(budget) {}

  grpc::ServerUnaryReactor* ReloadConfig(grpc::CallbackServerContext* context,
                                         const v1::ReloadConfigRequest* request,
                                         v1::ReloadConfigResponse* response) override;
  grpc::ServerUnaryReactor* AddProbe(grpc::CallbackServerContext* context,
                                     const v1::AddProbeRequest* request,
                                     v1::AddProbeResponse* response) override;
  grpc::ServerUnaryReactor* RemoveProbe(grpc::CallbackServerContext* context,
                                        const v1::RemoveProbeRequest* request,
                                        v1::RemoveProbeResponse* response) override;
  grpc::ServerUnaryReactor* EnableProbes(grpc::CallbackServerContext* context,
                                         const v1::EnableProbesRequest* request,
                                         v1::EnableProbesResponse* response) override;
  grpc::ServerUnaryReactor* DisableProbes(grpc::CallbackServerContext* context,
                                          const v1::DisableProbesRequest* request,
                                          v1::DisableProbesResponse* response) override;
  grpc::ServerUnaryReactor* SetSlowThreshold(grpc::CallbackServerContext* context,
                                             const v1::SetSlowThresholdRequest* request,
                                             v1::SetSlowThresholdResponse* response) override;
  grpc::ServerUnaryReactor* MeasureOverhead(grpc::CallbackServerContext* context,
                                            const v1::MeasureOverheadRequest* request,
                                            v1::MeasureOverheadResponse* response) override;
  grpc::ServerUnaryReactor* SetOverheadDemand(grpc::CallbackServerContext* context,
                                              const v1::SetOverheadDemandRequest* request,
                                              v1::SetOverheadDemandResponse* response) override;
  grpc::ServerUnaryReactor* SetSession(grpc::CallbackServerContext* context,
                                       const v1::SetSessionRequest* request,
                                       v1::SetSessionResponse* response) override;

  grpc::ServerUnaryReactor* AttachProcess(grpc::CallbackServerContext* context,
                                          const v1::AttachProcessRequest* request,
                                          v1::AttachProcessResponse* response) override;
  grpc::ServerUnaryReactor* DetachProcess(grpc::CallbackServerContext* context,
                                          const v1::DetachProcessRequest* request,
                                          v1::DetachProcessResponse* response) override;
  grpc::ServerUnaryReactor* ListAttachable(grpc::CallbackServerContext* context,
                                           const v1::ListAttachableRequest* request,
                                           v1::ListAttachableResponse* response) override;

  grpc::ServerUnaryReactor* StartCapture(grpc::CallbackServerContext* context,
                                         const v1::StartCaptureRequest* request,
                                         v1::StartCaptureResponse* response) override;
  grpc::ServerUnaryReactor* StopCapture(grpc::CallbackServerContext* context,
                                        const v1::StopCaptureRequest* request,
                                        v1::StopCaptureResponse* response) override;
  grpc::ServerUnaryReactor* FreezeRecorder(grpc::CallbackServerContext* context,
                                           const v1::FreezeRecorderRequest* request,
                                           v1::FreezeRecorderResponse* response) override;
  grpc::ServerUnaryReactor* DeleteCapture(grpc::CallbackServerContext* context,
                                          const v1::DeleteCaptureRequest* request,
                                          v1::DeleteCaptureResponse* response) override;

 private:
  using Post = std::function<void(ControlPort& port, ControlPort::Done done)>;
  // Calls `post` if the caller may, and answers into `change` when it is done.
  grpc::ServerUnaryReactor* start(v1::ProbeChange* change, const Post& post) const;
  grpc::ServerUnaryReactor* start_set_enabled(const std::string& category,
                                              const std::string& function, bool enabled,
                                              v1::ProbeChange* change) const;
  // Why nothing may be asked for; OK = it may.
  Status check_caller() const;

  using PostAttach = std::function<void(ControlPort& port, ControlPort::AttachDone done)>;
  // Calls `post` if the caller may and `pid` is one, and answers into `attachment`.
  grpc::ServerUnaryReactor* start_attach_change(uint32_t pid, v1::Attachment* attachment,
                                                const PostAttach& post) const;

  using PostCapture = std::function<void(ControlPort& port, ControlPort::CaptureDone done)>;
  // Whose processes the caller may capture: 0 = everybody's.
  Result<uint32_t> find_capture_uid() const;
  // Why the caller may not end or delete that capture; OK = it may.
  Status check_owner(uint64_t id) const;
  // Calls `post` if `allowed` says so, and answers into `capture`.
  grpc::ServerUnaryReactor* start_capture_change(v1::Capture* capture, const Status& allowed,
                                                 const PostCapture& post, bool begins) const;

  ControlPort* const port_;
  const CallerId caller_;
  CaptureOwners& owners_;
  AnswerBudget& budget_;
};

}  // namespace gpuperf
