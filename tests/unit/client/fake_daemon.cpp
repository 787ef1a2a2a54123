#include "fake_daemon.h"

#include <google/protobuf/text_format.h>
#include <grpc/grpc.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "tests/unit/client/example_calls.h"

namespace gpuperf::client {
namespace {

v1::FunctionStats make_function(const std::string& category, const std::string& function,
                                uint64_t calls) {
  v1::FunctionStats row;
  row.set_category(category);
  row.set_function(function);
  row.set_calls(calls);
  row.set_total_ns(calls * 5'000);
  row.set_self_ns(calls * 4'000);
  row.set_min_ns(1'200);
  row.set_avg_ns(5'000);
  row.set_p50_ns(4'608);
  row.set_p90_ns(7'168);
  row.set_p99_ns(1'245'184);
  row.set_p999_ns(20'971'520);
  row.set_max_ns(25'000'000);
  row.set_coverage(1);
  return row;
}

v1::Probe make_probe(const std::string& function, v1::ProbeState state, const std::string& reason) {
  v1::Probe row;
  row.set_category("cuda");
  row.set_function(function);
  row.set_symbol(function);
  row.set_state(state);
  row.set_reason(reason);
  if (state == v1::PROBE_STATE_ATTACHED || state == v1::PROBE_STATE_ENTRY_ONLY) {
    row.set_library("/usr/lib/x86_64-linux-gnu/libcudart.so.12");
    row.set_offset_bytes(0x4a2c0);
    row.set_mechanism("session");
  }
  row.set_slow_threshold_ns(100'000'000);
  return row;
}

void add_frame(v1::SlowCall& call, const std::string& symbol, const std::string& module,
               uint64_t address) {
  auto* frame = call.add_user_stack();
  frame->set_symbol(symbol);
  frame->set_module(module);
  frame->set_offset_bytes(address & 0xff);
  frame->set_address(address);
}

v1::SlowCall make_slow_call(uint64_t id, uint64_t duration_ns) {
  v1::SlowCall call;
  call.set_id(id);
  call.set_category("cuda");
  call.set_function("cudaMalloc");
  call.set_pid(4242);
  call.set_tid(4243);
  call.set_comm("python3");
  call.set_start_unix_ns(kStartNs + id * 1'000'000'000);
  call.set_start_mono_ns(5'250'000'000 + id * 1'000'000'000);
  call.set_duration_ns(duration_ns);
  call.set_threshold_ns(100'000'000);
  call.set_reason("absolute");
  call.set_return_value("cudaSuccess");
  for (const auto& [name, value] :
       {std::pair("arg0", "0x7ffd1c20"), std::pair("arg1", "0x100000")}) {
    auto* argument = call.add_arguments();
    argument->set_name(name);
    argument->set_value(value);
  }
  add_frame(call, "cudaMalloc", "/usr/lib/x86_64-linux-gnu/libcudart.so.12", 0x7f12'3404'a2c0);
  add_frame(call, "allocate_weights(int, unsigned long)", "/opt/train/train", 0x5601'0000'1234);
  add_frame(call, "", "/opt/train/train", 0x5601'0000'1100);
  return call;
}

void fill_status(v1::GetStatusResponse& status) {
  status.set_version("0.1.0");
  status.set_pid(812);
  status.set_start_unix_ns(kStartNs);
  status.set_mechanism("session");
  status.set_config_path("/etc/gpuperf/config.json");
  status.set_metrics_address("127.0.0.1:9465");
  status.mutable_probes()->set_attached(412);
  status.mutable_probes()->set_entry_only(3);
  status.mutable_probes()->set_waiting(57);
  status.mutable_probes()->set_symbol_missing(2);
  status.set_processes(2);
  status.set_files(7);
  status.set_calls(1'234'567);
  status.set_slow_calls(12);
  status.set_cpu_ns(3'210'000'000);
  status.set_resident_bytes(47'500'000);
  status.set_kernel("6.18.5");
  status.set_store_path("/var/lib/gpuperf/slow");
  status.set_store_bytes(52'600'000);
}

}  // namespace

FakeAnswers make_example_answers() {
  FakeAnswers answers;
  fill_status(answers.status);
  answers.functions = {make_function("cuda", "cudaLaunchKernel", 1'000'000),
                       make_function("cuda", "cudaMalloc", 4'096),
                       make_function("cublas", "cublasGemmEx", 512)};
  answers.functions[1].set_errors(14);
  answers.functions[1].set_slow_calls(12);
  answers.functions[1].set_in_flight(1);
  auto* error = answers.functions[1].add_error_counts();
  error->set_error("cudaErrorMemoryAllocation");
  error->set_code(2);
  error->set_count(14);
  answers.probes = {make_probe("cudaLaunchKernel", v1::PROBE_STATE_ATTACHED, ""),
                    make_probe("cudaMalloc", v1::PROBE_STATE_ATTACHED, ""),
                    make_probe("cudaMallocAsync", v1::PROBE_STATE_SYMBOL_MISSING,
                               "libcudart.so.11.0 has no such symbol")};
  v1::Process process;
  process.set_pid(4242);
  process.set_start_boot_ns(77'000'000'000);
  process.set_comm("python3");
  process.set_functions(3);
  process.set_calls(1'004'608);
  process.set_slow_calls(12);
  answers.processes = {process};
  process.set_pid(4100);
  process.set_comm("nvidia-smi");
  process.set_calls(9);
  process.set_slow_calls(0);
  process.set_exited(true);
  answers.processes.push_back(process);
  answers.slow_calls = {make_slow_call(17, 250'000'000), make_slow_call(9, 120'000'000)};
  answers.gpus.set_reason("there is no NVIDIA GPU on this host");
  answers.status.set_gpus_reason(answers.gpus.reason());
  answers.config.set_path("/etc/gpuperf/config.json");
  answers.config.set_json("{\"cuda_func_sym\": {\"cudaMalloc\": \"cudaMalloc\"}}\n");
  answers.config.set_effective_json(
      R"({"slow":{"default_threshold_ms":100.0,"stacks":true},"metrics":{"listen":"127.0.0.1:9465"}})");
  return answers;
}

FakeDaemon::FakeDaemon() : address_("unix:" + (folder_ / "api.sock")) {
  grpc_init();  // never undone: the shutdown of gRPC 1.51 may wait 10 s for a poller of its own
}

FakeDaemon::~FakeDaemon() { stop(); }

void FakeDaemon::start_tcp(const ThrowawayCa& ca) {
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = read_file(ca.ca_file());
  options.pem_key_cert_pairs = {{read_file(ca.key_file()), read_file(ca.cert_file())}};
  start("127.0.0.1:0", grpc::SslServerCredentials(options));
}

void FakeDaemon::start(const std::string& listen,
                       const std::shared_ptr<grpc::ServerCredentials>& credentials) {
  if (started_) return;
  started_ = true;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(listen, credentials, &port);
  builder.RegisterService(this);
  builder.RegisterService(&control_);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) throw std::runtime_error("cannot serve on " + address_);
  if (listen != address_) address_ = "127.0.0.1:" + std::to_string(port);
}

void FakeDaemon::stop() {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
  server_.reset();
}

std::vector<std::string> FakeDaemon::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

grpc::Status FakeDaemon::note(const char* method, const google::protobuf::Message& request) {
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  std::string text;
  printer.PrintToString(request, &text);
  while (!text.empty() && text.back() == ' ') text.pop_back();
  const std::lock_guard lock(mutex_);
  requests_.push_back(std::string(method) + ": " + text);
  return answers.failure;
}

template <typename Row>
void FakeDaemon::fill_page(const v1::Page& page, const std::vector<Row>& rows,
                           google::protobuf::RepeatedPtrField<Row>* out,
                           std::string* next_token) const {
  const size_t begin = page.page_token().empty() ? 0 : std::stoul(page.page_token());
  const size_t asked = page.limit() == 0 ? answers.largest_page : page.limit();
  const size_t end = std::min(rows.size(), begin + std::min(asked, answers.largest_page));
  for (size_t i = begin; i < end; ++i) *out->Add() = rows[i];
  if (end < rows.size()) *next_token = std::to_string(end);
  if (answers.repeat_page_token) *next_token = "0";
}

grpc::Status FakeDaemon::GetStatus(grpc::ServerContext*, const v1::GetStatusRequest* request,
                                   v1::GetStatusResponse* response) {
  *response = answers.status;
  return note("GetStatus", *request);
}

grpc::Status FakeDaemon::ListProcesses(grpc::ServerContext*,
                                       const v1::ListProcessesRequest* request,
                                       v1::ListProcessesResponse* response) {
  fill_page(request->page(), answers.processes, response->mutable_processes(),
            response->mutable_next_page_token());
  return note("ListProcesses", *request);
}

grpc::Status FakeDaemon::ListProbes(grpc::ServerContext*, const v1::ListProbesRequest* request,
                                    v1::ListProbesResponse* response) {
  fill_page(request->page(), answers.probes, response->mutable_probes(),
            response->mutable_next_page_token());
  return note("ListProbes", *request);
}

grpc::Status FakeDaemon::ListFunctions(grpc::ServerContext*,
                                       const v1::ListFunctionsRequest* request,
                                       v1::ListFunctionsResponse* response) {
  fill_page(request->page(), answers.functions, response->mutable_functions(),
            response->mutable_next_page_token());
  {
    const std::lock_guard lock(mutex_);
    const uint64_t more = answers.calls_between_answers * ++function_answers_;
    const uint64_t more_bytes = answers.bytes_between_answers * function_answers_;
    for (v1::FunctionStats& row : *response->mutable_functions()) {
      row.set_calls(row.calls() + more);
      row.set_total_ns(row.total_ns() + 1'000 * more);
      row.set_bytes(row.bytes() + more_bytes);
      if (!request->with_buckets() || more == 0) continue;
      v1::DurationBucket& bucket = *row.add_buckets();
      bucket.set_duration_ns(1'024);
      bucket.set_calls(more);
    }
    response->set_taken_mono_ns(100'000'000 * function_answers_);
  }
  return note("ListFunctions", *request);
}

grpc::Status FakeDaemon::ListSlowCalls(grpc::ServerContext*,
                                       const v1::ListSlowCallsRequest* request,
                                       v1::ListSlowCallsResponse* response) {
  fill_page(request->page(), answers.slow_calls, response->mutable_slow_calls(),
            response->mutable_next_page_token());
  return note("ListSlowCalls", *request);
}

grpc::Status FakeDaemon::GetSlowCall(grpc::ServerContext*, const v1::GetSlowCallRequest* request,
                                     v1::GetSlowCallResponse* response) {
  grpc::Status status = note("GetSlowCall", *request);
  for (const v1::SlowCall& call : answers.slow_calls) {
    if (call.id() != request->id()) continue;
    *response->mutable_slow_call() = call;
    return status;
  }
  return {grpc::StatusCode::NOT_FOUND, "no slow call " + std::to_string(request->id())};
}

grpc::Status FakeDaemon::WatchSlowCalls(grpc::ServerContext* context,
                                        const v1::WatchSlowCallsRequest* request,
                                        grpc::ServerWriter<v1::WatchSlowCallsResponse>* writer) {
  grpc::Status status = note("WatchSlowCalls", *request);
  if (!status.ok()) return status;
  writer->SendInitialMetadata();  // as the daemon does once the reader misses nothing more
  for (const v1::WatchSlowCallsResponse& message : answers.watch) writer->Write(message);
  if (answers.watch_ends) return grpc::Status::OK;
  // The synchronous API has no way to wait for the client to leave but to look.
  while (!context->IsCancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return grpc::Status::CANCELLED;
}

grpc::Status FakeDaemon::ListInFlightCalls(grpc::ServerContext*,
                                           const v1::ListInFlightCallsRequest* request,
                                           v1::ListInFlightCallsResponse* response) {
  fill_page(request->page(), answers.in_flight_calls, response->mutable_calls(),
            response->mutable_next_page_token());
  response->set_look_age_ns(answers.look_age_ns);
  return note("ListInFlightCalls", *request);
}

grpc::Status FakeDaemon::ListShapes(grpc::ServerContext*, const v1::ListShapesRequest* request,
                                    v1::ListShapesResponse* response) {
  fill_page(request->page(), answers.shapes, response->mutable_shapes(),
            response->mutable_next_page_token());
  return note("ListShapes", *request);
}

grpc::Status FakeDaemon::ListKernels(grpc::ServerContext*, const v1::ListKernelsRequest* request,
                                     v1::ListKernelsResponse* response) {
  fill_page(request->page(), answers.kernels, response->mutable_kernels(),
            response->mutable_next_page_token());
  return note("ListKernels", *request);
}

grpc::Status FakeDaemon::ListSessions(grpc::ServerContext*, const v1::ListSessionsRequest* request,
                                      v1::ListSessionsResponse* response) {
  fill_page(request->page(), answers.sessions, response->mutable_sessions(),
            response->mutable_next_page_token());
  return note("ListSessions", *request);
}

grpc::Status FakeDaemon::ListStepProcesses(grpc::ServerContext*,
                                           const v1::ListStepProcessesRequest* request,
                                           v1::ListStepProcessesResponse* response) {
  fill_page(request->page(), answers.step_processes, response->mutable_processes(),
            response->mutable_next_page_token());
  return note("ListStepProcesses", *request);
}

grpc::Status FakeDaemon::ListSteps(grpc::ServerContext*, const v1::ListStepsRequest* request,
                                   v1::ListStepsResponse* response) {
  fill_page(request->page(), answers.steps, response->mutable_steps(),
            response->mutable_next_page_token());
  return note("ListSteps", *request);
}

grpc::Status FakeDaemon::ListStepOperators(grpc::ServerContext*,
                                           const v1::ListStepOperatorsRequest* request,
                                           v1::ListStepOperatorsResponse* response) {
  fill_page(request->page(), answers.operators, response->mutable_operators(),
            response->mutable_next_page_token());
  return note("ListStepOperators", *request);
}

grpc::Status FakeDaemon::ListStepExperts(grpc::ServerContext*,
                                         const v1::ListStepExpertsRequest* request,
                                         v1::ListStepExpertsResponse* response) {
  fill_page(request->page(), answers.expert_layers, response->mutable_layers(),
            response->mutable_next_page_token());
  return note("ListStepExperts", *request);
}

grpc::Status FakeDaemon::ListRequestProcesses(grpc::ServerContext*,
                                              const v1::ListRequestProcessesRequest* request,
                                              v1::ListRequestProcessesResponse* response) {
  fill_page(request->page(), answers.request_processes, response->mutable_processes(),
            response->mutable_next_page_token());
  return note("ListRequestProcesses", *request);
}

grpc::Status FakeDaemon::ListRequests(grpc::ServerContext*, const v1::ListRequestsRequest* request,
                                      v1::ListRequestsResponse* response) {
  fill_page(request->page(), answers.requests, response->mutable_requests(),
            response->mutable_next_page_token());
  return note("ListRequests", *request);
}

grpc::Status FakeDaemon::GetStep(grpc::ServerContext*, const v1::GetStepRequest* request,
                                 v1::GetStepResponse* response) {
  *response = answers.step;
  return note("GetStep", *request);
}

grpc::Status FakeDaemon::Control::SetOverheadDemand(grpc::ServerContext*,
                                                    const v1::SetOverheadDemandRequest* request,
                                                    v1::SetOverheadDemandResponse* response) {
  return daemon_.note_change("SetOverheadDemand", *request, response->mutable_change());
}

grpc::Status FakeDaemon::Control::SetSession(grpc::ServerContext*,
                                             const v1::SetSessionRequest* request,
                                             v1::SetSessionResponse* response) {
  response->set_sessions(daemon_.answers.told_sessions);
  const grpc::Status status = daemon_.note("SetSession", *request);
  return status.ok() ? daemon_.answers.control_failure : status;
}

grpc::Status FakeDaemon::Control::change_attachment(const char* method,
                                                    const google::protobuf::Message& request,
                                                    uint32_t pid, v1::Attachment* attachment) {
  for (const v1::Attachment& known : daemon_.answers.attachments) {
    if (known.pid() == pid) *attachment = known;
  }
  const grpc::Status status = daemon_.note(method, request);
  if (!status.ok()) return status;
  return attachment->pid() == pid ? daemon_.answers.control_failure
                                  : grpc::Status(grpc::StatusCode::ABORTED, "its worker died");
}

grpc::Status FakeDaemon::Control::AttachProcess(grpc::ServerContext*,
                                                const v1::AttachProcessRequest* request,
                                                v1::AttachProcessResponse* response) {
  return change_attachment("AttachProcess", *request, request->pid(),
                           response->mutable_attachment());
}

grpc::Status FakeDaemon::Control::DetachProcess(grpc::ServerContext*,
                                                const v1::DetachProcessRequest* request,
                                                v1::DetachProcessResponse* response) {
  return change_attachment("DetachProcess", *request, request->pid(),
                           response->mutable_attachment());
}

grpc::Status FakeDaemon::Control::ListAttachable(grpc::ServerContext*,
                                                 const v1::ListAttachableRequest* request,
                                                 v1::ListAttachableResponse* response) {
  for (const v1::Attachment& known : daemon_.answers.attachments) {
    *response->add_attachments() = known;
  }
  const grpc::Status status = daemon_.note("ListAttachable", *request);
  return status.ok() ? daemon_.answers.control_failure : status;
}

grpc::Status FakeDaemon::ListNccl(grpc::ServerContext*, const v1::ListNcclRequest* request,
                                  v1::ListNcclResponse* response) {
  *response = answers.nccl;
  return note("ListNccl", *request);
}

grpc::Status FakeDaemon::ListGpus(grpc::ServerContext*, const v1::ListGpusRequest* request,
                                  v1::ListGpusResponse* response) {
  *response = answers.gpus;
  return note("ListGpus", *request);
}

grpc::Status FakeDaemon::note_change(const char* method, const google::protobuf::Message& request,
                                     v1::ProbeChange* change) {
  *change = answers.change;
  const grpc::Status status = note(method, request);
  return status.ok() ? answers.control_failure : status;
}

grpc::Status FakeDaemon::Control::ReloadConfig(grpc::ServerContext*,
                                               const v1::ReloadConfigRequest* request,
                                               v1::ReloadConfigResponse* response) {
  return daemon_.note_change("ReloadConfig", *request, response->mutable_change());
}

grpc::Status FakeDaemon::Control::AddProbe(grpc::ServerContext*, const v1::AddProbeRequest* request,
                                           v1::AddProbeResponse* response) {
  return daemon_.note_change("AddProbe", *request, response->mutable_change());
}

grpc::Status FakeDaemon::Control::RemoveProbe(grpc::ServerContext*,
                                              const v1::RemoveProbeRequest* request,
                                              v1::RemoveProbeResponse* response) {
  return daemon_.note_change("RemoveProbe", *request, response->mutable_change());
}

grpc::Status FakeDaemon::Control::EnableProbes(grpc::ServerContext*,
                                               const v1::EnableProbesRequest* request,
                                               v1::EnableProbesResponse* response) {
  return daemon_.note_change("EnableProbes", *request, response->mutable_change());
}

grpc::Status FakeDaemon::Control::DisableProbes(grpc::ServerContext*,
                                                const v1::DisableProbesRequest* request,
                                                v1::DisableProbesResponse* response) {
  return daemon_.note_change("DisableProbes", *request, response->mutable_change());
}

grpc::Status FakeDaemon::Control::SetSlowThreshold(grpc::ServerContext*,
                                                   const v1::SetSlowThresholdRequest* request,
                                                   v1::SetSlowThresholdResponse* response) {
  return daemon_.note_change("SetSlowThreshold", *request, response->mutable_change());
}

grpc::Status FakeDaemon::GetConfig(grpc::ServerContext*, const v1::GetConfigRequest* request,
                                   v1::GetConfigResponse* response) {
  *response = answers.config;
  return note("GetConfig", *request);
}

grpc::Status FakeDaemon::CheckConfig(grpc::ServerContext*, const v1::CheckConfigRequest* request,
                                     v1::CheckConfigResponse* response) {
  *response = answers.check;
  return note("CheckConfig", *request);
}

grpc::Status FakeDaemon::ListMemory(grpc::ServerContext*, const v1::ListMemoryRequest* request,
                                    v1::ListMemoryResponse* response) {
  fill_page(request->page(), answers.memory, response->mutable_processes(),
            response->mutable_next_page_token());
  return note("ListMemory", *request);
}

grpc::Status FakeDaemon::ListOutOfMemory(grpc::ServerContext*,
                                         const v1::ListOutOfMemoryRequest* request,
                                         v1::ListOutOfMemoryResponse* response) {
  fill_page(request->page(), answers.out_of_memory, response->mutable_incidents(),
            response->mutable_next_page_token());
  return note("ListOutOfMemory", *request);
}

grpc::Status FakeDaemon::ListCaptures(grpc::ServerContext*, const v1::ListCapturesRequest* request,
                                      v1::ListCapturesResponse* response) {
  fill_page(request->page(), answers.captures, response->mutable_captures(),
            response->mutable_next_page_token());
  *response->mutable_recorder() = answers.recorder;
  return note("ListCaptures", *request);
}

grpc::Status FakeDaemon::GetCapture(grpc::ServerContext*, const v1::GetCaptureRequest* request,
                                    v1::GetCaptureResponse* response) {
  const grpc::Status status = note("GetCapture", *request);
  const std::lock_guard lock(mutex_);
  for (const v1::Capture& capture : answers.captures) {
    if (capture.id() != request->id()) continue;
    *response->mutable_capture() = capture;
    if (capture_answers_++ < answers.running_answers) {
      response->mutable_capture()->set_state(v1::CAPTURE_STATE_RUNNING);
    } else if (capture.state() == v1::CAPTURE_STATE_STORED) {
      *response->mutable_matches() = answers.matches;
    }
    return status;
  }
  return {grpc::StatusCode::NOT_FOUND, "no capture " + std::to_string(request->id())};
}

grpc::Status FakeDaemon::FetchCapture(grpc::ServerContext*, const v1::FetchCaptureRequest* request,
                                      grpc::ServerWriter<v1::FetchCaptureResponse>* writer) {
  const grpc::Status status = note("FetchCapture", *request);
  if (!status.ok()) return status;
  v1::FetchCaptureResponse piece;
  piece.set_total_bytes(answers.fetched.size());
  piece.set_data(answers.fetched.substr(0, 2));
  writer->Write(piece);
  piece.clear_total_bytes();
  piece.set_data(answers.fetched.substr(2));
  writer->Write(piece);
  return status;
}

grpc::Status FakeDaemon::SummariseCapture(grpc::ServerContext*,
                                          const v1::SummariseCaptureRequest* request,
                                          v1::SummariseCaptureResponse* response) {
  response->mutable_rows()->Add(answers.work_rows.begin(), answers.work_rows.end());
  response->set_total_rows(answers.work_rows.size());
  response->set_total_gpu_ns(1'000'000);
  return note("SummariseCapture", *request);
}

grpc::Status FakeDaemon::ExplainCapture(grpc::ServerContext*,
                                        const v1::ExplainCaptureRequest* request,
                                        v1::ExplainCaptureResponse* response) {
  *response = answers.explanation;
  return note("ExplainCapture", *request);
}

grpc::Status FakeDaemon::DiffCaptures(grpc::ServerContext*, const v1::DiffCapturesRequest* request,
                                      v1::DiffCapturesResponse* response) {
  response->mutable_rows()->Add(answers.diff_rows.begin(), answers.diff_rows.end());
  response->set_total_rows(answers.diff_rows.size());
  return note("DiffCaptures", *request);
}

grpc::Status FakeDaemon::Control::begin(const char* method,
                                        const google::protobuf::Message& request,
                                        v1::Capture* capture) {
  if (!daemon_.answers.captures.empty()) *capture = daemon_.answers.captures.front();
  capture->set_state(v1::CAPTURE_STATE_RUNNING);
  const grpc::Status status = daemon_.note(method, request);
  return status.ok() ? daemon_.answers.control_failure : status;
}

grpc::Status FakeDaemon::Control::StartCapture(grpc::ServerContext*,
                                               const v1::StartCaptureRequest* request,
                                               v1::StartCaptureResponse* response) {
  return begin("StartCapture", *request, response->mutable_capture());
}

grpc::Status FakeDaemon::Control::StopCapture(grpc::ServerContext*,
                                              const v1::StopCaptureRequest* request,
                                              v1::StopCaptureResponse* response) {
  return begin("StopCapture", *request, response->mutable_capture());
}

grpc::Status FakeDaemon::Control::FreezeRecorder(grpc::ServerContext*,
                                                 const v1::FreezeRecorderRequest* request,
                                                 v1::FreezeRecorderResponse* response) {
  return begin("FreezeRecorder", *request, response->mutable_capture());
}

grpc::Status FakeDaemon::Control::DeleteCapture(grpc::ServerContext*,
                                                const v1::DeleteCaptureRequest* request,
                                                v1::DeleteCaptureResponse* response) {
  return begin("DeleteCapture", *request, response->mutable_capture());
}

}  // namespace gpuperf::client
