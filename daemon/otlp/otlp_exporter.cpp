#include "daemon/otlp/otlp_exporter.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "daemon/otlp/metrics.h"
#include "daemon/otlp/profiles.h"
#include "daemon/otlp/spans.h"

namespace gpuperf::otlp {
namespace {

using std::chrono::steady_clock;

// Slow calls that come one after the other become one request.
constexpr std::chrono::milliseconds kGatherCalls{500};
// What the daemon's stop may wait for the receiver.
constexpr std::chrono::seconds kStopTime{2};
// So that a receiver that comes back is found at about the pace of the requests that wait for it.
constexpr int kLongestReconnectMs = 10'000;

constexpr const char* kMetricsMethod =
    "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
constexpr const char* kSpansMethod = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
constexpr const char* kProfilesMethod =
    "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";

std::shared_ptr<grpc::Channel> make_channel(const ExportOptions& options) {
  auto credentials = grpc::InsecureChannelCredentials();
  if (options.endpoint.is_encrypted) {
    credentials = grpc::SslCredentials({.pem_root_certs = options.ca_pem,
                                        .pem_private_key = options.key_pem,
                                        .pem_cert_chain = options.cert_pem});
  }
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kLongestReconnectMs);
  // The receiver says when to come again; gRPC need not try by itself as well.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  return grpc::CreateCustomChannel(format_host_port(options.endpoint.address), credentials,
                                   arguments);
}

// The host is known, whoever configures it: what they say comes on top.
Origin make_own_origin(const ExportOptions& options, const OtlpExporter::Parts& parts,
                       bool is_of_daemon) {
  std::map<std::string, std::string> attributes = options.attributes;
  attributes.insert({{"host.name", parts.host_name}, {"host.id", parts.host_id}});
  if (is_of_daemon) {
    attributes.insert({{kServiceName, "gpuperfd"}, {"service.version", parts.version}});
  }
  return make_origin(attributes, parts.version);
}

}  // namespace

OtlpExporter::OtlpExporter(ExportOptions options, Parts parts)
    : options_(std::move(options)),
      parts_(std::move(parts)),
      origin_(make_own_origin(options_, parts_, true)),
      profile_origin_(make_own_origin(options_, parts_, false)) {
  const auto channel = make_channel(options_);
  const auto make_sender = [&](const char* method) {
    return std::make_unique<Sender>(Sender::Options{.method = method,
                                                    .channel = channel,
                                                    .headers = options_.headers,
                                                    .timeout = options_.timeout,
                                                    .max_queued_bytes = options_.queue_bytes,
                                                    .retry = {}},
                                    parts_.drops);
  };
  if (options_.metrics) metrics_sender_ = make_sender(kMetricsMethod);
  if (options_.slow_calls) spans_sender_ = make_sender(kSpansMethod);
  if (options_.profiles) profiles_sender_ = make_sender(kProfilesMethod);
  thread_ = std::thread([this] { run(); });
}

OtlpExporter::~OtlpExporter() {
  const auto deadline = steady_clock::now() + kStopTime;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();  // it makes its last requests: no waiting in that
  for (Sender* sender : {metrics_sender_.get(), spans_sender_.get(), profiles_sender_.get()}) {
    if (sender != nullptr) sender->stop_by(deadline);
  }
}

void OtlpExporter::on_slow_call(const std::shared_ptr<const SlowCall>& call) {
  if (!options_.slow_calls) return;
  // A span is of something that has ended; one in flight is reported again when it has.
  if (call->event.in_flight && !call->is_gone) return;
  bool is_full = false;
  {
    const MutexLock lock(mutex_);
    calls_.push_back(call);
    is_full = calls_.size() > kMaxCalls;
    if (is_full) calls_.pop_front();
    waiting_calls_.note(calls_.size());
  }
  changed_.notify_all();
  if (is_full) parts_.drops.add(DropCause::kOtlpQueueFull);
}

void OtlpExporter::fill(SelfReport& report) {
  if (metrics_sender_) metrics_sender_->fill(Bound::kOtlpMetrics, report);
  if (spans_sender_) {
    spans_sender_->fill(Bound::kOtlpSpans, report);
    report.add(Bound::kOtlpCalls, waiting_calls_.take(), kMaxCalls);
  }
  if (profiles_sender_) profiles_sender_->fill(Bound::kOtlpProfiles, report);
}

void OtlpExporter::on_profile(const Capture& capture) {
  if (profiles_sender_ == nullptr) return;
  for (Request& request : make_profile_requests(capture, profile_origin_, parts_.host_id)) {
    profiles_sender_->post(std::move(request));
  }
}

std::vector<Problem> OtlpExporter::list_problems() const {
  std::vector<Problem> problems;
  const auto add = [&](const Sender* sender, const char* what) {
    if (sender == nullptr) return;
    if (std::string fault = sender->find_fault(); !fault.empty()) {
      problems.push_back(
          {"otlp",
           std::string(what) + " to " + format_host_port(options_.endpoint.address) + ": " + fault,
           "check export.otlp and the receiver; until then, the newest data is queued, and "
           "gpuperf_dropped_total{stage=\"otlp\"} counts the rest"});
    }
  };
  add(metrics_sender_.get(), "metrics");
  add(spans_sender_.get(), "slow calls");
  add(profiles_sender_.get(), "profiles");
  return problems;
}

void OtlpExporter::run() {
  auto next_metrics = steady_clock::now() + options_.interval;
  bool is_stopping = false;
  while (!is_stopping) {
    std::vector<CallPtr> calls;
    {
      MutexLock lock(mutex_);
      while (!stopping_ && calls_.empty() && changed_.wait_until(lock, next_metrics)) continue;
      if (!calls_.empty()) {
        const auto until = std::min(next_metrics, steady_clock::now() + kGatherCalls);
        while (!stopping_ && changed_.wait_until(lock, until)) continue;
        calls.assign(calls_.begin(), calls_.end());
        calls_.clear();
        waiting_calls_.note(0);
      }
      is_stopping = stopping_;
    }
    if (!calls.empty()) send_calls(calls);
    if (!is_stopping && steady_clock::now() < next_metrics) continue;
    send_metrics();
    // What a busy machine made late is not made up for.
    next_metrics = std::max(next_metrics + options_.interval, steady_clock::now());
  }
}

void OtlpExporter::send_metrics() {
  if (metrics_sender_ == nullptr) return;
  const auto families = parts_.metrics.Collect();
  const MetricTimes times{.start_unix_ns = parts_.start_unix_ns,
                          .now_unix_ns = static_cast<uint64_t>(parts_.clock.unix_ns())};
  for (Request& request : make_metrics_requests(families, origin_, times)) {
    metrics_sender_->post(std::move(request));
  }
}

void OtlpExporter::send_calls(const std::vector<CallPtr>& calls) {
  for (Request& request : make_span_requests(calls, origin_, parts_.host_id)) {
    spans_sender_->post(std::move(request));
  }
}

}  // namespace gpuperf::otlp
