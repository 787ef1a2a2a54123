// Any bytes as the request of a call of the API, to a daemon that has something of everything.
// The first byte chooses the method, the rest is the message. Every call must be answered, in time,
// and no message with an error that is the daemon's own.

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>

#include "daemon/config/config.h"
#include "daemon/rpc/server.h"
#include "daemon/view/formats.h"
#include "gpuperf/v1/control.pb.h"
#include "gpuperf/v1/observe.pb.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/unit/base/fake_clock.h"
#include "tests/unit/export/snapshot_builder.h"
#include "tests/unit/files.h"
#include "tests/unit/rpc/fake_control_port.h"
#include "tests/unit/store/random_capture.h"

namespace gpuperf::fuzz {
namespace {

using google::protobuf::MethodDescriptor;

constexpr std::chrono::seconds kPatience{60};
constexpr int kPieces = 4;  // of a stream

const std::vector<const MethodDescriptor*>& list_methods() {
  static const std::vector<const MethodDescriptor*> methods = [] {
    std::vector<const MethodDescriptor*> all;
    for (const auto* file :
         {v1::GetStatusRequest::descriptor()->file(), v1::AddProbeRequest::descriptor()->file()}) {
      for (int i = 0; i < file->service(0)->method_count(); ++i) {
        all.push_back(file->service(0)->method(i));
      }
    }
    return all;
  }();
  return methods;
}

bool is_message(const MethodDescriptor& method, std::string_view bytes) {
  auto& factory = *google::protobuf::MessageFactory::generated_factory();
  const std::unique_ptr<google::protobuf::Message> message(
      factory.GetPrototype(method.input_type())->New());
  return message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

class Api {
 public:
  Api() {
    publish();
    const ObserveSources sources{.board = board_,
                                 .drops = drops_,
                                 .clock = clock_,
                                 .watch = hub_,
                                 .check_config =
                                     [](std::string_view text) {
                                       const auto parsed = parse_config(text);
                                       const auto* errors =
                                           std::get_if<std::vector<ConfigError>>(&parsed);
                                       return errors ? *errors : std::vector<ConfigError>();
                                     },
                                 .captures = captures_.get()};
    server_ = *RpcServer::start({.listen = "unix:" + (folder_ / "api.sock")}, sources, &port_);
    stub_ = std::make_unique<grpc::GenericStub>(server_->open_channel(Caller::kRoot));
  }
  ~Api() { server_->stop(); }

  grpc::Status call(const MethodDescriptor& method, const std::string& request) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    const std::string path = "/" + method.service()->full_name() + "/" + method.name();
    const auto stream = stub_->PrepareCall(&context, path, &queue_);
    stream->StartCall(this);
    bool is_well = wait();
    const grpc::Slice slice(request);
    stream->WriteLast(grpc::ByteBuffer(&slice, 1), {}, this);
    is_well = wait() && is_well;
    // A watch goes on for ever.
    if (method.name() == "WatchSlowCalls") context.TryCancel();
    for (int piece = 0; is_well && piece < kPieces; ++piece) {
      grpc::ByteBuffer answer;
      stream->Read(&answer, this);
      is_well = wait();
    }
    if (method.server_streaming()) context.TryCancel();
    grpc::Status status;
    stream->Finish(&status, this);
    (void)wait();
    port_.forget();
    return status;
  }

 private:
  bool wait() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  void publish() {
    const Owner owner{
        .comm = "python", .container = "0123456789ab", .pod = "train-0", .pod_namespace = "ml"};
    Snapshot& snapshot = builder_.snapshot();
    for (uint32_t id = 0; id < 5; ++id) {
      const ProcessKey process{.pid = id + 1, .start_boot_ns = id + 1};
      const std::string name = "cudaCall" + std::to_string(id);
      builder_.add_function({.category = "cuda", .name = name});
      builder_.add_row({.function_id = id,
                        .process = process,
                        .owner = owner,
                        .totals = testing::make_totals({1'000, 2'000 * id})});
      builder_.add_series(id, owner, testing::make_totals({1'000, 2'000 * id}));
      builder_.add_slow_call({.id = id + 1,
                              .category = "cuda",
                              .function = name,
                              .event = {.function_id = id, .process = process, .duration_ns = 7}});
      builder_.probes().probes.push_back({.function_id = id, .category = "cuda", .function = name});
      snapshot.processes.push_back({.process = process, .owner = owner, .calls = id});
      snapshot.shapes.push_back(std::make_shared<const ShapeRow>(
          ShapeRow{.function_id = id, .process = process, .owner = owner, .calls = 1}));
      const auto capture = testing::RandomCapture(id).make(
          {.calls = 5, .launches = 5, .work = 5, .waits = 2, .gaps = 1, .names = 5});
      Capture stored = capture;
      stored.id = id + 1;
      const auto row = captures_->write(stored, CaptureTarget{.pid = id + 1});
      if (row.ok()) snapshot.captures.push_back(*row);
    }
    snapshot.in_flight = std::make_shared<const InFlightCalls>(InFlightCalls{
        .calls = {{.function_id = 0, .process = {1, 1}, .tid = 2, .start_mono_ns = 3}},
        .look_mono_ns = 9});
    snapshot.recorder = {.enabled = true, .events = 3};
    board_.publish(builder_.build());
  }

  const TempFolder folder_{"/dev/shm"};
  FakeClock clock_;
  std::unique_ptr<CaptureStore> captures_ =
      *CaptureStore::open({.folder = folder_ / "captures"}, clock_);
  testing::SnapshotBuilder builder_;
  SnapshotBoard board_;
  DropCounters drops_;
  WatchHub hub_{drops_};
  testing::FakeControlPort port_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<grpc::GenericStub> stub_;
  grpc::CompletionQueue queue_;
};

}  // namespace

std::string find_fault(std::string_view bytes) {
  static Api& api = *new Api;  // gRPC's threads live as long as the program
  if (bytes.empty()) return "";
  const MethodDescriptor& method =
      *list_methods()[static_cast<uint8_t>(bytes.front()) % list_methods().size()];
  const grpc::Status status = api.call(method, std::string(bytes.substr(1)));
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) return method.name() + ": late";
  if (!is_message(method, bytes.substr(1))) return "";  // gRPC itself refuses it
  switch (status.error_code()) {
    case grpc::StatusCode::INTERNAL:
    case grpc::StatusCode::UNKNOWN:
    case grpc::StatusCode::UNIMPLEMENTED:
      return method.name() + ": " + status.error_message();
    default:
      return "";
  }
}

