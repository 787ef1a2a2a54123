#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/config/config.h"
#include "daemon/model/drops.h"
#include "daemon/model/snapshot.h"
#include "daemon/rpc/answer_budget.h"
#include "daemon/rpc/capture_reads.h"
#include "daemon/rpc/render_queue.h"
#include "daemon/rpc/slow_call_list.h"
#include "daemon/rpc/snapshot_pages.h"
#include "daemon/rpc/watch_hub.h"
#include "gpuperf/v1/observe.grpc.pb.h"

namespace gpuperf {

// Every error of a configuration text; empty = valid. Called on gRPC's threads, several at once.
using ConfigChecker = std::function<std::vector<ConfigError>(std::string_view text)>;

// What the service reads. All of it must outlive the server.
struct ObserveSources {
  const SnapshotBoard& board;
  DropCounters& drops;  // read; the server counts the connections it refuses
  const Clock& clock;
  WatchHub& watch;
  ConfigChecker check_config;
  SlowCallStore* store = nullptr;          // null = slow calls are in memory only
  const CaptureStore* captures = nullptr;  // null = captures are not stored
};

// Answers gpuperf.v1.Observe from the newest snapshot.
//
// Thread: gRPC's, several at once. Never waits for the loop. What reads a capture's events is done
// on the queue's thread. Bounds: a page has at most the rows asked for and about 3 MiB, so that it
// fits the 4 MiB gRPC clients accept by default; a configuration to check has at most 1 MiB. Not
// here: converting (to_proto), who may call (the socket's mode, Server).
class ObserveService final : public v1::Observe::CallbackService {
 public:
  // The queue and the budget must outlive the server.
  ObserveService(ObserveSources sources, RenderQueue& queue, AnswerBudget& budget, bool is_root);

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest* request,
                                      v1::GetStatusResponse* response) override;
  grpc::ServerUnaryReactor* ListProcesses(grpc::CallbackServerContext* context,
                                          const v1::ListProcessesRequest* request,
                                          v1::ListProcessesResponse* response) override;
  grpc::ServerUnaryReactor* ListProbes(grpc::CallbackServerContext* context,
                                       const v1::ListProbesRequest* request,
                                       v1::ListProbesResponse* response) override;
  grpc::ServerUnaryReactor* ListFunctions(grpc::CallbackServerContext* context,
                                          const v1::ListFunctionsRequest* request,
                                          v1::ListFunctionsResponse* response) override;
  grpc::ServerUnaryReactor* ListSlowCalls(grpc::CallbackServerContext* context,
                                          const v1::ListSlowCallsRequest* request,
                                          v1::ListSlowCallsResponse* response) override;
  grpc::ServerUnaryReactor* GetSlowCall(grpc::CallbackServerContext* context,
                                        const v1::GetSlowCallRequest* request,
                                        v1::GetSlowCallResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchSlowCallsResponse>* WatchSlowCalls(
      grpc::CallbackServerContext* context, const v1::WatchSlowCallsRequest* request) override;
  grpc::ServerUnaryReactor* ListInFlightCalls(grpc::CallbackServerContext* context,
                                              const v1::ListInFlightCallsRequest* request,
                                              v1::ListInFlightCallsResponse* response) override;
  grpc::ServerUnaryReactor* ListShapes(grpc::CallbackServerContext* context,
                                       const v1::ListShapesRequest* request,
                                       v1::ListShapesResponse* response) override;
  grpc::ServerUnaryReactor* ListKernels(grpc::CallbackServerContext* context,
                                        const v1::ListKernelsRequest* request,
                                        v1::ListKernelsResponse* response) override;
  grpc::ServerUnaryReactor* ListSessions(grpc::CallbackServerContext* context,
                                         const v1::ListSessionsRequest* request,
                                         v1::ListSessionsResponse* response) override;
  grpc::ServerUnaryReactor* ListStepProcesses(grpc::CallbackServerContext* context,
                                              const v1::ListStepProcessesRequest* request,
                                              v1::ListStepProcessesResponse* response) override;
  grpc::ServerUnaryReactor* ListSteps(grpc::CallbackServerContext* context,
                                      const v1::ListStepsRequest* request,
                                      v1::ListStepsResponse* response) override;
  grpc::ServerUnaryReactor* ListStepOperators(grpc::CallbackServerContext* context,
                                              const v1::ListStepOperatorsRequest* request,
                                              v1::ListStepOperatorsResponse* response) override;
  grpc::ServerUnaryReactor* ListStepExperts(grpc::CallbackServerContext* context,
                                            const v1::ListStepExpertsRequest* request,
                                            v1::ListStepExpertsResponse* response) override;
  grpc::ServerUnaryReactor* ListRequestProcesses(
      grpc::CallbackServerContext* context, const v1::ListRequestProcessesRequest* request,
      v1::ListRequestProcessesResponse* response) override;
  grpc::ServerUnaryReactor* ListRequests(grpc::CallbackServerContext* context,
                                         const v1::ListRequestsRequest* request,
                                         v1::ListRequestsResponse* response) override;
  grpc::ServerUnaryReactor* GetStep(grpc::CallbackServerContext* context,
                                    const v1::GetStepRequest* request,
                                    v1::GetStepResponse* response) override;
  grpc::ServerUnaryReactor* ListGpus(grpc::CallbackServerContext* context,
                                     const v1::ListGpusRequest* request,
                                     v1::ListGpusResponse* response) override;
  grpc::ServerUnaryReactor* ListMemory(grpc::CallbackServerContext* context,
                                       const v1::ListMemoryRequest* request,
                                       v1::ListMemoryResponse* response) override;
  grpc::ServerUnaryReactor* ListOutOfMemory(grpc::CallbackServerContext* context,
                                            const v1::ListOutOfMemoryRequest* request,
                                            v1::ListOutOfMemoryResponse* response) override;
  grpc::ServerUnaryReactor* ListNccl(grpc::CallbackServerContext* context,
                                     const v1::ListNcclRequest* request,
                                     v1::ListNcclResponse* response) override;
  grpc::ServerUnaryReactor* ListCaptures(grpc::CallbackServerContext* context,
                                         const v1::ListCapturesRequest* request,
                                         v1::ListCapturesResponse* response) override;
  grpc::ServerUnaryReactor* GetCapture(grpc::CallbackServerContext* context,
                                       const v1::GetCaptureRequest* request,
                                       v1::GetCaptureResponse* response) override;
  grpc::ServerWriteReactor<v1::FetchCaptureResponse>* FetchCapture(
      grpc::CallbackServerContext* context, const v1::FetchCaptureRequest* request) override;
  grpc::ServerUnaryReactor* SummariseCapture(grpc::CallbackServerContext* context,
                                             const v1::SummariseCaptureRequest* request,
                                             v1::SummariseCaptureResponse* response) override;
  grpc::ServerUnaryReactor* ExplainCapture(grpc::CallbackServerContext* context,
                                           const v1::ExplainCaptureRequest* request,
                                           v1::ExplainCaptureResponse* response) override;
  grpc::ServerUnaryReactor* DiffCaptures(grpc::CallbackServerContext* context,
                                         const v1::DiffCapturesRequest* request,
                                         v1::DiffCapturesResponse* response) override;
  grpc::ServerUnaryReactor* GetConfig(grpc::CallbackServerContext* context,
                                      const v1::GetConfigRequest* request,
                                      v1::GetConfigResponse* response) override;
  grpc::ServerUnaryReactor* CheckConfig(grpc::CallbackServerContext* context,
                                        const v1::CheckConfigRequest* request,
                                        v1::CheckConfigResponse* response) override;

 private:
  Status list_processes(const v1::ListProcessesRequest& request,
                        v1::ListProcessesResponse& response);
  Status list_probes(const v1::ListProbesRequest& request, v1::ListProbesResponse& response);
  Status list_functions(const v1::ListFunctionsRequest& request,
                        v1::ListFunctionsResponse& response);
  Status list_in_flight_calls(const v1::ListInFlightCallsRequest& request,
                              v1::ListInFlightCallsResponse& response);
  Status list_shapes(const v1::ListShapesRequest& request, v1::ListShapesResponse& response);
  Status list_kernels(const v1::ListKernelsRequest& request, v1::ListKernelsResponse& response);
  Status list_sessions(const v1::ListSessionsRequest& request, v1::ListSessionsResponse& response);
  Status list_captures(const v1::ListCapturesRequest& request, v1::ListCapturesResponse& response);
  grpc::ServerUnaryReactor* answer(const Status& status, google::protobuf::Message* response) const;
  SlowCallSources get_slow_call_sources() const;
  CaptureSources get_capture_sources() const {
    return {.board = sources_.board, .store = sources_.captures};
  }
  Status check_config(std::string_view text, v1::CheckConfigResponse& response) const;

  const ObserveSources sources_;
  RenderQueue& queue_;
  AnswerBudget& budget_;
  const bool is_root_;
  SnapshotPages pages_;
};

}  // namespace gpuperf
