#pragma once

#include <grpcpp/grpcpp.h>

#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gpuperf/v1/control.grpc.pb.h"
#include "gpuperf/v1/observe.grpc.pb.h"
#include "tests/unit/files.h"
#include "tests/unit/throwaway_ca.h"

namespace gpuperf::client {

// What the daemon answers. It restricts nothing, it only remembers what it
// was asked, because filtering is the daemon's work and asking is the client's.
struct FakeAnswers {
  v1::GetStatusResponse status;
  std::vector<v1::FunctionStats> functions;
  std::vector<v1::Process> processes;
  std::vector<v1::Probe> probes;
  std::vector<v1::SlowCall> slow_calls;
  std::vector<v1::InFlightCall> in_flight_calls;
  uint64_t look_age_ns = 1'200'000'000;
  std::vector<v1::Shape> shapes;
  std::vector<v1::KernelStats> kernels;
  std::vector<v1::Session> sessions;
  std::vector<v1::StepProcess> step_processes;
  std::vector<v1::Step> steps;
  std::vector<v1::StepOperator> operators;
  std::vector<v1::ExpertLayer> expert_layers;
  std::vector<v1::RequestProcess> request_processes;
  std::vector<v1::Request> requests;
  v1::GetStepResponse step;
  v1::ListGpusResponse gpus;
  std::vector<v1::ProcessMemory> memory;
  std::vector<v1::OutOfMemory> out_of_memory;
  v1::ListNcclResponse nccl;
  v1::GetConfigResponse config;
  v1::CheckConfigResponse check;
  std::vector<v1::WatchSlowCallsResponse> watch;  // sent at once; then the stream stays open
  bool watch_ends = false;                        // with OK, after the messages
  // Every answer to ListFunctions has so many calls of each function more than the one before, a
  // microsecond each, and so many bytes, and shows a moment 0.1 s later.
  uint64_t calls_between_answers = 0;
  uint64_t bytes_between_answers = 0;
  std::vector<v1::Capture> captures;
  v1::Recorder recorder;
  v1::CaptureMatches matches;
  // GetCapture is answered so often with "running" before the capture is as it is in `captures`.
  int running_answers = 0;
  std::string fetched = "form";  // of every FetchCapture
  std::vector<v1::CaptureWorkRow> work_rows;
  v1::ExplainCaptureResponse explanation;
  std::vector<v1::CaptureDiffRow> diff_rows;
  v1::ProbeChange change;  // of every call to Control that changes probes
  uint32_t told_sessions = 1;
  std::vector<v1::Attachment> attachments;  // in lists, and of their pids when asked for
  grpc::Status control_failure = grpc::Status::OK;
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

  // Serves on the socket. Later calls do nothing. The answers may not change after the first.
  void start() { start(address_, grpc::InsecureServerCredentials()); }
  // Over TCP, for clients that show a certificate.
  void start_tcp(const ThrowawayCa& ca);
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
  grpc::Status ListInFlightCalls(grpc::ServerContext*, const v1::ListInFlightCallsRequest*,
                                 v1::ListInFlightCallsResponse*) override;
  grpc::Status ListShapes(grpc::ServerContext*, const v1::ListShapesRequest*,
                          v1::ListShapesResponse*) override;
  grpc::Status ListKernels(grpc::ServerContext*, const v1::ListKernelsRequest*,
                           v1::ListKernelsResponse*) override;
  grpc::Status ListSessions(grpc::ServerContext*, const v1::ListSessionsRequest*,
                            v1::ListSessionsResponse*) override;
  grpc::Status ListNccl(grpc::ServerContext*, const v1::ListNcclRequest*,
                        v1::ListNcclResponse*) override;
  grpc::Status ListStepProcesses(grpc::ServerContext*, const v1::ListStepProcessesRequest*,
                                 v1::ListStepProcessesResponse*) override;
  grpc::Status ListSteps(grpc::ServerContext*, const v1::ListStepsRequest*,
                         v1::ListStepsResponse*) override;
  grpc::Status ListStepOperators(grpc::ServerContext*, const v1::ListStepOperatorsRequest*,
                                 v1::ListStepOperatorsResponse*) override;
  grpc::Status ListStepExperts(grpc::ServerContext*, const v1::ListStepExpertsRequest*,
                               v1::ListStepExpertsResponse*) override;
  grpc::Status ListRequestProcesses(grpc::ServerContext*, const v1::ListRequestProcessesRequest*,
                                    v1::ListRequestProcessesResponse*) override;
  grpc::Status ListRequests(grpc::ServerContext*, const v1::ListRequestsRequest*,
                            v1::ListRequestsResponse*) override;
  grpc::Status GetStep(grpc::ServerContext*, const v1::GetStepRequest*,
                       v1::GetStepResponse*) override;
  grpc::Status ListGpus(grpc::ServerContext*, const v1::ListGpusRequest*,
                        v1::ListGpusResponse*) override;
  grpc::Status ListMemory(grpc::ServerContext*, const v1::ListMemoryRequest*,
                          v1::ListMemoryResponse*) override;
  grpc::Status ListOutOfMemory(grpc::ServerContext*, const v1::ListOutOfMemoryRequest*,
                               v1::ListOutOfMemoryResponse*) override;
  grpc::Status ListCaptures(grpc::ServerContext*, const v1::ListCapturesRequest*,
                            v1::ListCapturesResponse*) override;
  grpc::Status GetCapture(grpc::ServerContext*, const v1::GetCaptureRequest*,
                          v1::GetCaptureResponse*) override;
  grpc::Status FetchCapture(grpc::ServerContext*, const v1::FetchCaptureRequest*,
                            grpc::ServerWriter<v1::FetchCaptureResponse>*) override;
  grpc::Status SummariseCapture(grpc::ServerContext*, const v1::SummariseCaptureRequest*,
                                v1::SummariseCaptureResponse*) override;
  grpc::Status ExplainCapture(grpc::ServerContext*, const v1::ExplainCaptureRequest*,
                              v1::ExplainCaptureResponse*) override;
  grpc::Status DiffCaptures(grpc::ServerContext*, const v1::DiffCapturesRequest*,
                            v1::DiffCapturesResponse*) override;
  grpc::Status GetConfig(grpc::ServerContext*, const v1::GetConfigRequest*,
                         v1::GetConfigResponse*) override;
  grpc::Status CheckConfig(grpc::ServerContext*, const v1::CheckConfigRequest*,
                           v1::CheckConfigResponse*) override;

