#include "daemon/rpc/observe_service.h"

#include <algorithm>
#include <set>

#include "tests/unit/matchers.h"
#include "tests/unit/model/make_stack.h"
#include "tests/unit/rpc/rpc_fixture.h"

namespace gpuperf {
namespace {

using testing::make_totals;
using testing::RpcFixture;
using Stub = v1::Observe::Stub;

class ObserveServiceTest : public RpcFixture {
 protected:
  void SetUp() override { start(); }
  void publish() { board_.publish(builder_.build()); }

  std::vector<ConfigError> check_config(std::string_view text) override {
    if (text == "{}") return {};
    return {{"line 1, column 1", "not JSON", "begin with {"}};
  }

  // A call within the process, for large messages: where client and server share a process, their
  // shared poller now and then holds up what is larger than the socket's buffer, for ten seconds.
  template <typename Request, typename Response>
  Response call_within(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                    Response*),
                       const Request& request) {
    if (!within_) within_ = v1::Observe::NewStub(server_->open_channel(Caller::kRoot));
    std::swap(stub_, within_);
    const Response response = call(method, request);
    std::swap(stub_, within_);
    return response;
  }

  uint32_t add_function(const std::string& category, const std::string& name) {
    return builder_.add_function({.category = category, .name = name});
  }
  void add_row(uint32_t function_id, uint32_t pid, Owner owner,
               const std::vector<uint64_t>& durations_ns) {
    builder_.add_row({.function_id = function_id,
                      .process = {.pid = pid, .start_boot_ns = pid},
                      .owner = std::move(owner),
                      .totals = make_totals(durations_ns)});
  }
  // Two functions, two processes; pid 1 is in a container; a third process was forgotten.
  void publish_functions() {
    const uint32_t malloc_id = add_function("cuda", "cudaMalloc");
    const uint32_t gemm_id = add_function("cublas", "cublasGemmEx");
    const Owner in_pod{"python", "0123456789ab", "train-0", "ml"};
    const Owner on_host{"bench", "", "", ""};
    add_row(malloc_id, 1, in_pod, {1'000, 2'000});
    add_row(malloc_id, 2, on_host, {4'000});
    add_row(gemm_id, 1, in_pod, {50'000});
    FunctionTotals with_forgotten = make_totals({1'000, 2'000, 8'000});
    builder_.add_series(malloc_id, in_pod, with_forgotten);
    builder_.add_series(malloc_id, on_host, make_totals({4'000}));
    builder_.add_series(gemm_id, in_pod, make_totals({50'000}));
    publish();
  }
  // "cudaMalloc/1:2" for each row: function/pid:calls.
  std::vector<std::string> list_functions(const std::string& request) {
    std::vector<std::string> rows;
    const v1::ListFunctionsResponse response = call(&Stub::ListFunctions, request);
    for (const v1::FunctionStats& row : response.functions()) {
      rows.push_back(row.function() + "/" + std::to_string(row.pid()) + ":" +
                     std::to_string(row.calls()));
    }
    return rows;
  }
  // Calls of the functions and processes of publish_functions, found 10,000 ns after boot.
  void publish_in_flight() {
    builder_.snapshot().processes = {
        {.process = {.pid = 1, .start_boot_ns = 1},
         .owner = {.container = "0123456789ab", .pod = "train-0", .pod_namespace = "ml"}},
        {.process = {.pid = 2, .start_boot_ns = 2}}};
    builder_.snapshot().in_flight = std::make_shared<const InFlightCalls>(InFlightCalls{
        .calls = {{.function_id = 0, .process = {2, 2}, .tid = 20, .start_mono_ns = 4'000},
                  {.function_id = 0, .process = {1, 1}, .tid = 10, .start_mono_ns = 3'000},
                  {.function_id = 0, .process = {1, 1}, .tid = 11, .start_mono_ns = 9'000},
                  {.function_id = 1, .process = {1, 1}, .tid = 10, .start_mono_ns = 5'000},
                  {.function_id = 9, .process = {1, 1}, .tid = 12, .start_mono_ns = 1'000}},
        .look_mono_ns = 10'000});
    publish_functions();
  }
  // "function/pid.tid:age" for each row.
  std::vector<std::string> list_in_flight(const std::string& request) {
    std::vector<std::string> rows;
    const v1::ListInFlightCallsResponse response = call(&Stub::ListInFlightCalls, request);
    for (const v1::InFlightCall& row : response.calls()) {
      rows.push_back(row.function() + "/" + std::to_string(row.pid()) + "." +
                     std::to_string(row.tid()) + ":" + std::to_string(row.age_ns()));
    }
    return rows;
  }
  // "function m:calls" for each row.
  std::vector<std::string> list_shapes(const std::string& request) {
    std::vector<std::string> rows;
    const v1::ListShapesResponse response = call(&Stub::ListShapes, request);
    for (const v1::Shape& row : response.shapes()) {
      rows.push_back(row.function() + " " + std::to_string(row.m()) + ":" +
                     std::to_string(row.calls()));
    }
    return rows;
  }
  void add_shape(uint32_t function_id, uint32_t pid, const std::string& pod, uint64_t m,
                 uint64_t calls, uint64_t total_ns) {
    builder_.snapshot().shapes.push_back(
        std::make_shared<const ShapeRow>(ShapeRow{.function_id = function_id,
                                                  .process = {.pid = pid, .start_boot_ns = pid},
                                                  .owner = {.pod = pod},
                                                  .dimensions = {m, 10, 10, 1},
                                                  .calls = calls,
                                                  .total_ns = total_ns}));
  }
  std::vector<uint64_t> list_slow_call_ids(const std::string& request) {
    std::vector<uint64_t> ids;
    const v1::ListSlowCallsResponse response = call(&Stub::ListSlowCalls, request);
    for (const v1::SlowCall& row : response.slow_calls()) {
      ids.push_back(row.id());
    }
    return ids;
  }
  void add_slow_call(uint64_t id, uint64_t start_unix_ns, uint64_t duration_ns, uint32_t pid) {
    SlowCall slow{.id = id,
                  .category = "cuda",
                  .function = "f" + std::to_string(pid),
                  .start_unix_ns = start_unix_ns};
    slow.event.process.pid = pid;
    slow.event.duration_ns = duration_ns;
    builder_.add_slow_call(std::move(slow));
  }
  void expect_error(grpc::StatusCode code, const std::string& why) {
    EXPECT_EQ(status_.error_code(), code) << status_.error_message();
    EXPECT_THAT(status_.error_message(), HasSubstr(why));
  }

  std::unique_ptr<Stub> within_;
};

TEST_F(ObserveServiceTest, AnswersBeforeTheFirstSnapshot) {
  EXPECT_EQ(call(&Stub::GetStatus).mechanism(), "none");
  EXPECT_TRUE(status_.ok()) << status_.error_message();
  EXPECT_THAT(call(&Stub::ListProcesses).processes(), IsEmpty());
  EXPECT_TRUE(status_.ok()) << status_.error_message();
  EXPECT_THAT(call(&Stub::ListProbes).probes(), IsEmpty());
  EXPECT_TRUE(status_.ok()) << status_.error_message();
  EXPECT_THAT(list_functions(""), IsEmpty());
  EXPECT_TRUE(status_.ok()) << status_.error_message();
  EXPECT_THAT(list_functions("per_process: true"), IsEmpty());
  EXPECT_TRUE(status_.ok()) << status_.error_message();
  EXPECT_THAT(list_slow_call_ids(""), IsEmpty());
  EXPECT_TRUE(status_.ok()) << status_.error_message();
  EXPECT_THAT(call(&Stub::ListInFlightCalls).calls(), IsEmpty());
  EXPECT_TRUE(status_.ok()) << status_.error_message();
  EXPECT_THAT(call(&Stub::ListShapes).shapes(), IsEmpty());
  EXPECT_TRUE(status_.ok()) << status_.error_message();
  EXPECT_EQ(call(&Stub::GetConfig).path(), "");
  EXPECT_TRUE(status_.ok()) << status_.error_message();
}

TEST_F(ObserveServiceTest, GetStatusSaysWhatTheDaemonSaysOfItself) {
  SelfReport& self = builder_.snapshot().self;
  self.bounds = {{.bound = Bound::kCells, .used = 3, .limit = 8'192, .highest = 5}};
  self.add(MemoryPart::kKernelMaps, 7);
  DurationCounts delays;
  delays.add(std::chrono::nanoseconds(1'000));
  self.steps = {{std::string(kLoopDelayStep), delays.get()}};
  publish();

  const v1::GetStatusResponse response = call(&Stub::GetStatus);

  ASSERT_EQ(response.bounds_size(), 1);
  EXPECT_EQ(response.bounds(0).DebugString(), parse_text<v1::BoundLevel>(R"(
      bound: "cells" unit: "(function, process) pairs" used: 3 highest: 5 limit: 8192
      setting: "stats.max_cells"
      when_full: "calls of further pairs are counted under process \"other\"")")
                                                  .DebugString());
  ASSERT_EQ(response.steps_size(), 1);
  EXPECT_EQ(response.steps(0).DebugString(), parse_text<v1::StepTime>(R"(
      step: "loop_delay" count: 1 total_ns: 1000 p50_ns: 1000 p99_ns: 1000 longest_ns: 1000)")
                                                 .DebugString());
  ASSERT_EQ(response.memory_size(), 1);
  EXPECT_EQ(response.memory(0).part(), "bpf_maps");
  EXPECT_EQ(response.memory(0).bytes(), 7u);
  EXPECT_FALSE(response.memory(0).resident());
}

TEST_F(ObserveServiceTest, GetStatusShowsTheWholeState) {
  builder_.facts() = {.version = "0.1.0",
                      .pid = 100,
                      .start_unix_ns = 5,
                      .kernel = "6.18.0",
                      .config_path = "/etc/gpuperf/config.json",
                      .metrics_address = "127.0.0.1:9465"};
  builder_.probes() = {.mechanism = "multi",
                       .files = 3,
                       .probes = {{.state = ProbeState::kAttached},
                                  {.state = ProbeState::kAttached},
                                  {.state = ProbeState::kEntryOnly},
                                  {.state = ProbeState::kWaiting},
                                  {.state = ProbeState::kSymbolMissing},
                                  {.state = ProbeState::kFailed},
                                  {.state = ProbeState::kDisabled},
                                  {.state = ProbeState::kSuspended},
                                  {.state = ProbeState::kAlias}},
                       .problems = {{"probes", "libfoo.so: unreadable", "check its mode"}}};
  builder_.snapshot().processes = {
      {.process = {.pid = 0}}, {.process = {.pid = 7}}, {.process = {.pid = 8}, .exited = true}};
  builder_.snapshot().cpu_ns = 11;
  builder_.snapshot().resident_bytes = 12;
  builder_.snapshot().injection_ways = {{"cdi", true, "/run/cdi/gpuperf.json"},
                                        {"device_plugin", false, "no kubelet"}};
  FunctionTotals totals = make_totals({1'000, 2'000});
  totals.slow_calls = 1;
  builder_.add_series(add_function("cuda", "f"), {.comm = "a"}, totals);
  builder_.add_series(0, {.comm = "b"}, totals);
  publish();
  drops_.add(DropCause::kBpfSlowRingFull, 17);

  const v1::GetStatusResponse response = call(&Stub::GetStatus);

  EXPECT_EQ(response.DebugString(), parse_text<v1::GetStatusResponse>(R"(
      version: "0.1.0" pid: 100 start_unix_ns: 5 mechanism: "multi"
      config_path: "/etc/gpuperf/config.json" metrics_address: "127.0.0.1:9465"
      probes { attached: 2 entry_only: 1 waiting: 1 symbol_missing: 1 failed: 1 disabled: 1
               suspended: 1 alias: 1 }
      processes: 1 files: 3 calls: 4 slow_calls: 2 cpu_ns: 11 resident_bytes: 12
      problems { subject: "probes" message: "libfoo.so: unreadable" hint: "check its mode" }
      drops { stage: "bpf" reason: "slow_ring_full" count: 17
              meaning: "records of slow calls; the calls themselves are counted" }
      kernel: "6.18.0" sessions {}
      gpus_reason: "not read yet, or disabled: stats.gpu_interval_ms"
      recorder {}
      injection_ways { way: "cdi" working: true detail: "/run/cdi/gpuperf.json" }
      injection_ways { way: "device_plugin" detail: "no kubelet" }
      overhead_demand: OVERHEAD_DEMAND_NONE)")
                                        .DebugString());
}

TEST_F(ObserveServiceTest, ListProcessesPutsRunningOnesFirst) {
  builder_.snapshot().processes = {
      {.process = {.pid = 1}, .owner = {.container = "abc", .pod = "p"}, .exited = true},
      {.process = {.pid = 2}, .owner = {.container = "abd"}},
      {.process = {.pid = 3}}};
  publish();
  const auto list = [this](const std::string& request) {
    std::vector<uint32_t> pids;
    const v1::ListProcessesResponse response = call(&Stub::ListProcesses, request);
    for (const auto& row : response.processes()) pids.push_back(row.pid());
    return pids;
  };

  EXPECT_THAT(list(""), ElementsAre(2, 3, 1));
  EXPECT_THAT(list("filter { pid: 3 }"), ElementsAre(3));
  EXPECT_THAT(list("filter { container: \"ab\" }"), ElementsAre(2, 1));
  EXPECT_THAT(list("filter { container: \"abd\" }"), ElementsAre(2));
  EXPECT_THAT(list("filter { pod: \"p\" }"), ElementsAre(1));
  EXPECT_THAT(list("page { limit: 2 }"), ElementsAre(2, 3));
}

TEST_F(ObserveServiceTest, ListProbesKeepsTheOrderOfTheConfiguration) {
  builder_.probes().probes = {{.category = "nccl", .function = "ncclAllReduce"},
                              {.category = "cuda", .function = "cudaMalloc"},
                              {.category = "cuda", .function = "cudaFree"}};
  publish();
  const auto list = [this](const std::string& request) {
    std::vector<std::string> names;
    const v1::ListProbesResponse response = call(&Stub::ListProbes, request);
    for (const auto& row : response.probes()) names.push_back(row.function());
    return names;
  };

  EXPECT_THAT(list(""), ElementsAre("ncclAllReduce", "cudaMalloc", "cudaFree"));
  EXPECT_THAT(list("filter { category: \"cuda\" }"), ElementsAre("cudaMalloc", "cudaFree"));
  EXPECT_THAT(list("filter { function: \"*M*\" }"), ElementsAre("cudaMalloc"));
}

TEST_F(ObserveServiceTest, SumsFunctionsOverAllProcessesWithForgottenOnes) {
  publish_functions();

  EXPECT_THAT(list_functions(""), ElementsAre("cublasGemmEx/0:1", "cudaMalloc/0:4"));
  EXPECT_THAT(list_functions("filter { category: \"cuda\" }"), ElementsAre("cudaMalloc/0:4"));
  EXPECT_THAT(list_functions("filter { function: \"*Gemm*\" }"), ElementsAre("cublasGemmEx/0:1"));
  EXPECT_THAT(list_functions("filter { container: \"0123\" category: \"cuda\" }"),
              ElementsAre("cudaMalloc/0:3"));
  EXPECT_THAT(list_functions("filter { pod: \"train-0\" category: \"cuda\" }"),
              ElementsAre("cudaMalloc/0:3"));
  EXPECT_THAT(list_functions("filter { pod: \"other\" }"), IsEmpty());
}

TEST_F(ObserveServiceTest, SumsOverOneProcessFromItsRows) {
  publish_functions();

  EXPECT_THAT(list_functions("filter { pid: 1 }"),
              ElementsAre("cublasGemmEx/0:1", "cudaMalloc/0:2"));
}

TEST_F(ObserveServiceTest, ASumHasTheExtremesOfAllAndNoOwner) {
  publish_functions();

  const v1::ListFunctionsResponse response =
      call(&Stub::ListFunctions, "filter { category: \"cuda\" }");

  ASSERT_EQ(response.functions_size(), 1);
  const v1::FunctionStats& stats = response.functions(0);
  EXPECT_EQ(stats.min_ns(), 1'000u);
  EXPECT_EQ(stats.max_ns(), 8'000u);
  EXPECT_EQ(stats.total_ns(), 15'000u);
  EXPECT_EQ(stats.avg_ns(), 3'750u);
  EXPECT_EQ(stats.comm() + stats.container() + stats.pod() + stats.namespace_(), "");
}

TEST_F(ObserveServiceTest, GivesBucketsToThoseWhoAskForThem) {
  publish_functions();
  // "duration:calls" of the only row.
  const auto list_buckets = [&](const std::string& request) {
    std::vector<std::string> buckets;
    const auto response = call(&Stub::ListFunctions, request);
    EXPECT_EQ(response.functions_size(), 1) << request;
    for (const v1::DurationBucket& bucket : response.functions(0).buckets()) {
      buckets.push_back(std::to_string(bucket.duration_ns()) + ":" +
                        std::to_string(bucket.calls()));
    }
    return buckets;
  };

  EXPECT_THAT(list_buckets("with_buckets: true filter { category: \"cuda\" }"),
              ElementsAre("1008:1", "2016:1", "4032:1", "8064:1"));
  EXPECT_THAT(list_buckets("with_buckets: true per_process: true filter { pid: 2 }"),
              ElementsAre("4032:1"));
  EXPECT_THAT(list_buckets("filter { category: \"cuda\" }"), IsEmpty());
}

TEST_F(ObserveServiceTest, ListsFunctionsPerProcess) {
  publish_functions();

  EXPECT_THAT(list_functions("per_process: true"),
              ElementsAre("cublasGemmEx/1:1", "cudaMalloc/2:1", "cudaMalloc/1:2"));
  EXPECT_THAT(list_functions("per_process: true filter { pid: 2 }"), ElementsAre("cudaMalloc/2:1"));
  EXPECT_THAT(list_functions("per_process: true filter { container: \"0123456789ab\" }"),
              ElementsAre("cublasGemmEx/1:1", "cudaMalloc/1:2"));
}

TEST_F(ObserveServiceTest, ShowsTheOldestCallInFlightOfEveryFunction) {
  publish_in_flight();
  const auto list = [this](const std::string& request) {
    std::vector<uint64_t> ages_ns;
    const v1::ListFunctionsResponse response = call(&Stub::ListFunctions, request);
    for (const auto& row : response.functions()) ages_ns.push_back(row.oldest_in_flight_ns());
    return ages_ns;
  };

  // By total time: cublasGemmEx, cudaMalloc.
  EXPECT_THAT(list(""), ElementsAre(5'000, 7'000));
  EXPECT_THAT(list("filter { pid: 2 }"), ElementsAre(6'000));
  EXPECT_THAT(list("filter { pod: \"train-0\" }"), ElementsAre(5'000, 7'000));
  // cublasGemmEx of 1, cudaMalloc of 2 and of 1.
  EXPECT_THAT(list("per_process: true"), ElementsAre(5'000, 6'000, 7'000));
}

TEST_F(ObserveServiceTest, ShowsTheCoverageOfEveryFunctionAndWhenItsTotalsWereRead) {
  builder_.snapshot().coverage = {0.5};
  builder_.snapshot().totals_mono_ns = 77;
  publish_functions();

  const v1::ListFunctionsResponse summed = call(&Stub::ListFunctions);
  const v1::ListFunctionsResponse rows = call(&Stub::ListFunctions, "per_process: true");

  EXPECT_EQ(summed.taken_mono_ns(), 77u);
  EXPECT_EQ(summed.functions(0).coverage(), 1);
  EXPECT_EQ(summed.functions(1).coverage(), 0.5);
  EXPECT_EQ(rows.functions(0).coverage(), 1);
  EXPECT_EQ(rows.functions(1).coverage(), 0.5);
}

TEST_F(ObserveServiceTest, ListsCallsInFlightLongestFirst) {
  publish_in_flight();

  EXPECT_THAT(list_in_flight(""), ElementsAre("cudaMalloc/1.10:7000", "cudaMalloc/2.20:6000",
                                              "cublasGemmEx/1.10:5000", "cudaMalloc/1.11:1000"));
  EXPECT_THAT(list_in_flight("filter { pid: 2 }"), ElementsAre("cudaMalloc/2.20:6000"));
  EXPECT_THAT(list_in_flight("filter { category: \"cublas\" }"),
              ElementsAre("cublasGemmEx/1.10:5000"));
  EXPECT_THAT(list_in_flight("filter { pod: \"train-0\" min_duration_ns: 5000 }"),
              ElementsAre("cudaMalloc/1.10:7000", "cublasGemmEx/1.10:5000"));
}

TEST_F(ObserveServiceTest, PagesThroughCallsInFlightAndSaysHowOldTheLookIs) {
  publish_in_flight();
  clock_.set_mono_ns(12'500);

  const auto first = call(&Stub::ListInFlightCalls, "page { limit: 3 }");
  const auto second = call(&Stub::ListInFlightCalls,
                           "page { limit: 3 page_token: \"" + first.next_page_token() + "\" }");

  EXPECT_EQ(first.calls_size(), 3);
  EXPECT_EQ(first.look_age_ns(), 2'500u);
  ASSERT_EQ(second.calls_size(), 1);
  EXPECT_EQ(second.calls(0).age_ns(), 1'000u);
  EXPECT_EQ(second.next_page_token(), "");
}

TEST_F(ObserveServiceTest, SumsShapesOverTheProcessesThatMatch) {
  const uint32_t gemm = add_function("cublas", "gemm");
  const uint32_t strided = add_function("cublas", "strided");
  add_shape(gemm, 1, "a", 100, 5, 10);
  add_shape(gemm, 2, "b", 100, 7, 10);
  add_shape(gemm, 2, "b", 200, 1, 90);
  add_shape(strided, 1, "a", 100, 3, 50);
  add_shape(gemm, 0, "", 100, 20, 1);
  add_shape(9, 1, "a", 100, 3, 50);  // of no function of this snapshot
  publish();

  EXPECT_THAT(list_shapes(""), ElementsAre("gemm 100:32", "strided 100:3", "gemm 200:1"));
  EXPECT_THAT(list_shapes("sort: \"total_ns\""),
              ElementsAre("gemm 200:1", "strided 100:3", "gemm 100:32"));
  EXPECT_THAT(list_shapes("sort: \"calls\" filter { pid: 2 }"),
              ElementsAre("gemm 100:7", "gemm 200:1"));
  EXPECT_THAT(list_shapes("filter { pod: \"a\" function: \"g*\" }"), ElementsAre("gemm 100:5"));
  EXPECT_THAT(list_shapes("filter { category: \"cuda\" }"), IsEmpty());
  EXPECT_THAT(list_shapes("page { limit: 1 }"), ElementsAre("gemm 100:32"));
  call(&Stub::ListShapes, "sort: \"m\"");
  expect_error(grpc::StatusCode::INVALID_ARGUMENT,
               "sort: cannot sort by \"m\"; fields: flops, calls, total_ns");
}

TEST_F(ObserveServiceTest, ShowsWhatTheProbesCostEachProcess) {
  builder_.snapshot().processes = {{.process = {.pid = 1}}, {.process = {.pid = 2}}};
  builder_.snapshot().overhead = {{.process = {.pid = 2}, .ratio = 0.125}};
  publish();

  const v1::ListProcessesResponse response = call(&Stub::ListProcesses);

  EXPECT_EQ(response.processes(0).overhead_ratio(), 0);
  EXPECT_EQ(response.processes(1).overhead_ratio(), 0.125);
}

TEST_F(ObserveServiceTest, SortsFunctionsByEveryNumericField) {
  // Row "a" has the larger value of every field, and its name comes first.
  const uint32_t a = add_function("x", "a");
  const uint32_t b = add_function("x", "b");
  const auto add = [this](uint32_t id, uint64_t scale) {
    FunctionTotals totals = make_totals({1'000 * scale, 100'000 * scale});
    totals.calls = 100 * scale;
    totals.hooked = 50 * scale;
    totals.past_hooks = 20 * scale;
    totals.abandoned = 5 * scale;
    totals.untimed = 7 * scale;
    totals.slow_calls = scale;
    totals.other_errors = scale;
    builder_.add_row({.function_id = id,
                      .process = {.pid = static_cast<uint32_t>(10 * scale)},
                      .totals = totals});
  };
  add(b, 1);
  add(a, 2);
  publish();

  const google::protobuf::Descriptor& type = *v1::FunctionStats::descriptor();
  int sorted = 0;
  for (int i = 0; i < type.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *type.field(i);
    const bool numeric = !field.is_repeated() && (field.cpp_type() == field.CPPTYPE_UINT32 ||
                                                  field.cpp_type() == field.CPPTYPE_UINT64 ||
                                                  field.cpp_type() == field.CPPTYPE_DOUBLE);
    const auto rows = list_functions("per_process: true sort: \"" + field.name() + "\"");
    if (numeric || field.name() == "function") {
      EXPECT_THAT(rows, ElementsAre("a/20:200", "b/10:100")) << field.name();
      ++sorted;
    } else {
      EXPECT_EQ(status_.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << field.name();
    }
  }
  EXPECT_EQ(sorted, 23);  // 22 numbers and the name
}

TEST_F(ObserveServiceTest, SortsDescending) {
  publish_functions();

  EXPECT_THAT(list_functions("sort: \"calls\""), ElementsAre("cudaMalloc/0:4", "cublasGemmEx/0:1"));
  EXPECT_THAT(list_functions("sort: \"max_ns\""),
              ElementsAre("cublasGemmEx/0:1", "cudaMalloc/0:4"));
}

TEST_F(ObserveServiceTest, NamesTheFieldsToSortBy) {
  list_functions("sort: \"comm\"");
  expect_error(grpc::StatusCode::INVALID_ARGUMENT,
               "sort: cannot sort by \"comm\"; fields: function, pid, calls, errors,");

  list_slow_call_ids("sort: \"id\"");
  expect_error(grpc::StatusCode::INVALID_ARGUMENT, "fields: duration_ns, start_unix_ns");
}

TEST_F(ObserveServiceTest, PagesShowEveryRowOnceWhileNumbersChange) {
  constexpr uint32_t kRows = 25;
  for (uint32_t i = 0; i < kRows; ++i) {
    add_row(add_function("cuda", "f" + std::to_string(i)), 1, {}, {1'000 * (i + 1)});
  }
  publish();
  v1::ListFunctionsRequest request;
  request.set_per_process(true);
  request.mutable_page()->set_limit(7);
  std::vector<std::string> names;
  std::vector<int> sizes;

  do {
    const v1::ListFunctionsResponse response = call(&Stub::ListFunctions, request);
    ASSERT_TRUE(status_.ok()) << status_.error_message();
    sizes.push_back(response.functions_size());
    for (const auto& row : response.functions()) names.push_back(row.function());
    request.mutable_page()->set_page_token(response.next_page_token());
    // By the next page the last row has become the first.
    builder_.snapshot().rows.clear();
    add_row(0, 1, {}, {1'000'000'000});
    publish();
  } while (!request.page().page_token().empty());

  EXPECT_THAT(sizes, ElementsAre(7, 7, 7, 4));
  EXPECT_EQ(names.size(), kRows);
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), kRows);
  EXPECT_EQ(names.front(), "f24");
  EXPECT_EQ(names.back(), "f0");
}

TEST_F(ObserveServiceTest, PagesOfOtherListsShowEveryRowOnce) {
  for (uint32_t i = 1; i <= 10; ++i) {
    builder_.snapshot().processes.push_back({.process = {.pid = i}});
    builder_.probes().probes.push_back({.function = "f" + std::to_string(i)});
    add_slow_call(i, i, 100 * i, 1);
  }
  publish();
  const auto count_rows = [this](auto method, auto request, auto rows) {
    std::set<std::string> seen;
    int count = 0;
    do {
      request.mutable_page()->set_limit(3);
      auto response = call(method, request);
      EXPECT_TRUE(status_.ok()) << status_.error_message();
      for (const auto& row : (response.*rows)()) {
        seen.insert(row.SerializeAsString());
        ++count;
      }
      request.mutable_page()->set_page_token(response.next_page_token());
    } while (!request.page().page_token().empty() && count < 100);
    EXPECT_EQ(static_cast<int>(seen.size()), count);
    return count;
  };

  using Processes =
      const google::protobuf::RepeatedPtrField<v1::Process>& (v1::ListProcessesResponse::*)() const;
  using Probes =
      const google::protobuf::RepeatedPtrField<v1::Probe>& (v1::ListProbesResponse::*)() const;
  using Calls =
      const google::protobuf::RepeatedPtrField<v1::SlowCall>& (v1::ListSlowCallsResponse::*)()
          const;
  EXPECT_EQ(count_rows(&Stub::ListProcesses, v1::ListProcessesRequest(),
                       static_cast<Processes>(&v1::ListProcessesResponse::processes)),
            10);
  EXPECT_EQ(count_rows(&Stub::ListProbes, v1::ListProbesRequest(),
                       static_cast<Probes>(&v1::ListProbesResponse::probes)),
            10);
  EXPECT_EQ(count_rows(&Stub::ListSlowCalls, v1::ListSlowCallsRequest(),
                       static_cast<Calls>(&v1::ListSlowCallsResponse::slow_calls)),
            10);
}

TEST_F(ObserveServiceTest, RefusesBadPageTokens) {
  for (uint32_t i = 0; i < 3; ++i) add_row(add_function("cuda", "f"), i, {}, {1'000});
  publish();
  const std::string token =
      call(&Stub::ListFunctions, "per_process: true page { limit: 1 }").next_page_token();
  ASSERT_NE(token, "");

  list_functions("page { page_token: \"nonsense\" }");
  expect_error(grpc::StatusCode::INVALID_ARGUMENT, "page.page_token: not a token");
  list_functions("page { page_token: \"" + token + "\" }");  // per_process differs
  expect_error(grpc::StatusCode::INVALID_ARGUMENT, "another method, filter or order");
  call(&Stub::ListProcesses, "page { page_token: \"" + token + "\" }");
  expect_error(grpc::StatusCode::INVALID_ARGUMENT, "another method, filter or order");
  call(&Stub::ListProbes, "page { page_token: \"" + token + "\" }");
  expect_error(grpc::StatusCode::INVALID_ARGUMENT, "page.page_token");
  list_slow_call_ids("page { page_token: \"" + token + "\" }");
  expect_error(grpc::StatusCode::INVALID_ARGUMENT, "page.page_token");
  clock_.advance(std::chrono::seconds(61));
  list_functions("per_process: true page { limit: 1 page_token: \"" + token + "\" }");
  expect_error(grpc::StatusCode::INVALID_ARGUMENT, "expired");
}

TEST_F(ObserveServiceTest, PagesStayBelowWhatClientsAccept) {
  constexpr int kCalls = 300;
  const std::vector<StackFrame> frames(20, {.symbol = std::string(2'000, 'n')});
  const StackPtr stack = testing::make_stack(frames);
  for (uint64_t id = 1; id <= kCalls; ++id) {
    SlowCall slow{.id = id};
    slow.user_stack = stack;
    builder_.add_slow_call(std::move(slow));  // 40 kB
  }
  publish();
  v1::ListSlowCallsRequest request;
  request.mutable_page()->set_limit(10'000);
  std::set<uint64_t> ids;
  int pages = 0;

  do {
    const v1::ListSlowCallsResponse response = call_within(&Stub::ListSlowCalls, request);
    ASSERT_TRUE(status_.ok()) << status_.error_message();
    EXPECT_LT(response.ByteSizeLong(), 4u * 1024 * 1024);
    for (const auto& row : response.slow_calls()) EXPECT_TRUE(ids.insert(row.id()).second);
    request.mutable_page()->set_page_token(response.next_page_token());
    ++pages;
  } while (!request.page().page_token().empty());

  EXPECT_EQ(ids.size(), kCalls);
  EXPECT_GT(pages, 1);
}

TEST_F(ObserveServiceTest, ListsSlowCallsWorstFirst) {
  add_slow_call(1, 1'000, 500, 7);
  add_slow_call(2, 2'000, 900, 7);
  add_slow_call(3, 3'000, 700, 8);
  publish();

  EXPECT_THAT(list_slow_call_ids(""), ElementsAre(2, 3, 1));
  EXPECT_THAT(list_slow_call_ids("sort: \"duration_ns\""), ElementsAre(2, 3, 1));
  EXPECT_THAT(list_slow_call_ids("sort: \"start_unix_ns\""), ElementsAre(3, 2, 1));
  EXPECT_THAT(list_slow_call_ids("filter { pid: 7 }"), ElementsAre(2, 1));
  EXPECT_THAT(list_slow_call_ids("filter { min_duration_ns: 700 }"), ElementsAre(2, 3));
  EXPECT_THAT(list_slow_call_ids("filter { since_unix_ns: 2000 function: \"f7\" }"),
              ElementsAre(2));
}

TEST_F(ObserveServiceTest, GetsOneSlowCall) {
  add_slow_call(4, 1'000, 500, 7);
  publish();

  EXPECT_EQ(call(&Stub::GetSlowCall, "id: 4").slow_call().duration_ns(), 500u);
  EXPECT_TRUE(status_.ok()) << status_.error_message();
  call(&Stub::GetSlowCall, "id: 5");
  expect_error(grpc::StatusCode::NOT_FOUND, "slow call 5: never existed or no longer kept");
}

TEST_F(ObserveServiceTest, ShowsTheConfigurationInForce) {
  builder_.facts().config_path = "/etc/gpuperf/config.json";
  builder_.facts().config_json = "{}";
  builder_.facts().effective_json = "{\"slow\":{}}";
  publish();

  const v1::GetConfigResponse response = call(&Stub::GetConfig);

  EXPECT_EQ(response.DebugString(), parse_text<v1::GetConfigResponse>(R"(
      path: "/etc/gpuperf/config.json" json: "{}" effective_json: "{\"slow\":{}}")")
                                        .DebugString());
}

TEST_F(ObserveServiceTest, ChecksAConfigurationWithoutUsingIt) {
  EXPECT_THAT(call(&Stub::CheckConfig, "json: \"{}\"").errors(), IsEmpty());
  EXPECT_TRUE(status_.ok()) << status_.error_message();

  const v1::CheckConfigResponse response = call(&Stub::CheckConfig, "json: \"[\"");
  EXPECT_EQ(response.DebugString(), parse_text<v1::CheckConfigResponse>(R"(
      errors { path: "line 1, column 1" message: "not JSON" hint: "begin with {" })")
                                        .DebugString());
}

TEST_F(ObserveServiceTest, RefusesAConfigurationOfMoreThanOneMebibyte) {
  v1::CheckConfigRequest request;
  request.set_json(std::string(1024 * 1024, ' '));
  const v1::CheckConfigResponse response = call_within(&Stub::CheckConfig, request);
  EXPECT_TRUE(status_.ok()) << status_.error_message();
  EXPECT_EQ(response.errors_size(), 1);

  request.set_json(std::string(1024 * 1024 + 1, ' '));
  call_within(&Stub::CheckConfig, request);
  expect_error(grpc::StatusCode::RESOURCE_EXHAUSTED, "a configuration has at most 1048576");
}

}  // namespace
}  // namespace gpuperf
