#pragma once

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "opentelemetry/proto/collector/metrics/v1/metrics_service.grpc.pb.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.grpc.pb.h"

namespace gpuperf::otlp::testing {

// A receiver of OTLP over gRPC that answers as it is told and keeps what it took.
class FakeReceiver {
 public:
  using TraceRequest = ::opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest;
  using TraceResponse = ::opentelemetry::proto::collector::trace::v1::ExportTraceServiceResponse;
  using MetricsRequest =
      ::opentelemetry::proto::collector::metrics::v1::ExportMetricsServiceRequest;

  // Port 0 = any free one.
  explicit FakeReceiver(int port = 0) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:" + std::to_string(port), grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(&trace_);
    builder.RegisterService(&metrics_);
    server_ = builder.BuildAndStart();
  }
  ~FakeReceiver() {
    release();
    server_->Shutdown(std::chrono::system_clock::now());
  }

  int port() const { return port_; }
  // The next requests are answered with these, in turn; later ones are taken.
  void answer(std::vector<grpc::Status> statuses) {
    const std::lock_guard lock(mutex_);
    answers_.assign(statuses.begin(), statuses.end());
  }
  // Every request is answered only after release().
  void hold() {
    const std::lock_guard lock(mutex_);
    is_holding_ = true;
  }
  void release() {
    const std::lock_guard lock(mutex_);
    is_holding_ = false;
    changed_.notify_all();
  }
  void reject_spans(int64_t count) {
    const std::lock_guard lock(mutex_);
    rejected_ = count;
  }

  // What came first in each request that was taken, once there are that many; what there is, when
  // they do not come within 30 s.
  std::vector<std::string> wait_for_taken(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(30), [&] { return taken_.size() >= count; });
    return taken_;
  }
  // Likewise requests of any fate.
  size_t wait_for_asked(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(30), [&] { return asked_ >= count; });
    return asked_;
  }
  std::string tenant() {
    const std::lock_guard lock(mutex_);
    return tenant_;
  }
  std::vector<TraceRequest> traces() {
    const std::lock_guard lock(mutex_);
    return traces_;
  }
  std::vector<MetricsRequest> metrics() {
    const std::lock_guard lock(mutex_);
    return metrics_requests_;
  }

 private:
  struct TraceService final : ::opentelemetry::proto::collector::trace::v1::TraceService::Service {
    explicit TraceService(FakeReceiver& receiver) : receiver(receiver) {}
    grpc::Status Export(grpc::ServerContext* context, const TraceRequest* request,
                        TraceResponse* response) override {
      const grpc::Status status = receiver.admit(*context);
      const std::lock_guard lock(receiver.mutex_);
      if (!status.ok()) return status;
      receiver.traces_.push_back(*request);
      receiver.taken_.push_back(request->resource_spans_size() == 0
                                    ? ""
                                    : request->resource_spans(0).scope_spans(0).spans(0).name());
      if (receiver.rejected_ > 0) {
        response->mutable_partial_success()->set_rejected_spans(receiver.rejected_);
        response->mutable_partial_success()->set_error_message("too old");
      }
      receiver.changed_.notify_all();
      return status;
    }
    FakeReceiver& receiver;
  };
  struct MetricsService final
      : ::opentelemetry::proto::collector::metrics::v1::MetricsService::Service {
    explicit MetricsService(FakeReceiver& receiver) : receiver(receiver) {}
    grpc::Status Export(
        grpc::ServerContext* context, const MetricsRequest* request,
        ::opentelemetry::proto::collector::metrics::v1::ExportMetricsServiceResponse*) override {
      const grpc::Status status = receiver.admit(*context);
      const std::lock_guard lock(receiver.mutex_);
      if (!status.ok()) return status;
      receiver.metrics_requests_.push_back(*request);
      receiver.taken_.push_back(request->resource_metrics(0).scope_metrics(0).metrics(0).name());
      receiver.changed_.notify_all();
      return status;
    }
    FakeReceiver& receiver;
  };

  grpc::Status admit(const grpc::ServerContext& context) {
    std::unique_lock lock(mutex_);
    const auto tenant = context.client_metadata().find("x-tenant");
    if (tenant != context.client_metadata().end()) {
      tenant_ = std::string(tenant->second.data(), tenant->second.size());
    }
    ++asked_;
    changed_.notify_all();
    // Not for ever: a server ends when its calls have.
    changed_.wait_for(lock, std::chrono::seconds(30), [this] { return !is_holding_; });
    if (answers_.empty()) return grpc::Status::OK;
    grpc::Status status = answers_.front();
    answers_.pop_front();
    return status;
  }

  TraceService trace_{*this};
  MetricsService metrics_{*this};
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::deque<grpc::Status> answers_;
  std::vector<std::string> taken_;
  std::vector<TraceRequest> traces_;
  std::vector<MetricsRequest> metrics_requests_;
  std::string tenant_;
  size_t asked_ = 0;
  int64_t rejected_ = 0;
  bool is_holding_ = false;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace gpuperf::otlp::testing
