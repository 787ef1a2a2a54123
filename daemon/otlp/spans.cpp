#include "daemon/otlp/spans.h"

#include <algorithm>
#include <utility>

#include "daemon/model/display_text.h"
#include "daemon/model/status_names.h"
#include "daemon/otlp/ids.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.pb.h"

namespace gpuperf::otlp {
namespace {

namespace trace = ::opentelemetry::proto::trace::v1;
using ExportTraces = ::opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest;

// `part`: 0 and 1 the halves of the trace's id, 2 the call's span, 3 and up the children's.
std::string make_id(const SlowCall& call, std::string_view host_id, uint64_t part) {
  return IdHash(part).add(host_id).add(call.start_unix_ns).add(call.id).take();
}

void add_time_split(const TimeSplit& split, uint64_t duration_ns, trace::Span& span) {
  const TimeParts parts = make_time_parts(split, duration_ns);
  add_number(span, "gpuperf.time.on_cpu_user_ns", parts.on_cpu_user_ns);
  add_number(span, "gpuperf.time.on_cpu_kernel_ns", parts.on_cpu_kernel_ns);
  add_number(span, "gpuperf.time.on_cpu_fault_ns", parts.on_cpu_fault_ns);
  add_number(span, "gpuperf.time.runnable_ns", parts.runnable_ns);
  add_number(span, "gpuperf.time.throttled_ns", parts.throttled_ns);
  for (size_t kind = 0; kind < parts.blocked_ns.size(); ++kind) {
    if (parts.blocked_ns[kind] == 0) continue;
    const std::string name(get_wait_kind_name(static_cast<WaitKind>(kind)));
    add_number(span, "gpuperf.time.blocked." + name + "_ns", parts.blocked_ns[kind]);
  }
}

void add_gpu(const GpuDuringCall& gpu, trace::Span& span) {
  std::string missing;
  for (const std::string& why : gpu.missing) missing += (missing.empty() ? "" : "; ") + why;
  add_text(span, "gpuperf.gpu.missing", to_valid_utf8(missing));
  if (!is_known(gpu)) return;
  add_number(span, "gpuperf.gpu.busy_ns", gpu.busy_ns);
  add_number(span, "gpuperf.gpu.idle_ns", gpu.idle_ns);
  add_number(span, "gpuperf.gpu.others_ns", gpu.others_ns);
  if (gpu.work_count > gpu.longest.size()) {
    add_number(span, "gpuperf.gpu.work_without_span_count", gpu.work_count - gpu.longest.size());
  }
}

std::string join_frames(const StackPtr& stack) {
  std::string text;
  for (const StackFrame& frame : get_frames(stack)) {
    if (!text.empty()) text += '\n';
    text += to_valid_utf8(format_frame(frame));
  }
  return text;
}

void set_status(const SlowCall& call, trace::Span& span) {
  std::string why;
  if (call.is_gone) {
    why = "left without returning";
  } else if (call.event.return_value && call.status != StatusKind::kNone) {
    const auto code = static_cast<int32_t>(static_cast<uint32_t>(*call.event.return_value));
    const std::vector<int32_t> benign = get_benign_codes(call.status);
    if (code != 0 && std::ranges::find(benign, code) == benign.end()) {
      why = get_status_name(call.status, code);
    }
  }
  if (why.empty()) return;
  span.mutable_status()->set_code(trace::Status::STATUS_CODE_ERROR);
  span.mutable_status()->set_message(why);
}

trace::Span make_call_span(const SlowCall& call, std::string_view host_id) {
  const SlowCallEvent& event = call.event;
  trace::Span span;
  span.set_trace_id(make_id(call, host_id, 0) + make_id(call, host_id, 1));
  span.set_span_id(make_id(call, host_id, 2));
  span.set_name(to_valid_utf8(call.function));
  span.set_kind(trace::Span::SPAN_KIND_INTERNAL);
  span.set_start_time_unix_nano(call.start_unix_ns);
  span.set_end_time_unix_nano(call.start_unix_ns + event.duration_ns);
  add_number(span, "gpuperf.slow_call.id", call.id);
  add_text(span, "gpuperf.category", to_valid_utf8(call.category));
  add_number(span, "gpuperf.threshold_ns", event.threshold_ns);
  add_text(span, "gpuperf.reason", event.is_adaptive ? "adaptive" : "absolute");
  add_process(span, event.process, event.owner);
  add_number(span, "thread.id", event.tid);
  add_text(span, "thread.name", to_valid_utf8(event.comm));
  for (const ArgumentText& argument : call.arguments) {
    add_text(span, "gpuperf.argument." + to_valid_utf8(argument.name),
             to_valid_utf8(argument.value));
  }
  add_text(span, "gpuperf.return_value", format_return_value(call));
  if (event.split) add_time_split(*event.split, event.duration_ns, span);
  if (call.gpu != nullptr) add_gpu(*call.gpu, span);
  add_text(span, "gpuperf.explanation", to_valid_utf8(call.explanation));
  add_text(span, "code.stacktrace", join_frames(call.user_stack));
  set_status(call, span);
  return span;
}

trace::Span make_work_span(const SlowCall& call, const GpuWorkSpan& work,
                           const trace::Span& parent) {
  // Between the two clocks lies what lies between them at the call's start.
  const uint64_t start_unix_ns =
      call.start_unix_ns + (work.start_mono_ns - call.event.start_mono_ns);
  trace::Span span;
  span.set_trace_id(parent.trace_id());
  span.set_parent_span_id(parent.span_id());
  span.set_name(to_valid_utf8(work.short_name));
  span.set_kind(trace::Span::SPAN_KIND_INTERNAL);
  span.set_start_time_unix_nano(start_unix_ns);
  span.set_end_time_unix_nano(start_unix_ns + work.duration_ns);
  add_text(span, "gpuperf.gpu.work", to_valid_utf8(work.name));
  add_text(span, "gpuperf.gpu.uuid", work.device_uuid);
  add_number(span, "gpuperf.gpu.device", work.device_number);
  if (work.stream != UINT32_MAX) add_number(span, "gpuperf.gpu.stream", work.stream);
  if (work.correlation_id != 0) {
    add_number(span, "gpuperf.gpu.correlation_id", work.correlation_id);
  }
  if (work.bytes != 0) add_number(span, "gpuperf.gpu.bytes", work.bytes);
  return span;
}

}  // namespace

std::vector<trace::Span> make_spans(const SlowCall& call, std::string_view host_id) {
  std::vector<trace::Span> spans = {make_call_span(call, host_id)};
  if (call.gpu == nullptr) return spans;
  for (const GpuWorkSpan& work : call.gpu->longest) {
    trace::Span span = make_work_span(call, work, spans.front());
    span.set_span_id(make_id(call, host_id, 2 + spans.size()));
    spans.push_back(std::move(span));
  }
  return spans;
}

std::vector<Request> make_span_requests(std::span<const std::shared_ptr<const SlowCall>> calls,
                                        const Origin& origin, std::string_view host_id,
                                        size_t max_bytes) {
  std::vector<Request> requests;
  ExportTraces request;
  size_t bytes = 0, items = 0;
  const auto close = [&] {
    if (items == 0) return;
    auto& resource = *request.mutable_resource_spans(0);
    *resource.mutable_resource() = origin.resource;
    *resource.mutable_scope_spans(0)->mutable_scope() = origin.scope;
    requests.push_back({.bytes = request.SerializeAsString(), .items = items});
    request.Clear();
    bytes = items = 0;
  };
  for (const auto& call : calls) {
    if (items == 0) request.add_resource_spans()->add_scope_spans();
    for (trace::Span& span : make_spans(*call, host_id)) {
      bytes += span.ByteSizeLong();
      ++items;
      *request.mutable_resource_spans(0)->mutable_scope_spans(0)->add_spans() = std::move(span);
    }
    if (bytes >= max_bytes) close();
  }
  close();
  return requests;
}

}  // namespace gpuperf::otlp
