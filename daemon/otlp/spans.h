#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/model/snapshot.h"
#include "daemon/otlp/attributes.h"
#include "daemon/otlp/request.h"
#include "opentelemetry/proto/trace/v1/trace.pb.h"

namespace gpuperf::otlp {

// Pieces of GPU work that become children of one slow call's span.
inline constexpr size_t kMaxChildSpans = 32;

// The span of a slow call that has ended, and after it those of the GPU's work during it. A trace
// has one call: its id comes from host, start and number of the call, so that a call that is sent
// twice is one trace.
std::vector<::opentelemetry::proto::trace::v1::Span> make_spans(const SlowCall& call,
                                                                std::string_view host_id);

// ExportTraceServiceRequests with the spans of these calls.
std::vector<Request> make_span_requests(std::span<const std::shared_ptr<const SlowCall>> calls,
                                        const Origin& origin, std::string_view host_id,
                                        size_t max_bytes = kRequestBytes);

}  // namespace gpuperf::otlp
