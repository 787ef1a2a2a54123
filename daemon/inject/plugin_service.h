#pragma once

#include <cstdint>
#include <utility>

#include "daemon/base/mutex.h"
#include "daemon/base/result.h"
#include "daemon/inject/container_edits.h"
#include "deviceplugin/v1beta1.grpc.pb.h"

namespace gpuperf {

// How many containers of a node can be injected at once. A kubelet runs 110 pods by default and 250
// where it is told to run many; a container that finds none waits with its pod.
inline constexpr uint32_t kInjectDevices = 256;

// What the kubelet asks: which devices there are, and what a container with one of them needs.
//
// Threads: the server's; set_health and stop from any. A stream of devices holds a thread of the
// server until its kubelet goes or stop(): the server's threads bound how many there are.
class PluginService final : public v1beta1::DevicePlugin::Service {
 public:
  explicit PluginService(ContainerEdits edits) : edits_(std::move(edits)) {}

  void set_health(const Status& health);
  void stop();  // ends the streams

  grpc::Status GetDevicePluginOptions(grpc::ServerContext* context, const v1beta1::Empty* request,
                                      v1beta1::DevicePluginOptions* response) override;
  grpc::Status ListAndWatch(grpc::ServerContext* context, const v1beta1::Empty* request,
                            grpc::ServerWriter<v1beta1::ListAndWatchResponse>* writer) override;
  // While unhealthy nothing is given: the container starts as if it had not asked, because a mount
  // of what is missing would keep it from starting.
  grpc::Status Allocate(grpc::ServerContext* context, const v1beta1::AllocateRequest* request,
                        v1beta1::AllocateResponse* response) override;

 private:
  const ContainerEdits edits_;
  Mutex mutex_;
  ConditionVariable changed_;
  Status health_ ABSL_GUARDED_BY(mutex_) = absl::UnavailableError("not looked at yet");
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace gpuperf
