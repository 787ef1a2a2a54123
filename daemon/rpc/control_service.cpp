#include "daemon/rpc/control_service.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "daemon/rpc/grpc_status.h"
#include "daemon/rpc/to_proto.h"
#include "injector/session_abi.h"

namespace gpuperf {
namespace {

// A status travels in the trailers, of which clients take 8 KiB; a byte of it may need three there.
constexpr size_t kLongestMessageBytes = 2000;
constexpr uint64_t kMaxThresholdNs = uint64_t{1} << 62;  // as the proto says

// The errors of a configuration may be many: whole lines of them, as far as they go.
Status shorten(const Status& status) {
  if (status.message().size() <= kLongestMessageBytes) return status;
  std::string message(status.message().substr(0, kLongestMessageBytes));
  message.resize(std::min(message.size(), message.rfind('\n')));  // npos: one very long line
  return {status.code(), message + "\n… and more; all of them: gpuperfctl config check FILE"};
}

// One call to Control, answered once: by the daemon's loop or by its cancellation, whichever is
// first.
//
// Thread: any. Lifetime: owns itself until gRPC says OnDone; the daemon's `done` holds it too, and
// may come after that.
template <typename Answer>
class ControlCall final : public grpc::ServerUnaryReactor {
 public:
  using Write = std::function<void(const Answer& answer)>;

  // `write` puts the answer into the response.
  static std::shared_ptr<ControlCall> make(Write write) {
    std::shared_ptr<ControlCall> call(new ControlCall(std::move(write)));
    call->self_ = call;
    return call;
  }

  void answer(const Result<Answer>& result) {
    // gRPC keeps the response until Finish, and only the first to answer touches it.
    if (answered_.exchange(true)) return;
    if (result.ok()) write_(*result);
    Finish(to_grpc_status(shorten(result.status())));
  }

  void OnCancel() override {
    answer(absl::CancelledError(
        "given up before the daemon was done; the change may come into force all the same"));
  }
  void OnDone() override {
    const std::shared_ptr<ControlCall> last = std::move(self_);  // may destroy this on return
  }

 private:
  explicit ControlCall(Write write) : write_(std::move(write)) {}

  const Write write_;
  std::atomic<bool> answered_ = false;
  std::shared_ptr<ControlCall> self_;  // reset in OnDone
};

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
  order.burst_ms = request.burst_ms();
  const bool has_burst = order.burst_flags != 0;
  if (has_burst != (order.burst_ms != 0)) {
    return absl::InvalidArgumentError(
        "burst_ms: a burst has a length and says of what: burst_nodes or burst_all_apis");
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

}  // namespace

Status ControlService::check_caller() const {
  switch (caller_) {
    case Caller::kRoot:
      if (port_ != nullptr) return absl::OkStatus();
      return absl::UnavailableError("this daemon cannot be changed while it runs");
    case Caller::kOther:
      return absl::PermissionDeniedError(
          "only root may change the daemon; run it as root: sudo gpuperfctl …");
    case Caller::kTcp:
      return absl::PermissionDeniedError(
          "nobody may change the daemon over TCP, where nothing says who calls; set grpc.listen to "
          "a Unix socket and run it as root on the daemon's machine: sudo gpuperfctl …");
  }
  return absl::InternalError("unknown kind of caller");
}

grpc::ServerUnaryReactor* ControlService::start(v1::ProbeChange* change, const Post& post) const {
  const auto call = ControlCall<ProbeChange>::make(
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

grpc::ServerUnaryReactor* ControlService::SetSession(grpc::CallbackServerContext*,
                                                     const v1::SetSessionRequest* request,
                                                     v1::SetSessionResponse* response) {
  const auto call = ControlCall<uint32_t>::make(
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

}  // namespace gpuperf
