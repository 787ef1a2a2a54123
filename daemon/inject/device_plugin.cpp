#include "daemon/inject/device_plugin.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace gpuperf {
namespace {

// A kubelet holds one stream and asks one thing at a time; the rest is room for one that comes anew
// while the stream of the one before is still seen to end.
constexpr int kMaxThreads = 8;
constexpr std::chrono::milliseconds kStopPatience{500};

}  // namespace

DevicePlugin::DevicePlugin(Options options, const ContainerEdits& edits)
    : options_(std::move(options)), service_(edits), retry_(options_.first_retry) {}

DevicePlugin::~DevicePlugin() {
  service_.stop();
  stop_serving();
}

void DevicePlugin::cancel() {
  const MutexLock lock(mutex_);
  cancelled_ = true;
  if (asking_ != nullptr) asking_->TryCancel();
}

std::optional<DevicePlugin::Stamp> DevicePlugin::find_stamp(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0 || !S_ISSOCK(status.st_mode)) return std::nullopt;
  return Stamp{{status.st_dev, status.st_ino},
               int64_t{status.st_ctim.tv_sec} * 1'000'000'000 + status.st_ctim.tv_nsec};
}

Status DevicePlugin::update(const Status& health) {
  service_.set_health(health);
  const std::optional<Stamp> kubelet = find_stamp(kubelet_socket());
  if (!kubelet) {
    kubelet_.reset();
    return absl::NotFoundError(kubelet_socket() + ": no kubelet listens there");
  }
  const auto now = std::chrono::steady_clock::now();
  const bool is_served = server_ && socket_ && find_file_id(own_socket()) == socket_;
  if (kubelet == kubelet_ && is_served && (registered_.ok() || now < retry_at_)) return registered_;
  if (kubelet != kubelet_) retry_ = options_.first_retry;
  kubelet_ = kubelet;
  registered_ = is_served ? absl::OkStatus() : serve();
  if (registered_.ok()) registered_ = register_with_kubelet();
  if (!registered_.ok()) {
    retry_at_ = now + retry_;
    retry_ = std::min(retry_ * 2, options_.max_retry);
  }
  return registered_;
}

Status DevicePlugin::serve() {
  stop_serving();
  grpc::ServerBuilder builder;
  builder.SetResourceQuota(grpc::ResourceQuota().SetMaxThreads(kMaxThreads));
  // Takes the place of a socket that a killed daemon left.
  builder.AddListeningPort("unix:" + own_socket(), grpc::InsecureServerCredentials());
  builder.RegisterService(&service_);
  server_ = builder.BuildAndStart();
  if (server_) socket_ = find_file_id(own_socket());
  if (server_ && socket_) return absl::OkStatus();
  return absl::UnavailableError(own_socket() + ": cannot listen there" +
                                (access(options_.folder.c_str(), W_OK) != 0
                                     ? "; let gpuperfd write in the folder"
                                     : "; its path may be too long for a socket"));
}

void DevicePlugin::stop_serving() {
  if (!server_) return;
  server_->Shutdown(std::chrono::system_clock::now() + kStopPatience);
  server_.reset();
  // gRPC removes it, too; best effort, as the kubelet passes over what does not answer.
  if (socket_ && find_file_id(own_socket()) == socket_) (void)unlink(own_socket().c_str());
  socket_.reset();
}

Status DevicePlugin::register_with_kubelet() {
  grpc::ChannelArguments arguments;
  // A connection of its own: one that is shared would wait as long as failures before have made it.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto stub = v1beta1::Registration::NewStub(grpc::CreateCustomChannel(
      "unix:" + kubelet_socket(), grpc::InsecureChannelCredentials(), arguments));
  v1beta1::RegisterRequest request;
  request.set_version("v1beta1");
  request.set_endpoint(own_socket().substr(options_.folder.size() + 1));
  request.set_resource_name(std::string(kInjectResource));
  (void)request.mutable_options();  // old kubelets look into it
  v1beta1::Empty response;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + options_.patience);
  {
    const MutexLock lock(mutex_);
    if (cancelled_) return absl::CancelledError("gpuperfd stops");
    asking_ = &context;
  }
  const grpc::Status status = stub->Register(&context, request, &response);
  {
    const MutexLock lock(mutex_);
    asking_ = nullptr;
  }
  if (status.ok()) return absl::OkStatus();
  return absl::UnavailableError(kubelet_socket() + ": register " + std::string(kInjectResource) +
                                ": " + status.error_message());
}

}  // namespace gpuperf
