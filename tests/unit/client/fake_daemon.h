#pragma once

#include <grpcpp/grpcpp.h>

#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gpuperf/v1/observe.grpc.pb.h"

namespace gpuperf::client {

// A directory that is gone when the test ends.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// What the daemon answers. It restricts nothing, it only remembers what it
// was asked, because filtering is the daemon's work and asking is the client's.
struct FakeAnswers {
  v1::GetStatusResponse status;
  std::vector<v1::FunctionStats> functions;
  std::vector<v1::Process> processes;
  std::vector<v1::Probe> probes;
  std::vector<v1::SlowCall> slow_calls;
  v1::GetConfigResponse config;
  v1::CheckConfigResponse check;
  std::vector<v1::WatchSlowCallsResponse> watch;  // sent at once; then the stream stays open
  bool watch_ends = false;                        // with OK, after the messages
  size_t largest_page = 1000;
  bool repeat_page_token = false;
  grpc::Status failure = grpc::Status::OK;  // of every call
};

// A daemon of ours on a socket in a folder of its own.
class FakeDaemon final : public v1::Observe::Service {
 public:
  FakeDaemon();
  ~FakeDaemon() override;

  FakeAnswers answers;

  // Serves on the socket, or on "127.0.0.1:0" where a listen address is given. Later calls do
  // nothing. The answers may not change after the first.
  void start(const std::string& listen = "");
  // At once, as a daemon that stops does: running streams end.
  void stop();

  const std::string& address() const { return address_; }
  std::filesystem::path folder() const { return folder_.path(); }

  // Every request in order of arrival, as "ListFunctions: text form".
  std::vector<std::string> requests() const;

 private:
  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                         v1::GetStatusResponse*) override;
  grpc::Status ListProcesses(grpc::ServerContext*, const v1::ListProcessesRequest*,
                             v1::ListProcessesResponse*) override;
  grpc::Status ListProbes(grpc::ServerContext*, const v1::ListProbesRequest*,
                          v1::ListProbesResponse*) override;
  grpc::Status ListFunctions(grpc::ServerContext*, const v1::ListFunctionsRequest*,
                             v1::ListFunctionsResponse*) override;
  grpc::Status ListSlowCalls(grpc::ServerContext*, const v1::ListSlowCallsRequest*,
                             v1::ListSlowCallsResponse*) override;
  grpc::Status GetSlowCall(grpc::ServerContext*, const v1::GetSlowCallRequest*,
                           v1::GetSlowCallResponse*) override;
  grpc::Status WatchSlowCalls(grpc::ServerContext*, const v1::WatchSlowCallsRequest*,
                              grpc::ServerWriter<v1::WatchSlowCallsResponse>*) override;
  grpc::Status GetConfig(grpc::ServerContext*, const v1::GetConfigRequest*,
                         v1::GetConfigResponse*) override;
  grpc::Status CheckConfig(grpc::ServerContext*, const v1::CheckConfigRequest*,
                           v1::CheckConfigResponse*) override;

  grpc::Status note(const char* method, const google::protobuf::Message& request);
  template <typename Row>
  void fill_page(const v1::Page& page, const std::vector<Row>& rows,
                 google::protobuf::RepeatedPtrField<Row>* out, std::string* next_token) const;

  TempFolder folder_;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
  bool started_ = false;
  mutable std::mutex mutex_;
  std::vector<std::string> requests_;  // guarded by mutex_
};

// Answers that look like a small GPU host, for tests of what is shown.
FakeAnswers make_example_answers();

}  // namespace gpuperf::client
