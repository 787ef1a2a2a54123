// Receives metrics and spans over OTLP/gRPC and prints each request as a line of JSON:
// {"signal":"spans","request":{…}}. Ends with its standard input.
//
// usage: otlp_receiver PORT      0 = any free one; the first line says which: {"port":4317}

#include <google/protobuf/util/json_util.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <cstdio>
#include <mutex>
#include <string>

#include "opentelemetry/proto/collector/metrics/v1/metrics_service.grpc.pb.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.grpc.pb.h"

namespace {

namespace collector = ::opentelemetry::proto::collector;

std::mutex output_mutex;

grpc::Status print(const char* signal, const google::protobuf::Message& request) {
  std::string json;
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  const auto status = google::protobuf::util::MessageToJsonString(request, &json, options);
  if (!status.ok()) return {grpc::StatusCode::INVALID_ARGUMENT, status.ToString()};
  const std::lock_guard lock(output_mutex);
  std::printf("{\"signal\":\"%s\",\"request\":%s}\n", signal, json.c_str());
  std::fflush(stdout);
  return grpc::Status::OK;
}

struct TraceService final : collector::trace::v1::TraceService::Service {
  grpc::Status Export(grpc::ServerContext*,
                      const collector::trace::v1::ExportTraceServiceRequest* request,
                      collector::trace::v1::ExportTraceServiceResponse*) override {
    return print("spans", *request);
  }
};

struct MetricsService final : collector::metrics::v1::MetricsService::Service {
  grpc::Status Export(grpc::ServerContext*,
                      const collector::metrics::v1::ExportMetricsServiceRequest* request,
                      collector::metrics::v1::ExportMetricsServiceResponse*) override {
    return print("metrics", *request);
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: otlp_receiver PORT\n");
    return 2;
  }
  TraceService trace;
  MetricsService metrics;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(std::string("127.0.0.1:") + argv[1], grpc::InsecureServerCredentials(),
                           &port);
  builder.RegisterService(&trace);
  builder.RegisterService(&metrics);
  const auto server = builder.BuildAndStart();
  if (server == nullptr) {
    std::fprintf(stderr, "otlp_receiver: cannot listen on port %s\n", argv[1]);
    return 1;
  }
  std::printf("{\"port\":%d}\n", port);
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  server->Shutdown();
  return 0;
}
