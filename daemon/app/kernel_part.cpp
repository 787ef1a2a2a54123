#include "daemon/app/kernel_part.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "daemon/app/mechanism_failure.h"
#include "daemon/app/slow_calls_part.h"
#include "daemon/app/tracing_part.h"
#include "daemon/probe/attach/self_test.h"
#include "daemon/unwind/walk_tables.h"

namespace gpuperf {
namespace {

// Of a capture that has ended, waiting included; an estimate.
constexpr std::chrono::seconds kBuildTimeout{30};
// Of the memory of maps.
constexpr int64_t kMapLookPeriodNs = 10'000'000'000;

constexpr LogEvent kNothingProbed{"nothing is probed", "ba9fd991826c491ab3ba4e875f0f08a3"};

}  // namespace

Status KernelPart::start() {
  status_ = choose_mechanism();
  if (status_.ok()) {
    tracing_->set_programs(programs_.get());
  } else {
    log_warn(kNothingProbed, {{"error", std::string(status_.message())}});
  }
  start_symbolizer();
  return absl::OkStatus();
}

void KernelPart::stop() {
  tracing_->set_symbolizer(nullptr);
  slow_calls_.set_symbolizer(nullptr);
  symbolizer_.reset();  // answers what waits
  core_.loop->run_posted();
  slow_calls_.pipeline().stop_holding();
  tracing_->set_programs(nullptr);
  programs_.reset();
}

void KernelPart::advance(int64_t now_mono_ns) {
  if (programs_ && now_mono_ns >= next_map_look_ns_) {
    next_map_look_ns_ = now_mono_ns + kMapLookPeriodNs;
    map_bytes_ = programs_->read_map_bytes();
  }
  core_.reader.reap();
  if (symbolizer_) symbolizer_->reap_workers();
}

void KernelPart::fill(Snapshot& snapshot) const {
  if (symbolizer_) symbolizer_->fill(snapshot.self);
  if (programs_) snapshot.self.add(MemoryPart::kKernelMaps, map_bytes_);
  const size_t stuck = core_.reader.count_stuck();
  if (stuck == 0) return;
  snapshot.problems.push_back(
      {"memory", std::to_string(stuck) + " workers that read processes were killed but do not exit",
       "a process's memory is backed by a file system that does not respond; until it does, stacks "
       "in flight, Python names and new libraries of the process's user are missing"});
}

Status KernelPart::choose_mechanism() {
  std::vector<MechanismFailure> failures;
  for (const Mechanism mechanism : kMechanisms) {
    if (core_.options.mechanism && *core_.options.mechanism != mechanism) continue;
    Status works = try_mechanism(mechanism);
    if (works.ok()) works = load(mechanism);
    if (works.ok()) return works;
    log_info("mechanism unusable", {{"mechanism", std::string(get_mechanism_name(mechanism))},
                                    {"error", std::string(works.message())}});
    failures.push_back({.mechanism = mechanism, .status = works});
  }
  return explain_failures(read_kernel_facts(), failures, core_.options.mechanism);
}

Status KernelPart::load(Mechanism mechanism) {
  Programs::Sizes sizes{.functions = core_.registry.capacity(),
                        .cells = static_cast<uint32_t>(core_.settings.stats.max_cells),
                        .follow_threads = core_.settings.slow.time_split,
                        .follow_requests = core_.settings.requests.enabled};
  auto programs = Programs::load(mechanism, sizes);
  const auto do_without = [&](bool& part, std::string subject, std::string advice) {
    if (programs.ok() || !part) return;
    problems_.push_back(
        {std::move(subject), std::string(programs.status().message()), std::move(advice)});
    part = false;
    programs = Programs::load(mechanism, sizes);
  };
  do_without(sizes.follow_requests, "requests",
             "requests are not seen; use kernel 6.3 or later, or set requests.enabled = false");
  do_without(sizes.follow_threads, "time split",
             "slow calls have no time split; use kernel 5.18 or later, or set "
             "slow.time_split = false");
  RETURN_IF_ERROR(programs.status());
  programs_ = *std::move(programs);
  return absl::OkStatus();
}

void KernelPart::start_symbolizer() {
  Symbolizer::Options options;
  options.frames.proc = core_.reader.make_files();
  const auto& trace = core_.settings.trace;
  options.keep_gone_stacks =
      std::chrono::seconds(std::max(trace.recorder_seconds, trace.max_capture_seconds)) +
      kBuildTimeout;
  if (programs_) {
    options.tables = make_walk_tables(*programs_);
    options.forget_sent = [this](uint64_t raw_id) { forget_sent_stack(*programs_, raw_id); };
  }
  symbolizer_ = std::make_unique<Symbolizer>(std::move(options), core_.reader, core_.drops);
  slow_calls_.set_symbolizer(symbolizer_.get());
  tracing_->set_symbolizer(symbolizer_.get());
}

bool KernelPart::name_stack(const ProcessKey& process, uint64_t stack_id,
                            std::function<void(StackPtr)> on_named) const {
  const auto on_resolved = [loop = core_.loop.get(),
                            on_named = std::move(on_named)](Symbolizer::Stacks stacks) {
    loop->post([on_named, stack = std::move(stacks.front())] { on_named(stack); });
  };
  if (symbolizer_->post_resolve(process, {TakenStack{stack_id}}, on_resolved)) return true;
  core_.drops.add(DropCause::kSymbolsQueueFull);
  return false;
}

void KernelPart::take(std::vector<RawStack> stacks) {
  const std::vector<uint64_t> refused = symbolizer_->post_stacks(std::move(stacks));
  core_.drops.add(DropCause::kStacksQueueFull, refused.size());
  for (const uint64_t id : refused) forget_sent_stack(*programs_, id);
}

}  // namespace gpuperf
