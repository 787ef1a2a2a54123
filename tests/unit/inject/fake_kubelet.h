#pragma once

// A kubelet that only knows device plugins: takes registrations on kubelet.sock, and asks plugins.

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "deviceplugin/v1beta1.grpc.pb.h"

namespace gpuperf {

class FakeKubelet final : public v1beta1::Registration::Service {
 public:
  struct Registered {
    std::string version;
    std::string endpoint;
    std::string resource;
    bool operator==(const Registered&) const = default;
  };

  explicit FakeKubelet(std::string folder) : folder_(std::move(folder)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + folder_ + "/kubelet.sock",
                             grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeKubelet() override {
    release();
    server_->Shutdown();
  }

  void refuse(const std::string& why) {
    const std::lock_guard lock(mutex_);
    status_ = why.empty() ? grpc::Status::OK : grpc::Status(grpc::StatusCode::INTERNAL, why);
  }
  void hang() {
    const std::lock_guard lock(mutex_);
    is_hung_ = true;
  }
  void release() {
    const std::lock_guard lock(mutex_);
    is_hung_ = false;
    changed_.notify_all();
  }
  bool wait_until_asked() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [this] { return asked_ > 0; });
  }
  std::vector<Registered> registered() const {
    const std::lock_guard lock(mutex_);
    return registered_;
  }
  int asked() const {
    const std::lock_guard lock(mutex_);
    return asked_;
  }

  // Of the plugin that registered last.
  std::unique_ptr<v1beta1::DevicePlugin::Stub> connect() const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return v1beta1::DevicePlugin::NewStub(
        grpc::CreateCustomChannel("unix:" + folder_ + "/" + registered().back().endpoint,
                                  grpc::InsecureChannelCredentials(), arguments));
  }

  grpc::Status Register(grpc::ServerContext*, const v1beta1::RegisterRequest* request,
                        v1beta1::Empty*) override {
    std::unique_lock lock(mutex_);
    ++asked_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !is_hung_; });
    if (status_.ok()) {
      registered_.push_back({request->version(), request->endpoint(), request->resource_name()});
    }
    return status_;
  }

 private:
  const std::string folder_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  grpc::Status status_;
  std::vector<Registered> registered_;
  int asked_ = 0;
  bool is_hung_ = false;
  std::unique_ptr<grpc::Server> server_;  // last: runs on all of the above
};

}  // namespace gpuperf
