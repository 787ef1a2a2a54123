#include "daemon/rpc/observe_service.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <variant>

#include "daemon/rpc/deferred_call.h"
#include "daemon/rpc/function_list.h"
#include "daemon/rpc/gpu_list.h"
#include "daemon/rpc/gpu_to_proto.h"
#include "daemon/rpc/grpc_status.h"
#include "daemon/rpc/kernel_list.h"
#include "daemon/rpc/memory_list.h"
#include "daemon/rpc/nccl_list.h"
#include "daemon/rpc/request_list.h"
#include "daemon/rpc/row_filter.h"
#include "daemon/rpc/session_list.h"
#include "daemon/rpc/shape_list.h"
#include "daemon/rpc/step_list.h"
#include "daemon/rpc/step_operator_list.h"
#include "daemon/rpc/to_proto.h"
#include "daemon/rpc/watch_stream.h"
#include "daemon/store/capture_proto.h"

namespace gpuperf {
namespace {

constexpr size_t kMaxConfigBytes = size_t{1024} * 1024;  // as the proto says
// gRPC clients refuse messages over 4 MiB unless told otherwise; one row more still fits.
constexpr size_t kPageBytes = size_t{3} * 1024 * 1024;

using ListPlace = SnapshotPages::Place;

// Everything of a list's request but the page: what its tokens are bound to.
template <typename Request>
std::string make_request_key(Request request) {
  request.clear_page();
  return Request::descriptor()->name() + ":" + request.SerializeAsString();
}

// A page of `items` from the place on, as many as it takes, and the token of the next.
template <typename Item, typename Response, typename Row, typename ToRow = std::identity>
void fill_page(SnapshotPages& pages, const SnapshotPages::Place& place, const v1::Page& page,
               std::string_view request_key, const std::vector<Item>& items, Response& response,
               google::protobuf::RepeatedPtrField<Row>& rows, ToRow to_row = {}) {
  uint64_t offset = place.offset;
  const uint64_t end = std::min<uint64_t>(items.size(), offset + SnapshotPages::get_limit(page));
  size_t bytes = 0;
  for (; offset < end && bytes < kPageBytes; ++offset) {
    Row& row = *rows.Add();
    row = to_row(items[offset]);
    bytes += row.ByteSizeLong();
  }
  if (offset < items.size()) {
    response.set_next_page_token(pages.make_token(place, offset, request_key));
  }
}

// A page of what `list` makes of the snapshot that the page belongs to.
template <typename Request, typename Response, typename Row, typename List>
Status list_page(SnapshotPages& pages, const Request& request, Response& response,
                 google::protobuf::RepeatedPtrField<Row>& rows, List list) {
  const std::string key = make_request_key(request);
  ASSIGN_OR_RETURN(const ListPlace place, pages.find_place(request.page(), key));
  const std::vector<Row> all = list(*place.snapshot);
  fill_page(pages, place, request.page(), key, all, response, rows);
  return absl::OkStatus();
}

// Has `read` done by the queue, and answers with it.
template <typename Response, typename Read>
grpc::ServerUnaryReactor* start_slow_read(RenderQueue& queue, bool is_root, AnswerBudget& budget,
                                          Response* response, Read read) {
  const auto call = DeferredCall<Response>::make(
      "given up", budget, *response, [response](const Response& answer) { *response = answer; });
  Result<RenderQueue::Place> place = queue.take_place(is_root);
  if (!place.ok()) {
    call->answer(place.status());
    return call.get();
  }
  queue.post([call, read = std::move(read), place = *std::move(place)] {
    if (!call->is_answered()) call->answer(read());
  });
  return call.get();
}

}  // namespace

ObserveService::ObserveService(ObserveSources sources, RenderQueue& queue, AnswerBudget& budget,
                               bool is_root)
    : sources_(std::move(sources)),
      queue_(queue),
      budget_(budget),
      is_root_(is_root),
      pages_(sources_.board, sources_.clock) {}

Status ObserveService::list_processes(const v1::ListProcessesRequest& request,
                                      v1::ListProcessesResponse& response) {
  const std::string key = make_request_key(request);
  ASSIGN_OR_RETURN(const ListPlace place, pages_.find_place(request.page(), key));
  const std::vector<ProcessRow> rows =
      gpuperf::list_processes(*place.snapshot, RowFilter(request.filter()));
  auto sessions = get_session_states(place.snapshot->gpu);
  std::map<ProcessKey, OverheadRow, ProcessOrder> overhead;
  for (const OverheadRow& row : place.snapshot->overhead) overhead[row.process] = row;
  fill_page(pages_, place, request.page(), key, rows, response, *response.mutable_processes(),
            [&](const ProcessRow& row) {
              return to_proto(row, overhead[row.process], sessions[row.process]);
            });
  return absl::OkStatus();
}

Status ObserveService::list_probes(const v1::ListProbesRequest& request,
                                   v1::ListProbesResponse& response) {
  const std::string key = make_request_key(request);
  ASSIGN_OR_RETURN(const ListPlace place, pages_.find_place(request.page(), key));
  if (place.snapshot->probes == nullptr) return absl::OkStatus();
  const RowFilter filter(request.filter());
  std::vector<const ProbeRow*> rows;
  for (const ProbeRow& row : place.snapshot->probes->probes) {
    if (filter.matches_function(row.category, row.function)) rows.push_back(&row);
  }
  fill_page(pages_, place, request.page(), key, rows, response, *response.mutable_probes(),
            [&](const ProbeRow* row) {
              return to_proto(*row, get_adaptive_threshold_ns(*place.snapshot, row->function_id));
            });
  return absl::OkStatus();
}

Status ObserveService::list_functions(const v1::ListFunctionsRequest& request,
                                      v1::ListFunctionsResponse& response) {
  const std::string key = make_request_key(request);
  ASSIGN_OR_RETURN(const ListPlace place, pages_.find_place(request.page(), key));
  const RowFilter filter(request.filter(), *place.snapshot);
  const auto with_buckets = request.with_buckets() ? WithBuckets::kYes : WithBuckets::kNo;
  std::vector<v1::FunctionStats> rows =
      request.per_process() ? list_per_process(*place.snapshot, filter, with_buckets)
                            : list_summed(*place.snapshot, filter, with_buckets);
  RETURN_IF_ERROR(sort_functions(request.sort(), rows));
  response.set_taken_mono_ns(static_cast<uint64_t>(place.snapshot->totals_mono_ns));
  fill_page(pages_, place, request.page(), key, rows, response, *response.mutable_functions());
  return absl::OkStatus();
}

Status ObserveService::list_in_flight_calls(const v1::ListInFlightCallsRequest& request,
                                            v1::ListInFlightCallsResponse& response) {
  const std::string key = make_request_key(request);
  ASSIGN_OR_RETURN(const ListPlace place, pages_.find_place(request.page(), key));
  const Snapshot& snapshot = *place.snapshot;
  if (snapshot.in_flight == nullptr) return absl::OkStatus();
  const InFlightCalls& look = *snapshot.in_flight;
  const RowFilter filter(request.filter());
  std::vector<v1::InFlightCall> calls;
  for (const InFlightCall& call : look.calls) {
    const Function* function = find_function(snapshot, call.function_id);
    const Owner& owner = get_owner(snapshot, call.process);
    const uint64_t age_ns = get_age_ns(look, call);
    if (function != nullptr && filter.matches_function(function->category, function->name) &&
        filter.matches(call.process) && filter.matches(owner) && filter.matches_age(age_ns)) {
      calls.push_back(to_proto(*function, call, owner, age_ns));
    }
  }
  std::ranges::stable_sort(calls, std::ranges::greater(), &v1::InFlightCall::age_ns);
  fill_page(pages_, place, request.page(), key, calls, response, *response.mutable_calls());
  const auto now_ns = static_cast<uint64_t>(sources_.clock.mono_ns());
  response.set_look_age_ns(now_ns - std::min(now_ns, look.look_mono_ns));
  return absl::OkStatus();
}

Status ObserveService::list_shapes(const v1::ListShapesRequest& request,
                                   v1::ListShapesResponse& response) {
  const std::string key = make_request_key(request);
  ASSIGN_OR_RETURN(const ListPlace place, pages_.find_place(request.page(), key));
  ASSIGN_OR_RETURN(
      const std::vector<v1::Shape> shapes,
      gpuperf::list_shapes(*place.snapshot, RowFilter(request.filter(), *place.snapshot),
                           request.sort()));
  fill_page(pages_, place, request.page(), key, shapes, response, *response.mutable_shapes());
  return absl::OkStatus();
}

Status ObserveService::list_kernels(const v1::ListKernelsRequest& request,
                                    v1::ListKernelsResponse& response) {
  const std::string key = make_request_key(request);
  ASSIGN_OR_RETURN(const ListPlace place, pages_.find_place(request.page(), key));
  ASSIGN_OR_RETURN(
      const std::vector<v1::KernelStats> rows,
      gpuperf::list_kernels(*place.snapshot, RowFilter(request.filter(), *place.snapshot),
                            request.sort(), request.per_process()));
  response.set_taken_mono_ns(static_cast<uint64_t>(place.snapshot->taken_mono_ns));
  fill_page(pages_, place, request.page(), key, rows, response, *response.mutable_kernels());
  return absl::OkStatus();
}

Status ObserveService::list_sessions(const v1::ListSessionsRequest& request,
                                     v1::ListSessionsResponse& response) {
  const std::string key = make_request_key(request);
  ASSIGN_OR_RETURN(const ListPlace place, pages_.find_place(request.page(), key));
  const std::vector<v1::Session> rows =
      gpuperf::list_sessions(*place.snapshot, RowFilter(request.filter()), request.include_closed(),
                             sources_.clock.mono_ns());
  if (place.offset == 0) {
    for (const GpuActivity& activity : place.snapshot->gpu.activity) {
      *response.add_activity() = to_proto(activity);
    }
  }
  fill_page(pages_, place, request.page(), key, rows, response, *response.mutable_sessions());
  return absl::OkStatus();
}

Status ObserveService::list_captures(const v1::ListCapturesRequest& request,
                                     v1::ListCapturesResponse& response) {
  const std::string key = make_request_key(request);
  ASSIGN_OR_RETURN(const ListPlace place, pages_.find_place(request.page(), key));
  std::vector<CaptureRow> rows = place.snapshot->captures;
  std::ranges::reverse(rows);
  *response.mutable_recorder() = to_proto(place.snapshot->recorder);
  fill_page(pages_, place, request.page(), key, rows, response, *response.mutable_captures(),
            [](const CaptureRow& row) { return to_proto(row); });
  return absl::OkStatus();
}

// Of a call whose answer is in the response, or that has failed.
grpc::ServerUnaryReactor* ObserveService::answer(const Status& status,
                                                 google::protobuf::Message* response) const {
  const auto call = DeferredCall<std::monostate>::make("given up", budget_, *response, [](auto) {});
  if (status.ok()) {
    call->answer(std::monostate());
  } else {
    call->answer(status);
  }
  return call.get();
}

SlowCallSources ObserveService::get_slow_call_sources() const {
  return {.snapshot = sources_.board.get(), .store = sources_.store};
}

Status ObserveService::check_config(std::string_view text,
                                    v1::CheckConfigResponse& response) const {
  if (text.size() > kMaxConfigBytes) {
    return absl::ResourceExhaustedError(fmt::format(
        "json: {} bytes; a configuration has at most {}", text.size(), kMaxConfigBytes));
  }
  for (const ConfigError& error : sources_.check_config(text)) {
    *response.add_errors() = to_proto(error);
  }
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* ObserveService::GetStatus(grpc::CallbackServerContext*,
                                                    const v1::GetStatusRequest*,
                                                    v1::GetStatusResponse* response) {
  *response = to_proto(*sources_.board.get(), sources_.drops, sources_.clock.mono_ns());
  return answer(absl::OkStatus(), response);
}

grpc::ServerUnaryReactor* ObserveService::ListProcesses(grpc::CallbackServerContext*,
                                                        const v1::ListProcessesRequest* request,
                                                        v1::ListProcessesResponse* response) {
  return answer(list_processes(*request, *response), response);
}

grpc::ServerUnaryReactor* ObserveService::ListProbes(grpc::CallbackServerContext*,
                                                     const v1::ListProbesRequest* request,
                                                     v1::ListProbesResponse* response) {
  return answer(list_probes(*request, *response), response);
}

grpc::ServerUnaryReactor* ObserveService::ListFunctions(grpc::CallbackServerContext*,
                                                        const v1::ListFunctionsRequest* request,
                                                        v1::ListFunctionsResponse* response) {
  return answer(list_functions(*request, *response), response);
}

grpc::ServerUnaryReactor* ObserveService::ListSlowCalls(grpc::CallbackServerContext*,
                                                        const v1::ListSlowCallsRequest* request,
                                                        v1::ListSlowCallsResponse* response) {
  return answer(list_slow_calls(get_slow_call_sources(), *request, *response), response);
}

grpc::ServerUnaryReactor* ObserveService::ListInFlightCalls(
    grpc::CallbackServerContext*, const v1::ListInFlightCallsRequest* request,
    v1::ListInFlightCallsResponse* response) {
  return answer(list_in_flight_calls(*request, *response), response);
}

grpc::ServerUnaryReactor* ObserveService::ListShapes(grpc::CallbackServerContext*,
                                                     const v1::ListShapesRequest* request,
                                                     v1::ListShapesResponse* response) {
  return answer(list_shapes(*request, *response), response);
}

grpc::ServerUnaryReactor* ObserveService::ListKernels(grpc::CallbackServerContext*,
                                                      const v1::ListKernelsRequest* request,
                                                      v1::ListKernelsResponse* response) {
  return answer(list_kernels(*request, *response), response);
}

grpc::ServerUnaryReactor* ObserveService::ListSessions(grpc::CallbackServerContext*,
                                                       const v1::ListSessionsRequest* request,
                                                       v1::ListSessionsResponse* response) {
  return answer(list_sessions(*request, *response), response);
}

grpc::ServerUnaryReactor* ObserveService::ListStepProcesses(
    grpc::CallbackServerContext*, const v1::ListStepProcessesRequest* request,
    v1::ListStepProcessesResponse* response) {
  return answer(list_page(pages_, *request, *response, *response->mutable_processes(),
                          [&](const Snapshot& snapshot) {
                            return list_step_processes(snapshot, RowFilter(request->filter()));
                          }),
                response);
}

grpc::ServerUnaryReactor* ObserveService::ListSteps(grpc::CallbackServerContext*,
                                                    const v1::ListStepsRequest* request,
                                                    v1::ListStepsResponse* response) {
  return answer(list_page(pages_, *request, *response, *response->mutable_steps(),
                          [&](const Snapshot& snapshot) {
                            return list_steps(snapshot, sources_.clock, request->filter(),
                                              request->slow_only());
                          }),
                response);
}

grpc::ServerUnaryReactor* ObserveService::ListStepOperators(
    grpc::CallbackServerContext*, const v1::ListStepOperatorsRequest* request,
    v1::ListStepOperatorsResponse* response) {
  return answer(list_page(pages_, *request, *response, *response->mutable_operators(),
                          [&](const Snapshot& snapshot) {
                            return list_step_operators(snapshot, RowFilter(request->filter()));
                          }),
                response);
}

grpc::ServerUnaryReactor* ObserveService::ListStepExperts(grpc::CallbackServerContext*,
                                                          const v1::ListStepExpertsRequest* request,
                                                          v1::ListStepExpertsResponse* response) {
  return answer(list_page(pages_, *request, *response, *response->mutable_layers(),
                          [&](const Snapshot& snapshot) {
                            return list_step_experts(snapshot, RowFilter(request->filter()));
                          }),
                response);
}

grpc::ServerUnaryReactor* ObserveService::ListRequestProcesses(
    grpc::CallbackServerContext*, const v1::ListRequestProcessesRequest* request,
    v1::ListRequestProcessesResponse* response) {
  return answer(list_page(pages_, *request, *response, *response->mutable_processes(),
                          [&](const Snapshot& snapshot) {
                            return list_request_processes(snapshot, request->filter());
                          }),
                response);
}

grpc::ServerUnaryReactor* ObserveService::ListRequests(grpc::CallbackServerContext*,
                                                       const v1::ListRequestsRequest* request,
                                                       v1::ListRequestsResponse* response) {
  return answer(list_page(pages_, *request, *response, *response->mutable_requests(),
                          [&](const Snapshot& snapshot) {
                            return list_requests(snapshot, sources_.clock, request->filter(),
                                                 request->slow_only());
                          }),
                response);
}

grpc::ServerUnaryReactor* ObserveService::GetStep(grpc::CallbackServerContext*,
                                                  const v1::GetStepRequest* request,
                                                  v1::GetStepResponse* response) {
  return answer(get_step(*sources_.board.get(), sources_.clock, request->id(), *response),
                response);
}

grpc::ServerUnaryReactor* ObserveService::ListGpus(grpc::CallbackServerContext*,
                                                   const v1::ListGpusRequest*,
                                                   v1::ListGpusResponse* response) {
  *response = list_gpus(*sources_.board.get(), sources_.clock.mono_ns());
  return answer(absl::OkStatus(), response);
}

grpc::ServerUnaryReactor* ObserveService::ListMemory(grpc::CallbackServerContext*,
                                                     const v1::ListMemoryRequest* request,
                                                     v1::ListMemoryResponse* response) {
  return answer(list_page(pages_, *request, *response, *response->mutable_processes(),
                          [&](const Snapshot& snapshot) {
                            return list_memory(snapshot, RowFilter(request->filter()),
                                               request->with_sites(), request->only_leaks());
                          }),
                response);
}

grpc::ServerUnaryReactor* ObserveService::ListOutOfMemory(grpc::CallbackServerContext*,
                                                          const v1::ListOutOfMemoryRequest* request,
                                                          v1::ListOutOfMemoryResponse* response) {
  return answer(list_page(pages_, *request, *response, *response->mutable_incidents(),
                          [&](const Snapshot& snapshot) {
                            return list_out_of_memory(snapshot, RowFilter(request->filter()));
                          }),
                response);
}

grpc::ServerUnaryReactor* ObserveService::ListNccl(grpc::CallbackServerContext*,
                                                   const v1::ListNcclRequest* request,
                                                   v1::ListNcclResponse* response) {
  return answer(list_page(pages_, *request, *response, *response->mutable_communicators(),
                          [&](const Snapshot& snapshot) {
                            return list_nccl(snapshot, RowFilter(request->filter()),
                                             sources_.clock.mono_ns());
                          }),
                response);
}

grpc::ServerUnaryReactor* ObserveService::GetSlowCall(grpc::CallbackServerContext*,
                                                      const v1::GetSlowCallRequest* request,
                                                      v1::GetSlowCallResponse* response) {
  return answer(
      get_slow_call(get_slow_call_sources(), request->id(), *response->mutable_slow_call()),
      response);
}

grpc::ServerWriteReactor<v1::WatchSlowCallsResponse>* ObserveService::WatchSlowCalls(
    grpc::CallbackServerContext*, const v1::WatchSlowCallsRequest* request) {
  return WatchStream::start(sources_.watch, request->filter());
}

grpc::ServerUnaryReactor* ObserveService::ListCaptures(grpc::CallbackServerContext*,
                                                       const v1::ListCapturesRequest* request,
                                                       v1::ListCapturesResponse* response) {
  return answer(list_captures(*request, *response), response);
}

grpc::ServerUnaryReactor* ObserveService::GetCapture(grpc::CallbackServerContext*,
                                                     const v1::GetCaptureRequest* request,
                                                     v1::GetCaptureResponse* response) {
  return answer(get_capture(get_capture_sources(), request->id(), *response), response);
}

grpc::ServerWriteReactor<v1::FetchCaptureResponse>* ObserveService::FetchCapture(
    grpc::CallbackServerContext* context, const v1::FetchCaptureRequest* request) {
  // A copy: the request is gone once the call is, and the queue may come to it later.
  return FetchStream::start(context, queue_, is_root_, check_fetch(*request),
                            [sources = get_capture_sources(), request = *request] {
                              return render_capture(sources, request);
                            });
}

grpc::ServerUnaryReactor* ObserveService::SummariseCapture(
    grpc::CallbackServerContext*, const v1::SummariseCaptureRequest* request,
    v1::SummariseCaptureResponse* response) {
  return start_slow_read(queue_, is_root_, budget_, response,
                         [sources = get_capture_sources(), request = *request] {
                           return summarise_capture(sources, request);
                         });
}

grpc::ServerUnaryReactor* ObserveService::ExplainCapture(grpc::CallbackServerContext*,
                                                         const v1::ExplainCaptureRequest* request,
                                                         v1::ExplainCaptureResponse* response) {
  return start_slow_read(queue_, is_root_, budget_, response,
                         [sources = get_capture_sources(), request = *request] {
                           return explain_stored_capture(sources, request);
                         });
}

grpc::ServerUnaryReactor* ObserveService::DiffCaptures(grpc::CallbackServerContext*,
                                                       const v1::DiffCapturesRequest* request,
                                                       v1::DiffCapturesResponse* response) {
  return start_slow_read(queue_, is_root_, budget_, response,
                         [sources = get_capture_sources(), request = *request] {
                           return diff_stored_captures(sources, request);
                         });
}

grpc::ServerUnaryReactor* ObserveService::GetConfig(grpc::CallbackServerContext*,
                                                    const v1::GetConfigRequest*,
                                                    v1::GetConfigResponse* response) {
  const std::shared_ptr<const Snapshot> snapshot = sources_.board.get();
  if (snapshot->daemon != nullptr) *response = to_proto(*snapshot->daemon);
  return answer(absl::OkStatus(), response);
}

grpc::ServerUnaryReactor* ObserveService::CheckConfig(grpc::CallbackServerContext*,
                                                      const v1::CheckConfigRequest* request,
                                                      v1::CheckConfigResponse* response) {
  return answer(check_config(request->json(), *response), response);
}

}  // namespace gpuperf
