#include "daemon/rpc/control_service.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "daemon/rpc/capture_orders.h"
#include "daemon/rpc/deferred_call.h"
#include "daemon/rpc/to_proto.h"
#include "daemon/store/capture_proto.h"
#include "injector/session_abi.h"

namespace gpuperf {
namespace {

constexpr uint64_t kDemandNsMax = 86'400'000'000'000;
constexpr size_t kReasonBytesMax = 256;
constexpr uint64_t kTrialNsMin = 10'000'000'000;  // as the proto says
constexpr uint64_t kTrialNsMax = 600'000'000'000;

constexpr uint64_t kMaxThresholdNs = uint64_t{1} << 62;  // as the proto says

constexpr const char* kGivenUp =
    "cancelled before the daemon was done; the change may still take effect";

Status check_pattern(const std::string& function) {
  if (!function.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("function: empty; write * for every function");
}

Result<SessionOrder::Mode> find_mode(v1::SessionMode mode) {
  if (mode == v1::SESSION_MODE_RUN) return SessionOrder::Mode::kRun;
  if (mode == v1::SESSION_MODE_PAUSE) return SessionOrder::Mode::kPause;
  if (mode == v1::SESSION_MODE_OFF) return SessionOrder::Mode::kOff;
  return absl::InvalidArgumentError("mode: none; SESSION_MODE_RUN, _PAUSE or _OFF");
}

Result<SessionOrder> make_order(const v1::SetSessionRequest& request) {
  if (request.pid() == 0 && request.session_id() == 0) {
    return absl::InvalidArgumentError("pid: 0, and session_id too; name one of both");
  }
  SessionOrder order;
  ASSIGN_OR_RETURN(order.mode, find_mode(request.mode()));
  order.sample_every = std::max<uint32_t>(request.sample_every(), 1);
  if (request.burst_nodes()) order.burst_flags |= GPUPERF_SESSION_BURST_NODES;
  if (request.burst_all_apis()) order.burst_flags |= GPUPERF_SESSION_BURST_ALL_APIS;
  if (request.burst_samples()) order.burst_flags |= GPUPERF_SESSION_BURST_SAMPLES;
  order.burst_ms = request.burst_ms();
  const bool has_burst = order.burst_flags != 0;
  if (has_burst != (order.burst_ms != 0)) {
    return absl::InvalidArgumentError(
        "burst_ms: a burst has a length and says of what: burst_nodes, burst_all_apis or "
        "burst_samples");
  }
  if (order.burst_ms > GPUPERF_SESSION_BURST_MS_MAX) {
    return absl::InvalidArgumentError("burst_ms: more than 60000");
  }
  const bool is_plain = !has_burst && request.sample_every() == 0;
  if (order.mode != SessionOrder::Mode::kRun && !is_plain) {
    return absl::InvalidArgumentError("mode: bursts and sampling are for SESSION_MODE_RUN");
  }
  return order;
}

Result<OverheadDemand::Kind> find_demand(const v1::SetOverheadDemandRequest& request) {
  if (request.reason().size() > kReasonBytesMax) {
    return absl::InvalidArgumentError("reason: more than 256 bytes");
  }
  if (request.demand() == v1::OVERHEAD_DEMAND_NONE) return OverheadDemand::Kind::kNone;
  if (request.duration_ns() == 0 || request.duration_ns() > kDemandNsMax) {
    return absl::InvalidArgumentError("duration_ns: from 1 ns to a day: a demand ends by itself");
  }
  if (request.demand() == v1::OVERHEAD_DEMAND_STAND_DOWN) return OverheadDemand::Kind::kStandDown;
  if (request.demand() == v1::OVERHEAD_DEMAND_DETAIL) return OverheadDemand::Kind::kDetail;
  return absl::InvalidArgumentError("demand: OVERHEAD_DEMAND_NONE, _STAND_DOWN or _DETAIL");
}

}  // namespace

Status ControlService::check_caller() const {
  switch (caller_.caller) {
    case Caller::kRoot:
      if (port_ != nullptr) return absl::OkStatus();
      return absl::UnavailableError("this daemon cannot be changed while it runs");
    case Caller::kUser:
    case Caller::kOther:
      return absl::PermissionDeniedError(
          "only root may change the daemon; run it as root: sudo gpuperfctl …");
    case Caller::kTcp:
      return absl::PermissionDeniedError(
          "the daemon cannot be changed over TCP: a certificate allows reading, but does not "
          "identify root; set grpc.listen to a Unix socket and run it as root on the daemon's "
          "machine: sudo gpuperfctl …");
  }
  return absl::InternalError("unknown kind of caller");
}

grpc::ServerUnaryReactor* ControlService::start(v1::ProbeChange* change, const Post& post) const {
  const auto call = DeferredCall<ProbeChange>::make(
      kGivenUp, budget_, *change,
      [change](const ProbeChange& answer) { *change = to_proto(answer); });
  if (const Status status = check_caller(); !status.ok()) {
    call->answer(status);
  } else {
    post(*port_, [call](const Result<ProbeChange>& result) { call->answer(result); });
  }
  return call.get();
}

grpc::ServerUnaryReactor* ControlService::start_set_enabled(const std::string& category,
                                                            const std::string& function,
                                                            bool enabled,
                                                            v1::ProbeChange* change) const {
  return start(change, [&](ControlPort& port, ControlPort::Done done) {
    if (const Status status = check_pattern(function); !status.ok()) return done(status);
    port.post_set_enabled(category, function, enabled, std::move(done));
  });
}

grpc::ServerUnaryReactor* ControlService::ReloadConfig(grpc::CallbackServerContext*,
                                                       const v1::ReloadConfigRequest*,
                                                       v1::ReloadConfigResponse* response) {
  return start(response->mutable_change(), [](ControlPort& port, ControlPort::Done done) {
    port.post_reload(std::move(done));
  });
}

grpc::ServerUnaryReactor* ControlService::AddProbe(grpc::CallbackServerContext*,
                                                   const v1::AddProbeRequest* request,
                                                   v1::AddProbeResponse* response) {
  return start(response->mutable_change(), [request](ControlPort& port, ControlPort::Done done) {
    port.post_add_probe(request->section(), request->name(), request->value_json(),
                        std::move(done));
  });
}

grpc::ServerUnaryReactor* ControlService::RemoveProbe(grpc::CallbackServerContext*,
                                                      const v1::RemoveProbeRequest* request,
                                                      v1::RemoveProbeResponse* response) {
  return start(response->mutable_change(), [request](ControlPort& port, ControlPort::Done done) {
    port.post_remove_probe(request->section(), request->name(), std::move(done));
  });
}

grpc::ServerUnaryReactor* ControlService::EnableProbes(grpc::CallbackServerContext*,
                                                       const v1::EnableProbesRequest* request,
                                                       v1::EnableProbesResponse* response) {
  return start_set_enabled(request->category(), request->function(), true,
                           response->mutable_change());
}

grpc::ServerUnaryReactor* ControlService::DisableProbes(grpc::CallbackServerContext*,
                                                        const v1::DisableProbesRequest* request,
                                                        v1::DisableProbesResponse* response) {
  return start_set_enabled(request->category(), request->function(), false,
                           response->mutable_change());
}

grpc::ServerUnaryReactor* ControlService::SetSlowThreshold(
    grpc::CallbackServerContext*, const v1::SetSlowThresholdRequest* request,
    v1::SetSlowThresholdResponse* response) {
  return start(response->mutable_change(), [request](ControlPort& port, ControlPort::Done done) {
    if (const Status status = check_pattern(request->function()); !status.ok()) {
      return done(status);
    }
    std::optional<uint64_t> threshold_ns;
    if (request->has_threshold_ns()) threshold_ns = request->threshold_ns();
    if (threshold_ns >= kMaxThresholdNs) {
      return done(absl::InvalidArgumentError("threshold_ns: more than 2^62; 0 makes no call slow"));
    }
    port.post_set_threshold(request->category(), request->function(), threshold_ns,
                            std::move(done));
  });
}

grpc::ServerUnaryReactor* ControlService::MeasureOverhead(grpc::CallbackServerContext*,
                                                          const v1::MeasureOverheadRequest* request,
                                                          v1::MeasureOverheadResponse* response) {
  const auto call = DeferredCall<ProbeChange>::make(kGivenUp, budget_, *response,
                                                    [](const ProbeChange& /*nothing changed*/) {});
  Status status = check_caller();
  if (request->duration_ns() < kTrialNsMin || request->duration_ns() > kTrialNsMax) {
    status.Update(absl::InvalidArgumentError("duration_ns: from 10 s to 10 min"));
  }
  if (status.ok()) {
    port_->post_measure_overhead(
        static_cast<int64_t>(request->duration_ns()),
        [call](const Result<ProbeChange>& result) { call->answer(result); });
  } else {
    call->answer(status);
  }
  return call.get();
}

grpc::ServerUnaryReactor* ControlService::SetOverheadDemand(
    grpc::CallbackServerContext*, const v1::SetOverheadDemandRequest* request,
    v1::SetOverheadDemandResponse* response) {
  return start(response->mutable_change(), [request](ControlPort& port, ControlPort::Done done) {
    const Result<OverheadDemand::Kind> kind = find_demand(*request);
    if (!kind.ok()) return done(kind.status());
    port.post_overhead_demand(*kind, static_cast<int64_t>(request->duration_ns()),
                              request->reason(), std::move(done));
  });
}

grpc::ServerUnaryReactor* ControlService::SetSession(grpc::CallbackServerContext*,
                                                     const v1::SetSessionRequest* request,
                                                     v1::SetSessionResponse* response) {
  const auto call = DeferredCall<uint32_t>::make(
      kGivenUp, budget_, *response,
      [response](uint32_t sessions) { response->set_sessions(sessions); });
  Status status = check_caller();
  const Result<SessionOrder> order = make_order(*request);
  status.Update(order.status());
  if (status.ok()) {
    port_->post_session_order({.pid = request->pid(), .session_id = request->session_id()}, *order,
                              [call](const Result<size_t>& result) { call->answer(result); });
  } else {
    call->answer(status);
  }
  return call.get();
}

grpc::ServerUnaryReactor* ControlService::start_attach_change(uint32_t pid,
                                                              v1::Attachment* attachment,
                                                              const PostAttach& post) const {
  const auto call = DeferredCall<AttachRow>::make(
      kGivenUp, budget_, *attachment,
      [attachment](const AttachRow& row) { *attachment = to_proto(row); });
  Status status = check_caller();
  if (status.ok() && pid == 0) status = absl::InvalidArgumentError("pid: missing");
  if (status.ok()) {
    post(*port_, [call](const Result<AttachRow>& row) { call->answer(row); });
  } else {
    call->answer(status);
  }
  return call.get();
}

grpc::ServerUnaryReactor* ControlService::AttachProcess(grpc::CallbackServerContext*,
                                                        const v1::AttachProcessRequest* request,
                                                        v1::AttachProcessResponse* response) {
  const AttachOrder order{.pid = request->pid(), .accept_seccomp = request->accept_seccomp()};
  return start_attach_change(request->pid(), response->mutable_attachment(),
                             [&order](ControlPort& port, ControlPort::AttachDone done) {
                               port.post_attach(order, std::move(done));
                             });
}

grpc::ServerUnaryReactor* ControlService::DetachProcess(grpc::CallbackServerContext*,
                                                        const v1::DetachProcessRequest* request,
                                                        v1::DetachProcessResponse* response) {
  return start_attach_change(request->pid(), response->mutable_attachment(),
                             [request](ControlPort& port, ControlPort::AttachDone done) {
                               port.post_detach(request->pid(), std::move(done));
                             });
}

grpc::ServerUnaryReactor* ControlService::ListAttachable(grpc::CallbackServerContext*,
                                                         const v1::ListAttachableRequest*,
                                                         v1::ListAttachableResponse* response) {
  const auto call = DeferredCall<std::vector<AttachRow>>::make(
      kGivenUp, budget_, *response, [response](const std::vector<AttachRow>& rows) {
        for (const AttachRow& row : rows) *response->add_attachments() = to_proto(row);
      });
  if (const Status status = check_caller(); !status.ok()) {
    call->answer(status);
  } else {
    port_->post_list_attachable(
        [call](const Result<std::vector<AttachRow>>& rows) { call->answer(rows); });
  }
  return call.get();
}

Result<uint32_t> ControlService::find_capture_uid() const {
  if (caller_.caller == Caller::kOther) {
    return absl::PermissionDeniedError(
        "too many other users are connected; try again later, or run it as root: sudo gpuperfctl "
        "…");
  }
  if (caller_.caller == Caller::kTcp) {
    return absl::PermissionDeniedError(
        "captures cannot be made over TCP: a certificate does not say which processes are the "
        "caller's; set grpc.listen to a Unix socket and run it on the daemon's machine");
  }
  if (port_ == nullptr) return absl::UnavailableError("nothing can be captured by this daemon");
  return caller_.caller == Caller::kRoot ? 0 : caller_.uid;
}

Status ControlService::check_owner(uint64_t id) const {
  ASSIGN_OR_RETURN(const uint32_t uid, find_capture_uid());
  if (uid == 0) return absl::OkStatus();
  const std::optional<uint32_t> owner = owners_.find(id);
  if (!owner) {
    return absl::NotFoundError("capture " + std::to_string(id) +
                               ": not found; list captures: gpuperfctl trace list");
  }
  if (*owner == uid) return absl::OkStatus();
  return absl::PermissionDeniedError("capture " + std::to_string(id) +
                                     ": another user asked for it; only that user and root may "
                                     "end or delete it: sudo gpuperfctl …");
}

grpc::ServerUnaryReactor* ControlService::start_capture_change(v1::Capture* capture,
                                                               const Status& allowed,
                                                               const PostCapture& post,
                                                               bool begins) const {
  const auto call = DeferredCall<CaptureRow>::make(
      kGivenUp, budget_, *capture, [capture](const CaptureRow& row) { *capture = to_proto(row); });
  if (!allowed.ok()) {
    call->answer(allowed);
    return call.get();
  }
  const uint32_t uid = find_capture_uid().value_or(0);
  post(*port_, [call, begins, uid, &owners = owners_](Result<CaptureRow> row) {
    if (row.ok() && begins) owners.remember(row->id, uid);
    call->answer(row);
  });
  return call.get();
}

grpc::ServerUnaryReactor* ControlService::StartCapture(grpc::CallbackServerContext*,
                                                       const v1::StartCaptureRequest* request,
                                                       v1::StartCaptureResponse* response) {
  const Result<uint32_t> uid = find_capture_uid();
  const Result<CaptureOrder> order =
      uid.ok() ? make_capture_order(*request, *uid) : Result<CaptureOrder>(uid.status());
  return start_capture_change(
      response->mutable_capture(), order.status(),
      [&order](ControlPort& port, ControlPort::CaptureDone done) {
        port.post_start_capture(*order, std::move(done));
      },
      true);
}

grpc::ServerUnaryReactor* ControlService::FreezeRecorder(grpc::CallbackServerContext*,
                                                         const v1::FreezeRecorderRequest* request,
                                                         v1::FreezeRecorderResponse* response) {
  const Result<uint32_t> uid = find_capture_uid();
  const Result<FreezeOrder> order =
      uid.ok() ? make_freeze_order(*request, *uid) : Result<FreezeOrder>(uid.status());
  return start_capture_change(
      response->mutable_capture(), order.status(),
      [&order](ControlPort& port, ControlPort::CaptureDone done) {
        port.post_freeze_recorder(*order, std::move(done));
      },
      true);
}

grpc::ServerUnaryReactor* ControlService::StopCapture(grpc::CallbackServerContext*,
                                                      const v1::StopCaptureRequest* request,
                                                      v1::StopCaptureResponse* response) {
  return start_capture_change(
      response->mutable_capture(), check_owner(request->id()),
      [request](ControlPort& port, ControlPort::CaptureDone done) {
        port.post_stop_capture(request->id(), std::move(done));
      },
      false);
}

grpc::ServerUnaryReactor* ControlService::DeleteCapture(grpc::CallbackServerContext*,
                                                        const v1::DeleteCaptureRequest* request,
                                                        v1::DeleteCaptureResponse* response) {
  return start_capture_change(
      response->mutable_capture(), check_owner(request->id()),
      [request](ControlPort& port, ControlPort::CaptureDone done) {
        port.post_delete_capture(request->id(), std::move(done));
      },
      false);
}

}  // namespace gpuperf