  // Its other service.
  class Control final : public v1::Control::Service {
   public:
    explicit Control(FakeDaemon& daemon) : daemon_(daemon) {}

   private:
    grpc::Status ReloadConfig(grpc::ServerContext*, const v1::ReloadConfigRequest*,
                              v1::ReloadConfigResponse*) override;
    grpc::Status AddProbe(grpc::ServerContext*, const v1::AddProbeRequest*,
                          v1::AddProbeResponse*) override;
    grpc::Status RemoveProbe(grpc::ServerContext*, const v1::RemoveProbeRequest*,
                             v1::RemoveProbeResponse*) override;
    grpc::Status EnableProbes(grpc::ServerContext*, const v1::EnableProbesRequest*,
                              v1::EnableProbesResponse*) override;
    grpc::Status DisableProbes(grpc::ServerContext*, const v1::DisableProbesRequest*,
                               v1::DisableProbesResponse*) override;
    grpc::Status SetSlowThreshold(grpc::ServerContext*, const v1::SetSlowThresholdRequest*,
                                  v1::SetSlowThresholdResponse*) override;
    grpc::Status SetOverheadDemand(grpc::ServerContext*, const v1::SetOverheadDemandRequest*,
                                   v1::SetOverheadDemandResponse*) override;
    grpc::Status SetSession(grpc::ServerContext*, const v1::SetSessionRequest*,
                            v1::SetSessionResponse*) override;
    grpc::Status AttachProcess(grpc::ServerContext*, const v1::AttachProcessRequest*,
                               v1::AttachProcessResponse*) override;
    grpc::Status DetachProcess(grpc::ServerContext*, const v1::DetachProcessRequest*,
                               v1::DetachProcessResponse*) override;
    grpc::Status ListAttachable(grpc::ServerContext*, const v1::ListAttachableRequest*,
                                v1::ListAttachableResponse*) override;
    // What the answers say of that process.
    grpc::Status change_attachment(const char* method, const google::protobuf::Message& request,
                                   uint32_t pid, v1::Attachment* attachment);
    grpc::Status StartCapture(grpc::ServerContext*, const v1::StartCaptureRequest*,
                              v1::StartCaptureResponse*) override;
    grpc::Status StopCapture(grpc::ServerContext*, const v1::StopCaptureRequest*,
                             v1::StopCaptureResponse*) override;
    grpc::Status FreezeRecorder(grpc::ServerContext*, const v1::FreezeRecorderRequest*,
                                v1::FreezeRecorderResponse*) override;
    grpc::Status DeleteCapture(grpc::ServerContext*, const v1::DeleteCaptureRequest*,
                               v1::DeleteCaptureResponse*) override;
    // The first of the captures, as it begins.
    grpc::Status begin(const char* method, const google::protobuf::Message& request,
                       v1::Capture* capture);

    FakeDaemon& daemon_;
  };

  grpc::Status note(const char* method, const google::protobuf::Message& request);
  grpc::Status note_change(const char* method, const google::protobuf::Message& request,
                           v1::ProbeChange* change);
  void start(const std::string& listen,
             const std::shared_ptr<grpc::ServerCredentials>& credentials);
  template <typename Row>
  void fill_page(const v1::Page& page, const std::vector<Row>& rows,
                 google::protobuf::RepeatedPtrField<Row>* out, std::string* next_token) const;

  TempFolder folder_;
  std::string address_;
  Control control_{*this};
  std::unique_ptr<grpc::Server> server_;
  bool started_ = false;
  mutable std::mutex mutex_;
  std::vector<std::string> requests_;  // guarded by mutex_
  uint64_t function_answers_ = 0;      // guarded by mutex_
  int capture_answers_ = 0;            // guarded by mutex_
};

// Answers that look like a small GPU host, for tests of what is shown.
FakeAnswers make_example_answers();

}  // namespace gpuperf::client
