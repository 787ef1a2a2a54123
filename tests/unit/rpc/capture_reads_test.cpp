// Captures that are read: lists, forms, groups and differences.

#include <algorithm>
#include <future>
#include <thread>

#include "daemon/rpc/work_rows.h"
#include "daemon/view/formats.h"
#include "tests/unit/matchers.h"
#include "tests/unit/rpc/rpc_fixture.h"
#include "tests/unit/store/random_capture.h"

namespace gpuperf {
namespace {

using testing::RpcFixture;
using Stub = v1::Observe::Stub;

// Two kernels by two lines of one program, through a GEMM and without.
Capture make_capture(uint64_t id, uint64_t gemm_ns) {
  Capture capture = {.id = id, .name = "run"};
  capture.start_mono_ns = 1'000;
  capture.duration_ns = 1'000'000'000;
  capture.start_unix_ns = 1'000;
  capture.processes = {{.process = {.pid = 7}, .owner = {.comm = "train"}}};
  capture.threads = {{.process = 0, .tid = 8, .comm = "train"}};
  capture.functions = {
      {"cuda", "cudaLaunchKernel"}, {"cublas", "cublasGemmEx"}, {"libtorch", "linear_forward"}};
  capture.kernels = {{"void gemm<float>(int)", "gemm<float>"}, {"void relu(int)", "relu"}};
  capture.frames = {
      {.symbol = "main", .file = "/home/u/train.py", .line = 3, .kind = StackFrameKind::kPython},
      {.symbol = "forward",
       .file = "/usr/lib/python3/dist-packages/torch/nn/linear.py",
       .line = 114,
       .kind = StackFrameKind::kPython},
      {.symbol = "activate",
       .file = "/home/u/train.py",
       .line = 9,
       .kind = StackFrameKind::kPython}};
  capture.stacks = {{.frames = {0, 1}}, {.frames = {0, 2}}};
  capture.operations = {{.function = 2}, {.parent = 0, .function = 1, .shape = {1, 2, 3, 1}}};
  capture.devices = {{}};
  capture.streams = {{.process = 0, .device = 0}};
  capture.launches = {
      {.start_mono_ns = 2'000,
       .duration_ns = 5,
       .thread = 0,
       .function = 0,
       .stack = 0,
       .operation = 1},
      {.start_mono_ns = 3'000, .duration_ns = 5, .thread = 0, .function = 0, .stack = 1}};
  capture.work = {
      {.start_mono_ns = 2'100, .duration_ns = gemm_ns, .kernel = 0, .stream = 0, .launch = 0},
      {.start_mono_ns = 3'100, .duration_ns = 100, .kernel = 1, .stream = 0, .launch = 1},
      {.start_mono_ns = 3'300, .duration_ns = 50, .kernel = 1, .stream = 0, .launch = 1}};
  capture.matches = {.launches = {2}, .work = 3, .work_matched = 3};
  return capture;
}

class CaptureReadsTest : public RpcFixture {
 protected:
  CaptureReadsTest() {
    auto store = CaptureStore::open({.folder = folder_ / "captures"}, clock_);
    EXPECT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    captures_ = store_.get();
  }
  void write(const Capture& capture) {
    const auto row = store_->write(capture, CaptureTarget{.pid = 7});
    ASSERT_TRUE(row.ok()) << row.status();
    builder_.snapshot().captures.push_back(*row);
    board_.publish(builder_.build());
  }
  // Every piece; the call's end goes to `status_`.
  std::vector<v1::FetchCaptureResponse> fetch(const std::string& request_text) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    const auto stream =
        stub_->FetchCapture(&context, parse_text<v1::FetchCaptureRequest>(request_text));
    std::vector<v1::FetchCaptureResponse> pieces;
    v1::FetchCaptureResponse piece;
    while (stream->Read(&piece)) pieces.push_back(piece);
    status_ = stream->Finish();
    return pieces;
  }
  static std::string join(const std::vector<v1::FetchCaptureResponse>& pieces) {
    std::string bytes;
    for (const auto& piece : pieces) bytes += piece.data();
    return bytes;
  }
  static std::vector<std::string> get_names(const v1::SummariseCaptureResponse& response) {
    std::vector<std::string> names;
    for (const auto& row : response.rows()) names.push_back(row.name());
    return names;
  }

  std::unique_ptr<CaptureStore> store_;
};

TEST_F(CaptureReadsTest, ExplainsTheStepAskedForOrSaysWhereItIsNot) {
  Capture capture = make_capture(1, 1'000);
  capture.start_unix_ns = 5'000'000'000'000;
  capture.start_mono_ns = 1'000'000'000;
  for (const uint64_t start_ms : {100, 300, 500}) {
    capture.steps.push_back({.start_mono_ns = 1'000'000'000 + start_ms * 1'000'000,
                             .duration_ns = 50'000'000,
                             .thread = 0,
                             .function = 2,
                             .phase = StepPhase::kDecode});
  }
  write(capture);
  start();

  const auto response =
      call(&Stub::ExplainCapture, "id: 1 pid: 7 step_start_unix_ns: 5000300900000");

  ASSERT_THAT(response.processes(), SizeIs(1));
  ASSERT_THAT(response.processes(0).steps(), SizeIs(1));
  const v1::StepsTime& steps = response.processes(0).steps(0);
  EXPECT_TRUE(steps.asked());
  EXPECT_EQ(steps.longest_offset_ns(), 300'000'000u);
  uint64_t parts_ns = 0;
  for (const v1::TimeShare& part : steps.longest_parts()) parts_ns += part.time_ns();
  EXPECT_EQ(parts_ns, 50'000'000u);

  const auto explain = [this](const std::string& request) {
    call(&Stub::ExplainCapture, "id: 1 " + request);
    return status_;
  };
  EXPECT_EQ(explain("step_start_unix_ns: 5000302000000").error_code(), grpc::NOT_FOUND);
  EXPECT_EQ(explain("pid: 8 step_start_unix_ns: 5000300000000").error_code(), grpc::NOT_FOUND);
  EXPECT_THAT(explain("step_start_unix_ns: 4998000000000").error_message(),
              HasSubstr("the step began 2.000 s before the capture did, which is 1.000 s long"));
  EXPECT_THAT(explain("step_start_unix_ns: 5000950000000").error_message(),
              HasSubstr("950.000 ms after the capture did"));
}

TEST_F(CaptureReadsTest, ListsNewestFirstWithTheRecorder) {
  write(make_capture(1, 1'000));
  builder_.snapshot().captures.push_back(
      {.id = 2, .state = CaptureState::kRunning, .events = 9, .requester_uid = 5});
  builder_.snapshot().recorder = {
      .enabled = true, .events = 3, .bytes = 4, .max_bytes = 5, .span_ns = 6};
  board_.publish(builder_.build());
  start();

  const auto response = call(&Stub::ListCaptures);

  ASSERT_THAT(response.captures(), SizeIs(2));
  EXPECT_EQ(response.captures(0).id(), 2u);
  EXPECT_EQ(response.captures(0).state(), v1::CAPTURE_STATE_RUNNING);
  EXPECT_EQ(response.captures(0).requester_uid(), 5u);
  EXPECT_EQ(response.captures(1).id(), 1u);
  EXPECT_EQ(response.captures(1).target().pid(), 7u);
  EXPECT_EQ(response.recorder().span_ns(), 6u);
  EXPECT_EQ(call(&Stub::ListCaptures, "page { limit: 1 }").captures_size(), 1);
}

TEST_F(CaptureReadsTest, ShowsOneWithItsMatchesOnceStored) {
  write(make_capture(1, 1'000));
  builder_.snapshot().captures.push_back({.id = 2, .state = CaptureState::kSettling});
  board_.publish(builder_.build());
  start();

  const auto stored = call(&Stub::GetCapture, "id: 1");
  const auto settling = call(&Stub::GetCapture, "id: 2");
  EXPECT_TRUE(status_.ok()) << status_.error_message();
  call(&Stub::GetCapture, "id: 3");

  EXPECT_EQ(stored.capture().state(), v1::CAPTURE_STATE_STORED);
  EXPECT_EQ(stored.matches().work_matched(), 3u);
  EXPECT_EQ(settling.capture().state(), v1::CAPTURE_STATE_SETTLING);
  EXPECT_FALSE(settling.has_matches());
  EXPECT_EQ(status_.error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(CaptureReadsTest, GivesEveryForm) {
  const Capture capture = make_capture(1, 1'000);
  write(capture);
  write(make_capture(2, 3'000));
  start();

  for (const ViewFormat& format : list_view_formats()) {
    const auto pieces = fetch("id: 1 format: \"" + std::string(format.name) + "\"");
    ASSERT_TRUE(status_.ok()) << format.name << ": " << status_.error_message();
    ASSERT_FALSE(pieces.empty());
    EXPECT_EQ(pieces[0].suffix(), format.suffix);
    EXPECT_EQ(pieces[0].total_bytes(), join(pieces).size());
  }
  EXPECT_THAT(join(fetch(R"(id: 1 format: "folded")")), HasSubstr("[GPU_Kernel]"));
  const auto raw = decode_capture(join(fetch(R"(id: 1 format: "raw")")));
  ASSERT_TRUE(raw.ok()) << raw.status();
  EXPECT_TRUE(*raw == capture);
  EXPECT_THAT(join(fetch(R"(id: 2 format: "diff-flamegraph" before_id: 1)")), HasSubstr("<svg"));
}

TEST_F(CaptureReadsTest, PassesOnWhatPathsAreMadeOf) {
  write(make_capture(1, 1'000));
  start();

  const std::string plain = join(fetch(R"(id: 1 format: "folded")"));
  const std::string asked = join(
      fetch(R"(id: 1 format: "folded" path { per_process: true per_thread: true lines: true })"));

  EXPECT_EQ(plain.find("train (7)"), std::string::npos);
  EXPECT_THAT(asked, HasSubstr("train (7);train (8)"));
  EXPECT_THAT(asked, HasSubstr("train.py:3)"));
}

TEST_F(CaptureReadsTest, SendsLargeFormsInPieces) {
  Capture capture = testing::RandomCapture(3).make(
      {.calls = 40'000, .launches = 40'000, .work = 60'000, .names = 500});
  capture.id = 1;
  write(capture);
  start();

  const auto pieces = fetch(R"(id: 1 format: "raw")");

  EXPECT_TRUE(status_.ok()) << status_.error_message();
  EXPECT_GT(pieces.size(), 5u);
  for (const auto& piece : pieces) EXPECT_LE(piece.data().size(), size_t{256} << 10);
  const auto raw = decode_capture(join(pieces));
  ASSERT_TRUE(raw.ok()) << raw.status();
  EXPECT_TRUE(*raw == capture);
}

TEST_F(CaptureReadsTest, SaysWhyACaptureCannotBeRead) {
  builder_.snapshot().captures = {{.id = 2, .state = CaptureState::kRunning},
                                  {.id = 3, .state = CaptureState::kFailed, .problem = "no room"}};
  board_.publish(builder_.build());
  start();

  fetch(R"(id: 1 format: "folded")");
  EXPECT_EQ(status_.error_code(), grpc::StatusCode::NOT_FOUND);
  fetch(R"(id: 2 format: "folded")");
  EXPECT_EQ(status_.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status_.error_message(), HasSubstr("capture 2 is running"));
  fetch(R"(id: 3 format: "raw")");
  EXPECT_EQ(status_.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status_.error_message(), HasSubstr("no room"));
}

TEST_F(CaptureReadsTest, RefusesRequestsThatMakeNoSense) {
  write(make_capture(1, 1'000));
  start();

  for (const char* request :
       {R"(id: 1)", R"(id: 1 format: "gif")", R"(id: 1 format: "diff-flamegraph")",
        R"(id: 1 format: "folded" before_id: 1)", R"(id: 1 format: "folded" weight: 9)"}) {
    fetch(request);
    EXPECT_EQ(status_.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << request;
  }
  fetch(R"(id: 1 format: "gif")");
  EXPECT_THAT(status_.error_message(), HasSubstr("formats: raw, diff-flamegraph, "));
  call(&Stub::SummariseCapture, "id: 1 by: 9");
  EXPECT_EQ(status_.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  call(&Stub::DiffCaptures, "before_id: 1 after_id: 1 by: 9");
  EXPECT_EQ(status_.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(CaptureReadsTest, SaysWhenNothingIsStoredHere) {
  captures_ = nullptr;
  start();

  fetch(R"(id: 1 format: "folded")");
  // Not UNAVAILABLE, of which gpuperfctl says that gpuperfd is not reachable.
  EXPECT_EQ(status_.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status_.error_message(), HasSubstr("storage.path"));
}

TEST_F(CaptureReadsTest, GroupsWorkByWhateverLaunchedIt) {
  write(make_capture(1, 1'000));
  start();

  const auto by = [&](const std::string& grouping) {
    return call(&Stub::SummariseCapture, "id: 1 by: CAPTURE_GROUPING_" + grouping);
  };
  EXPECT_THAT(get_names(by("KERNEL")), ElementsAre("void gemm<float>(int)", "void relu(int)"));
  EXPECT_THAT(get_names(by("OPERATOR")), ElementsAre("linear_forward", "activate"));
  EXPECT_THAT(get_names(by("LINE")),
              ElementsAre("/home/u/train.py:3 (main)", "/home/u/train.py:9 (activate)"));
  EXPECT_THAT(get_names(by("LIBRARY")),
              ElementsAre("cublasGemmEx m=1 n=2 k=3", "cudaLaunchKernel"));
  const auto stacks = by("STACK");
  ASSERT_THAT(stacks.rows(), SizeIs(2));
  EXPECT_EQ(stacks.rows(0).path(0), "main (train.py)");
  v1::CaptureWorkRow expected;
  expected.set_name("activate");
  expected.set_gpu_ns(150);
  expected.set_work(2);
  expected.set_launches(1);
  expected.set_min_ns(50);
  expected.set_avg_ns(75);
  expected.set_max_ns(100);
  expected.add_top_kernels("void relu(int)");
  v1::CaptureWorkRow row = by("OPERATOR").rows(1);
  EXPECT_NEAR(row.share_ratio(), 150.0 / 1150, 1e-9);
  row.clear_share_ratio();
  EXPECT_EQ(row.DebugString(), expected.DebugString());
  const auto one = call(&Stub::SummariseCapture, R"(id: 1 kernel: "gemm*" limit: 5)");
  EXPECT_THAT(get_names(one), ElementsAre("void gemm<float>(int)"));
  EXPECT_EQ(one.total_gpu_ns(), 1'000u);
}

TEST_F(CaptureReadsTest, ExplainsWhereTheTimeOfTheProcessesAskedForWent) {
  write(make_capture(1, 1'000));
  start();

  const auto all = call(&Stub::ExplainCapture, "id: 1");
  const auto one = call(&Stub::ExplainCapture, "id: 1 pid: 7 limit: 1");
  const auto none = call(&Stub::ExplainCapture, "id: 1 pid: 8");
  const auto of_pod = call(&Stub::ExplainCapture, R"(id: 1 pod: "no such")");

  ASSERT_THAT(all.processes(), SizeIs(1));
  uint64_t parts_ns = 0;
  for (const auto& part : all.processes(0).parts()) parts_ns += part.time_ns();
  EXPECT_EQ(parts_ns, all.duration_ns());
  EXPECT_EQ(all.processes(0).wall_ns(), all.duration_ns());
  ASSERT_THAT(one.processes(), SizeIs(1));
  EXPECT_THAT(one.processes(0).findings(), SizeIs(1));
  EXPECT_THAT(none.processes(), IsEmpty());
  EXPECT_THAT(of_pod.processes(), IsEmpty());
  call(&Stub::ExplainCapture, "id: 2");
  EXPECT_EQ(status_.error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(CaptureReadsTest, SharesOutWorkWithoutStacksAsTheSameKernelsThatHaveOne) {
  // Launches 0 and 1 are sampled: gemm 900 ns from one line and 300 from the other. Of those
  // without a stack 400 ns are of gemm, 70 of a kernel that was never sampled.
  Capture capture = make_capture(1, 1'000);
  const auto launch = [](uint64_t start_ns, uint32_t stack) {
    return CaptureLaunch{
        .start_mono_ns = start_ns, .duration_ns = 5, .thread = 0, .function = 0, .stack = stack};
  };
  const auto work = [](uint32_t launch, uint32_t kernel, uint64_t duration_ns) {
    return CaptureWork{.start_mono_ns = 3'000 + 10 * launch,
                       .duration_ns = duration_ns,
                       .kernel = kernel,
                       .stream = 0,
                       .launch = launch};
  };
  capture.launches = {launch(2'000, 0), launch(2'010, 1), launch(2'020, kNoIndex),
                      launch(2'030, kNoIndex), launch(2'040, kNoIndex)};
  capture.work = {work(0, 0, 900), work(1, 0, 300), work(2, 0, 250), work(3, 0, 150),
                  work(4, 1, 70)};
  write(capture);
  start();

  const auto response = call(&Stub::SummariseCapture, "id: 1 by: CAPTURE_GROUPING_LINE");
  EXPECT_EQ(response.estimated_work(), 2u);
  EXPECT_EQ(response.total_gpu_ns(), 1'670u);
  std::vector<std::string> rows;
  for (const v1::CaptureWorkRow& row : response.rows()) {
    rows.push_back(row.name() + " " + std::to_string(row.gpu_ns()) + " " +
                   std::to_string(row.work()) + " " + std::to_string(row.launches()));
  }
  EXPECT_THAT(rows,
              ElementsAre("/home/u/train.py:3 (main) 1200 3 3",
                          "/home/u/train.py:9 (activate) 400 1 1", "[stack not sampled] 70 1 1"));
  // Nothing is to be estimated where no stack is needed.
  EXPECT_EQ(call(&Stub::SummariseCapture, "id: 1 by: CAPTURE_GROUPING_KERNEL").estimated_work(),
            0u);
}

TEST_F(CaptureReadsTest, NamesKernelsShortlyIfAsked) {
  write(make_capture(1, 1'000));
  start();

  EXPECT_THAT(get_names(call(&Stub::SummariseCapture, "id: 1 short_names: true")),
              ElementsAre("gemm<float>", "relu"));
  const auto lines =
      call(&Stub::SummariseCapture, "id: 1 by: CAPTURE_GROUPING_LINE short_names: true");
  EXPECT_THAT(lines.rows(1).top_kernels(), ElementsAre("relu"));
}

TEST_F(CaptureReadsTest, ChoosesTheLineThatWorkIsOf) {
  const auto python = [](const char* symbol, const char* file, uint32_t line) {
    return StackFrame{
        .symbol = symbol, .file = file, .line = line, .kind = StackFrameKind::kPython};
  };
  Capture capture = make_capture(1, 1'000);
  capture.frames = {
      python("main", "/home/u/serve.py", 3),
      python("generate", "/venv/lib/python3.12/site-packages/transformers/generation.py", 20),
      python("forward", "/venv/lib/python3.12/site-packages/transformers/models/llama.py", 30),
      python("wrapper", "/usr/lib/python3.12/contextlib.py", 81),
      python("linear", "/venv/lib/python3.12/site-packages/torch/nn/linear.py", 114)};
  capture.stacks = {{.frames = {0, 1, 2, 3, 4}}, {.frames = {3, 4}}};
  write(capture);
  start();

  const auto by_line = [&](const std::string& asked) {
    return get_names(call(&Stub::SummariseCapture, "id: 1 by: CAPTURE_GROUPING_LINE " + asked));
  };
  const std::string packages = "/venv/lib/python3.12/site-packages/";
  const std::string linear = packages + "torch/nn/linear.py:114 (linear)";
  EXPECT_THAT(by_line(""),
              ElementsAre(packages + "transformers/models/llama.py:30 (forward)", linear));
  EXPECT_THAT(by_line("depth: 2"),
              ElementsAre(packages + "transformers/generation.py:20 (generate)", linear));
  EXPECT_THAT(by_line("depth: 9"), ElementsAre("/home/u/serve.py:3 (main)", linear));
  EXPECT_THAT(by_line(R"(module: "serve")"),
              ElementsAre("/home/u/serve.py:3 (main)", "[no line of serve]"));
  EXPECT_THAT(by_line(R"(module: "torch.nn")"), ElementsAre(linear));
  EXPECT_THAT(by_line(R"(module: "/home/u/*")"),
              ElementsAre("/home/u/serve.py:3 (main)", "[no line of /home/u/*]"));
}

TEST_F(CaptureReadsTest, ShowsCpuTimeWhereThereIsNoGpuWork) {
  Capture capture = make_capture(1, 1'000);
  capture.work.clear();
  write(capture);
  write(make_capture(2, 1'000));
  start();

  EXPECT_THAT(join(fetch(R"(id: 1 format: "flamegraph")")), HasSubstr("CPU time in probed calls"));
  EXPECT_THAT(join(fetch(R"(id: 1 format: "report")")),
              HasSubstr("Where CPU time in probed calls goes"));
  EXPECT_THAT(join(fetch(R"(id: 2 format: "flamegraph")")), HasSubstr("GPU time by host stack"));
}

TEST_F(CaptureReadsTest, ComparesTwo) {
  write(make_capture(1, 1'000));
  write(make_capture(2, 5'000));
  start();

  const auto response =
      call(&Stub::DiffCaptures, "before_id: 1 after_id: 2 by: CAPTURE_DIFF_BY_KERNEL limit: 1");

  EXPECT_TRUE(status_.ok()) << status_.error_message();
  ASSERT_THAT(response.rows(), SizeIs(1));
  EXPECT_THAT(response.rows(0).name(), HasSubstr("gemm"));
  EXPECT_EQ(response.rows(0).delta_ns(), 4'000);
  EXPECT_GE(response.total_rows(), 1u);
  EXPECT_EQ(response.after_duration_ns(), 1'000'000'000u);
}

TEST(RenderQueueTest, DoesOneJobAfterTheOther) {
  RenderQueue queue;
  std::promise<void> go;
  std::vector<int> done;
  std::promise<void> end;
  queue.post([&, wait = go.get_future().share()] {
    wait.wait();
    done.push_back(1);
  });
  queue.post([&] {
    done.push_back(2);
    end.set_value();
  });

  go.set_value();
  end.get_future().wait();

  EXPECT_THAT(done, ElementsAre(1, 2));
}

TEST(RenderQueueTest, HasSoManyPlacesAndKeepsSomeForRoot) {
  RenderQueue queue;
  std::vector<RenderQueue::Place> places;
  for (size_t i = 0; i < RenderQueue::kPlaces - RenderQueue::kKeptForRoot; ++i) {
    places.push_back(queue.take_place(false).value());
  }

  EXPECT_EQ(queue.take_place(false).status().code(), absl::StatusCode::kResourceExhausted);
  for (size_t i = 0; i < RenderQueue::kKeptForRoot; ++i) {
    places.push_back(queue.take_place(true).value());
  }
  EXPECT_EQ(queue.take_place(true).status().code(), absl::StatusCode::kResourceExhausted);
  places.clear();
  EXPECT_TRUE(queue.take_place(false).ok());
}

TEST(RenderQueueTest, ForgetsWhatHasNotBegunWhenItStops) {
  bool ran = false;
  {
    std::promise<void> begun;
    std::promise<void> go;
    auto queue = std::make_unique<RenderQueue>();
    queue->post([&, wait = go.get_future().share()] {
      begun.set_value();
      wait.wait();
    });
    begun.get_future().wait();
    queue->post([&, place = *queue->take_place(true)] { ran = true; });
    std::jthread stopper([&queue] { queue.reset(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    go.set_value();
  }
  EXPECT_FALSE(ran);
}

// Only what a place holds back is looked at, so a fixture of its own: the reader reads nothing.
TEST_F(CaptureReadsTest, GivesPlacesBackWhenReadersLeave) {
  Capture capture = testing::RandomCapture(3).make(
      {.calls = 100'000, .launches = 40'000, .work = 60'000, .names = 500});
  capture.id = 1;
  write(capture);
  start();
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
    std::vector<std::unique_ptr<grpc::ClientReader<v1::FetchCaptureResponse>>> streams;
    for (size_t i = 0; i < RenderQueue::kPlaces; ++i) {
      contexts.push_back(std::make_unique<grpc::ClientContext>());
      streams.push_back(stub_->FetchCapture(
          contexts.back().get(), parse_text<v1::FetchCaptureRequest>(R"(id: 1 format: "raw")")));
    }
    v1::FetchCaptureResponse piece;
    EXPECT_TRUE(streams.front()->Read(&piece));
    for (auto& context : contexts) context->TryCancel();
    for (auto& stream : streams) (void)stream->Finish();
    // The server hears of it a moment later.
    for (int i = 0; i < 200; ++i) {
      fetch(R"(id: 1 format: "raw")");
      if (status_.ok()) break;
      ASSERT_EQ(status_.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED)
          << status_.error_message();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    EXPECT_TRUE(status_.ok()) << status_.error_message();
  }
}

}  // namespace
}  // namespace gpuperf
