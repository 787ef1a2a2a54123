#include "daemon/owner/cri.h"

#include <grpcpp/grpcpp.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "cri/runtime_v1.grpc.pb.h"

namespace gpuperf {
namespace {

// A runtime answers in some 5 ms; one that is overloaded has better things to do.
constexpr std::chrono::seconds kDeadline{1};
// The longest name Kubernetes allows.
constexpr size_t kMaxNameBytes = 253;

bool is_socket(const std::string& path) {
  struct stat found {};
  return ::stat(path.c_str(), &found) == 0 && S_ISSOCK(found.st_mode);
}

std::string get_label(const runtime::v1::Container& container, const char* key) {
  const auto label = container.labels().find(key);
  if (label == container.labels().end()) return {};
  return label->second.substr(0, kMaxNameBytes);
}

}  // namespace

const std::vector<std::string>& cri_sockets() {
  static const std::vector<std::string> kSockets = {
      "/run/containerd/containerd.sock", "/run/k3s/containerd/containerd.sock",
      "/run/crio/crio.sock", "/run/cri-dockerd.sock",
      "/var/snap/microk8s/common/run/containerd.sock"};
  return kSockets;
}

Result<std::optional<PodName>> find_pod(const std::vector<std::string>& sockets,
                                        std::string_view container) {
  const auto socket = std::ranges::find_if(sockets, is_socket);
  if (socket == sockets.end()) return absl::NotFoundError("no socket of a container runtime");
  const auto stub = runtime::v1::RuntimeService::NewStub(
      grpc::CreateChannel("unix:" + *socket, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kDeadline);
  runtime::v1::ListContainersRequest request;
  request.mutable_filter()->set_id(std::string(container));
  runtime::v1::ListContainersResponse response;
  const grpc::Status status = stub->ListContainers(&context, request, &response);
  if (!status.ok()) {
    return absl::UnavailableError(*socket + ": list containers: " + status.error_message());
  }
  for (const runtime::v1::Container& found : response.containers()) {
    if (!std::string_view(found.id()).starts_with(container)) continue;
    PodName name{.pod = get_label(found, "io.kubernetes.pod.name"),
                 .pod_namespace = get_label(found, "io.kubernetes.pod.namespace")};
    if (!name.pod.empty()) return name;
  }
  return std::nullopt;
}

}  // namespace gpuperf