// An empty request to every method, and one that says something in every field of the lists.
std::vector<std::string> make_seeds() {
  std::vector<std::string> seeds;
  for (size_t i = 0; i < list_methods().size(); ++i) seeds.emplace_back(1, static_cast<char>(i));
  const auto add = [&](std::string_view name, const google::protobuf::Message& request) {
    for (size_t i = 0; i < list_methods().size(); ++i) {
      if (list_methods()[i]->name() != name) continue;
      seeds.push_back(static_cast<char>(i) + request.SerializeAsString());
    }
  };
  const auto parse = [](auto request, const char* text) {
    if (!google::protobuf::TextFormat::ParseFromString(text, &request)) std::abort();
    return request;
  };
  add("ListFunctions",
      parse(v1::ListFunctionsRequest(),
            R"(sort: "total_ns" page { limit: 2 } filter { pid: 1 function: "cuda*" })"));
  add("ListSlowCalls",
      parse(v1::ListSlowCallsRequest(),
            R"(sort: "start_unix_ns" page { limit: 2 } filter { container: "01" })"));
  add("GetSlowCall", parse(v1::GetSlowCallRequest(), "id: 2"));
  add("GetCapture", parse(v1::GetCaptureRequest(), "id: 2"));
  for (const ViewFormat& format : list_view_formats()) {
    v1::FetchCaptureRequest request;
    request.set_id(2);
    request.set_format(std::string(format.name));
    add("FetchCapture", request);
  }
  add("FetchCapture",
      parse(v1::FetchCaptureRequest(), R"(id: 2 before_id: 1 format: "diff-flamegraph")"));
  add("SummariseCapture", parse(v1::SummariseCaptureRequest(), "id: 3 by: CAPTURE_GROUPING_STACK"));
  add("DiffCaptures", parse(v1::DiffCapturesRequest(), "before_id: 1 after_id: 2"));
  add("CheckConfig", parse(v1::CheckConfigRequest(), R"(json: "{\"x_sym\": {\"f\": \"f\"}}")"));
  add("StartCapture", parse(v1::StartCaptureRequest(), R"(target { pid: 1 } duration_ms: 1000)"));
  add("SetSession",
      parse(v1::SetSessionRequest(), "pid: 1 mode: SESSION_MODE_RUN sample_every: 2"));
  add("SetSlowThreshold", parse(v1::SetSlowThresholdRequest(), R"(function: "*" threshold_ns: 5)"));
  add("MeasureOverhead", parse(v1::MeasureOverheadRequest(), "duration_ns: 60000000000"));
  add("AttachProcess", parse(v1::AttachProcessRequest(), "pid: 71"));
  return seeds;
}

}  // namespace gpuperf::fuzz
