#include "daemon/rpc/control_service.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "daemon/rpc/grpc_status.h"
#include "daemon/rpc/to_proto.h"

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
class ControlCall final : public grpc::ServerUnaryReactor {
 public:
  static std::shared_ptr<ControlCall> make(v1::ProbeChange* change) {
    std::shared_ptr<ControlCall> call(new ControlCall(change));
    call->self_ = call;
    return call;
  }

  void answer(const Result<ProbeChange>& result) {
    // gRPC keeps the response until Finish, and only the first to answer touches it.
    if (answered_.exchange(true)) return;
    if (result.ok()) *change_ = to_proto(*result);
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
  explicit ControlCall(v1::ProbeChange* change) : change_(change) {}

  v1::ProbeChange* const change_;
  std::atomic<bool> answered_ = false;
  std::shared_ptr<ControlCall> self_;  // reset in OnDone
};

Status check_pattern(const std::string& function) {
  if (!function.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("function: empty; write * for every function");
}

}  // namespace

Status ControlService::check_caller() const {
  switch (caller_) {
    case Caller::kRoot:
      return absl::OkStatus();
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
  const std::shared_ptr<ControlCall> call = ControlCall::make(change);
  if (const Status status = check_caller(); !status.ok()) {
    call->answer(status);
  } else if (port_ == nullptr) {
    call->answer(absl::UnavailableError("this daemon cannot be changed while it runs"));
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

}  // namespace gpuperf
