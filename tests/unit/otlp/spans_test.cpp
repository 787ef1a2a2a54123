#include "daemon/otlp/spans.h"

#include <gtest/gtest.h>

#include <set>

#include "opentelemetry/proto/collector/trace/v1/trace_service.pb.h"
#include "tests/unit/model/make_stack.h"
#include "tests/unit/otlp/messages.h"

namespace gpuperf::otlp {
namespace {

using SpansRequest = ::opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest;
using testing::is_message;
using testing::parse_bytes;

SlowCall make_call() {
  SlowCall call{.id = 7,
                .category = "cuda",
                .function = "cudaMalloc",
                .status = StatusKind::kCudaRuntime,
                .start_unix_ns = 1'000'000};
  call.event = {.process = {.pid = 42, .start_boot_ns = 5},
                .owner = {.comm = "python",
                          .container = "0123456789ab",
                          .pod = "train-0",
                          .pod_namespace = "ml"},
                .tid = 43,
                .comm = "worker",
                .start_mono_ns = 9'000,
                .duration_ns = 500,
                .threshold_ns = 100,
                .return_value = 2};
  call.event.split = TimeSplit{.runnable_ns = 60};
  call.event.split->waits_ns[static_cast<size_t>(WaitKind::kGpu)] = 400;
  call.arguments = {{"size", "4096"}};
  call.explanation = "Waited for the GPU.";
  call.user_stack =
      gpuperf::testing::make_stack({{.symbol = "a", .offset_bytes = 16}, {.symbol = "b"}});
  return call;
}

// Without its ids, which are checked apart.
::opentelemetry::proto::trace::v1::Span strip_ids(::opentelemetry::proto::trace::v1::Span span) {
  span.clear_trace_id();
  span.clear_span_id();
  span.clear_parent_span_id();
  return span;
}

TEST(OtlpSpansTest, SaysOfASlowCallWhatTheApiSays) {
  const auto spans = make_spans(make_call(), "host");

  ASSERT_EQ(spans.size(), 1u);
  EXPECT_TRUE(is_message(strip_ids(spans[0]), R"(
    name: "cudaMalloc" kind: SPAN_KIND_INTERNAL
    start_time_unix_nano: 1000000 end_time_unix_nano: 1000500
    attributes { key: "gpuperf.slow_call.id" value { int_value: 7 } }
    attributes { key: "gpuperf.category" value { string_value: "cuda" } }
    attributes { key: "gpuperf.threshold_ns" value { int_value: 100 } }
    attributes { key: "gpuperf.reason" value { string_value: "absolute" } }
    attributes { key: "process.pid" value { int_value: 42 } }
    attributes { key: "process.executable.name" value { string_value: "python" } }
    attributes { key: "container.id" value { string_value: "0123456789ab" } }
    attributes { key: "k8s.pod.name" value { string_value: "train-0" } }
    attributes { key: "k8s.namespace.name" value { string_value: "ml" } }
    attributes { key: "thread.id" value { int_value: 43 } }
    attributes { key: "thread.name" value { string_value: "worker" } }
    attributes { key: "gpuperf.argument.size" value { string_value: "4096" } }
    attributes { key: "gpuperf.return_value"
                 value { string_value: "cudaErrorMemoryAllocation" } }
    attributes { key: "gpuperf.time.on_cpu_user_ns" value { int_value: 40 } }
    attributes { key: "gpuperf.time.on_cpu_kernel_ns" value { int_value: 0 } }
    attributes { key: "gpuperf.time.on_cpu_fault_ns" value { int_value: 0 } }
    attributes { key: "gpuperf.time.runnable_ns" value { int_value: 60 } }
    attributes { key: "gpuperf.time.throttled_ns" value { int_value: 0 } }
    attributes { key: "gpuperf.time.blocked.gpu_ns" value { int_value: 400 } }
    attributes { key: "gpuperf.explanation" value { string_value: "Waited for the GPU." } }
    attributes { key: "code.stacktrace" value { string_value: "a+0x10\nb+0x0" } }
    status { code: STATUS_CODE_ERROR message: "cudaErrorMemoryAllocation" })"));
}

TEST(OtlpSpansTest, MakesChildrenOfTheWorkOfTheGpu) {
  SlowCall call = make_call();
  call.gpu = std::make_shared<const GpuDuringCall>(
      GpuDuringCall{.busy_ns = 450,
                    .idle_ns = 50,
                    .longest = {{.name = "gemm<int>",
                                 .short_name = "gemm",
                                 .start_mono_ns = 8'900,
                                 .duration_ns = 300,
                                 .device_uuid = "GPU-01",
                                 .device_number = 1,
                                 .stream = 7,
                                 .correlation_id = 99},
                                {.name = "copy host_to_device",
                                 .short_name = "copy host_to_device",
                                 .start_mono_ns = 9'200,
                                 .duration_ns = 250,
                                 .stream = UINT32_MAX,
                                 .bytes = 4'096}},
                    .work_count = 12});

  const auto spans = make_spans(call, "host");

  ASSERT_EQ(spans.size(), 3u);
  // It began before the call did: its span does, too.
  EXPECT_TRUE(is_message(strip_ids(spans[1]), R"(
    name: "gemm" kind: SPAN_KIND_INTERNAL start_time_unix_nano: 999900 end_time_unix_nano: 1000200
    attributes { key: "gpuperf.gpu.work" value { string_value: "gemm<int>"
}
}
attributes {
key:
  "gpuperf.gpu.uuid" value {
  string_value:
    "GPU-01"
  }
}
attributes {
key:
  "gpuperf.gpu.device" value {
  int_value:
    1
  }
}
attributes {
key:
  "gpuperf.gpu.stream" value {
  int_value:
    7
  }
}
    attributes { key: "gpuperf.gpu.correlation_id" value { int_value: 99 } })"));
  EXPECT_TRUE(is_message(strip_ids(spans[2]), R"(
    name: "copy host_to_device" kind: SPAN_KIND_INTERNAL
    start_time_unix_nano: 1000200 end_time_unix_nano: 1000450
    attributes { key: "gpuperf.gpu.work" value { string_value: "copy host_to_device" } }
    attributes { key: "gpuperf.gpu.device" value { int_value: 0 } }
    attributes { key: "gpuperf.gpu.bytes" value { int_value: 4096 } })"));
  const std::string parent = spans[0].DebugString();
  EXPECT_NE(parent.find("gpuperf.gpu.work_without_span_count"), parent.npos);
  std::set<std::string> ids;
  for (const auto& span : spans) {
    EXPECT_EQ(span.trace_id(), spans[0].trace_id());
    EXPECT_EQ(span.trace_id().size(), 16u);
    EXPECT_EQ(span.span_id().size(), 8u);
    ids.insert(span.span_id());
  }
  EXPECT_EQ(ids.size(), 3u);
  EXPECT_EQ(spans[0].parent_span_id(), "");
  EXPECT_EQ(spans[1].parent_span_id(), spans[0].span_id());
  EXPECT_EQ(spans[2].parent_span_id(), spans[0].span_id());
}

TEST(OtlpSpansTest, GivesACallTheSameIdsAgainAndOthersOthers) {
  SlowCall later = make_call();
  later.start_unix_ns += 1;

  EXPECT_EQ(make_spans(make_call(), "host")[0].trace_id(),
            make_spans(make_call(), "host")[0].trace_id());
  EXPECT_NE(make_spans(make_call(), "host")[0].trace_id(), make_spans(later, "host")[0].trace_id());
  EXPECT_NE(make_spans(make_call(), "host")[0].trace_id(),
            make_spans(make_call(), "other")[0].trace_id());
}

TEST(OtlpSpansTest, TakesACodeThatOnlyMeansNotReadyForNoError) {
  SlowCall call = make_call();
  call.event.return_value = 600;  // cudaErrorNotReady

  EXPECT_FALSE(make_spans(call, "host")[0].has_status());
}

TEST(OtlpSpansTest, SaysThatACallLeftWithoutReturning) {
  SlowCall call = make_call();
  call.event.return_value.reset();
  call.is_gone = true;

  EXPECT_EQ(make_spans(call, "host")[0].status().message(), "left without returning");
}

TEST(OtlpSpansTest, SplitsWhatIsTooLargeForOneRequestAndLosesNothing) {
  std::vector<std::shared_ptr<const SlowCall>> calls;
  for (uint64_t id = 1; id <= 20; ++id) {
    SlowCall call = make_call();
    call.id = id;
    calls.push_back(std::make_shared<const SlowCall>(std::move(call)));
  }

  const auto requests =
      make_span_requests(calls, make_origin({{"service.name", "x"}}, "1"), "host", 3'000);

  EXPECT_GT(requests.size(), 3u);
  std::set<std::string> traces;
  for (const Request& request : requests) {
    const auto message = parse_bytes<SpansRequest>(request.bytes);
    ASSERT_EQ(message.resource_spans_size(), 1);
    EXPECT_EQ(message.resource_spans(0).resource().attributes_size(), 1);
    const auto& scope = message.resource_spans(0).scope_spans(0);
    EXPECT_EQ(scope.scope().name(), "gpuperf");
    EXPECT_EQ(static_cast<size_t>(scope.spans_size()), request.items);
    for (const auto& span : scope.spans()) traces.insert(span.trace_id());
  }
  EXPECT_EQ(traces.size(), 20u);
}

}  // namespace
}  // namespace gpuperf::otlp
