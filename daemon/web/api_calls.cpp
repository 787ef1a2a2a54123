#include "daemon/web/api_calls.h"

#include <google/protobuf/util/json_util.h>

#include <chrono>
#include <utility>

#include "daemon/web/query.h"

namespace gpuperf {
namespace {

using std::chrono::system_clock;

constexpr std::chrono::seconds kAnswerTimeout{10};

Status from_grpc(const grpc::Status& status) {
  return {static_cast<absl::StatusCode>(status.error_code()), status.error_message()};
}

template <typename Stub, typename Request, typename Response>
Result<std::string> ask(Stub& stub,
                        grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                     Response*),
                        const std::string& request_json) {
  Request request;
  RETURN_IF_ERROR(parse_json(request_json, request));
  grpc::ClientContext context;
  context.set_deadline(system_clock::now() + kAnswerTimeout);
  Response response;
  RETURN_IF_ERROR(from_grpc((stub.*method)(&context, request, &response)));
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  const auto printed = google::protobuf::util::MessageToJsonString(response, &json, options);
  if (!printed.ok()) return absl::InternalError("print JSON: " + printed.ToString());
  return json;
}

template <auto kMethod>
Result<std::string> observe(const ApiStubs& stubs, const std::string& request_json) {
  return ask(*stubs.observe, kMethod, request_json);
}
template <auto kMethod>
Result<std::string> control(const ApiStubs& stubs, const std::string& request_json) {
  return ask(*stubs.control, kMethod, request_json);
}

using Observe = v1::Observe::Stub;
using Control = v1::Control::Stub;

constexpr ApiCall kCalls[] = {
    {"status", Access::kRead, observe<&Observe::GetStatus>},
    {"processes", Access::kRead, observe<&Observe::ListProcesses>},
    {"probes", Access::kRead, observe<&Observe::ListProbes>},
    {"functions", Access::kRead, observe<&Observe::ListFunctions>},
    {"in_flight", Access::kRead, observe<&Observe::ListInFlightCalls>},
    {"shapes", Access::kRead, observe<&Observe::ListShapes>},
    {"kernels", Access::kRead, observe<&Observe::ListKernels>},
    {"sessions", Access::kRead, observe<&Observe::ListSessions>},
    {"gpus", Access::kRead, observe<&Observe::ListGpus>},
    {"memory", Access::kRead, observe<&Observe::ListMemory>},
    {"out_of_memory", Access::kRead, observe<&Observe::ListOutOfMemory>},
    {"nccl", Access::kRead, observe<&Observe::ListNccl>},
    {"slow_calls", Access::kRead, observe<&Observe::ListSlowCalls>},
    {"slow_call", Access::kRead, observe<&Observe::GetSlowCall>},
    {"captures", Access::kRead, observe<&Observe::ListCaptures>},
    {"capture", Access::kRead, observe<&Observe::GetCapture>},
    {"capture_summary", Access::kRead, observe<&Observe::SummariseCapture>},
    {"capture_explanation", Access::kRead, observe<&Observe::ExplainCapture>},
    {"set_overhead_demand", Access::kChange, control<&Control::SetOverheadDemand>},
    {"start_capture", Access::kChange, control<&Control::StartCapture>},
    {"stop_capture", Access::kChange, control<&Control::StopCapture>},
    {"freeze_recorder", Access::kChange, control<&Control::FreezeRecorder>},
    {"delete_capture", Access::kChange, control<&Control::DeleteCapture>},
};

}  // namespace

std::span<const ApiCall> list_api_calls() { return kCalls; }

Result<FetchedView> fetch_view(const ApiStubs& stubs, const v1::FetchCaptureRequest& request) {
  grpc::ClientContext context;
  context.set_deadline(system_clock::now() + kViewTimeout);
  const auto stream = stubs.observe->FetchCapture(&context, request);
  FetchedView view;
  bool is_too_large = false;
  for (v1::FetchCaptureResponse piece; !is_too_large && stream->Read(&piece);) {
    is_too_large = std::max<uint64_t>(piece.total_bytes(), view.bytes.size()) > kMaxViewBytes;
    if (!piece.media_type().empty()) view.media_type = piece.media_type();
    view.bytes += piece.data();
  }
  if (is_too_large) context.TryCancel();
  const grpc::Status ended = stream->Finish();
  if (is_too_large) {
    return absl::ResourceExhaustedError(
        "more than 64 MiB in this form, too much for a browser; gpuperfctl trace fetches it into "
        "a file, and a shorter capture is smaller");
  }
  RETURN_IF_ERROR(from_grpc(ended));
  return view;
}

}  // namespace gpuperf
