// Receives metrics, spans and profiles over OTLP/gRPC and prints each request as a line of JSON:
// {"signal":"spans","request":{…}}. Ends with its standard input.
//
// usage: otlp_receiver PORT [FOLDER]     0 = any free one; the first line says which: {"port":4317}
//   FOLDER   over TLS, with server.pem and server.key from there, for clients with a certificate by
//            the authority in ca.pem

#include <google/protobuf/util/json_util.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>

#include "opentelemetry/proto/collector/metrics/v1/metrics_service.grpc.pb.h"
#include "opentelemetry/proto/collector/profiles/v1development/profiles_service.grpc.pb.h"
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

struct ProfilesService final : collector::profiles::v1development::ProfilesService::Service {
  grpc::Status Export(
      grpc::ServerContext*,
      const collector::profiles::v1development::ExportProfilesServiceRequest* request,
      collector::profiles::v1development::ExportProfilesServiceResponse*) override {
    return print("profiles", *request);
  }
};

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::shared_ptr<grpc::ServerCredentials> make_credentials(const char* folder) {
  if (folder == nullptr) return grpc::InsecureServerCredentials();
  const std::string path(folder);
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = read_text(path + "/ca.pem");
  options.pem_key_cert_pairs = {{read_text(path + "/server.key"), read_text(path + "/server.pem")}};
  return grpc::SslServerCredentials(options);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) {
    std::fprintf(stderr, "usage: otlp_receiver PORT [FOLDER]\n");
    return 2;
  }
  TraceService trace;
  MetricsService metrics;
  ProfilesService profiles;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(std::string("127.0.0.1:") + argv[1], make_credentials(argv[2]), &port);
  builder.RegisterService(&trace);
  builder.RegisterService(&metrics);
  builder.RegisterService(&profiles);
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
