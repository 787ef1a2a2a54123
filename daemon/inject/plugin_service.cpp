#include "daemon/inject/plugin_service.h"

#include <chrono>
#include <string>

#include "daemon/base/log.h"

namespace gpuperf {
namespace {

// A stream whose kubelet has gone ends within this.
constexpr std::chrono::seconds kLookInterval{1};

v1beta1::ListAndWatchResponse list_devices(bool is_healthy) {
  v1beta1::ListAndWatchResponse list;
  for (uint32_t number = 0; number < kInjectDevices; ++number) {
    v1beta1::Device& device = *list.add_devices();
    device.set_id("inject-" + std::to_string(number));
    device.set_health(is_healthy ? "Healthy" : "Unhealthy");
  }
  return list;
}

}  // namespace

void PluginService::set_health(const Status& health) {
  const MutexLock lock(mutex_);
  health_ = health;
  changed_.notify_all();
}

void PluginService::stop() {
  const MutexLock lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
}

grpc::Status PluginService::GetDevicePluginOptions(grpc::ServerContext*, const v1beta1::Empty*,
                                                   v1beta1::DevicePluginOptions*) {
  return grpc::Status::OK;
}

grpc::Status PluginService::ListAndWatch(
    grpc::ServerContext* context, const v1beta1::Empty*,
    grpc::ServerWriter<v1beta1::ListAndWatchResponse>* writer) {
  MutexLock lock(mutex_);
  while (!stopping_ && !context->IsCancelled()) {
    const bool told = health_.ok();
    lock.unlock();
    if (!writer->Write(list_devices(told))) return grpc::Status::OK;  // it has gone
    lock.lock();
    while (!stopping_ && health_.ok() == told && !context->IsCancelled()) {
      (void)changed_.wait_until(lock, std::chrono::steady_clock::now() + kLookInterval);
    }
  }
  return grpc::Status::OK;
}

grpc::Status PluginService::Allocate(grpc::ServerContext*, const v1beta1::AllocateRequest* request,
                                     v1beta1::AllocateResponse* response) {
  Status health;
  {
    const MutexLock lock(mutex_);
    health = health_;
  }
  if (!health.ok()) {
    log_warn("container not injected", {{"error", std::string(health.message())}});
  }
  for (int count = 0; count < request->container_requests_size(); ++count) {
    v1beta1::ContainerAllocateResponse& answer = *response->add_container_responses();
    if (!health.ok()) continue;
    for (const auto& [name, value] : edits_.environment) (*answer.mutable_envs())[name] = value;
    for (const ContainerEdits::Mount& edit : edits_.mounts) {
      v1beta1::Mount& mount = *answer.add_mounts();
      mount.set_host_path(edit.host_path);
      mount.set_container_path(edit.container_path);
      mount.set_read_only(true);
    }
  }
  return grpc::Status::OK;
}

}  // namespace gpuperf
