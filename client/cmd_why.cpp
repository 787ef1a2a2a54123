// gpuperfctl why: where the time of a process went, what limits it, and what to look at.

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <string>

#include "client/capture_wait.h"
#include "client/view.h"
#include "client/why_text.h"

namespace gpuperf::client {
namespace {

constexpr const char* kDefaultLength = "5s";
constexpr uint64_t kDefaultFindings = 3;
// What a step is compared with: the steps of so long before it.
constexpr uint64_t kBeforeStepMs = 5'000;

struct Why {
  uint64_t capture = 0;  // 0 = of what happens now
  uint64_t step = 0;     // 0 = whole processes
  std::string length;
  std::string since;
};

// How far back the flight recorder is to be read for it.
Result<uint64_t> get_step_since_ms(Connection& connection, const v1::Step& step) {
  v1::ListCapturesRequest request;
  request.mutable_page()->set_limit(1);
  v1::ListCapturesResponse response;
  RETURN_IF_ERROR(connection.call("see what the flight recorder holds", request, &response));
  const uint64_t age_ns =
      read_wall_clock_ns() - std::min(read_wall_clock_ns(), step.start_unix_ns());
  if (age_ns <= response.recorder().span_ns()) return age_ns / 1'000'000 + kBeforeStepMs;
  return absl::FailedPreconditionError(fmt::format(
      "step {0} began {1} ago, and the flight recorder holds the last {2}; with a capture that has "
      "the step (gpuperfctl trace list): gpuperfctl why --capture ID --step {0}. To keep the next "
      "one: a rule with freeze (docs/configuration.md)",
      step.id(), format_duration(age_ns), format_duration(response.recorder().span_ns())));
}

// The capture asked for; one is made where none is. `step`: without an id if none is asked for.
Result<uint64_t> find_capture(const Invocation& invocation, const Why& asked,
                              const v1::Step& step) {
  if (asked.capture != 0) return asked.capture;
  ASSIGN_OR_RETURN(uint64_t since_ms, parse_flag_ms("--since", asked.since));
  ASSIGN_OR_RETURN(const uint64_t length_ms,
                   parse_flag_ms("--for", asked.length.empty() ? kDefaultLength : asked.length));
  ASSIGN_OR_RETURN(const std::unique_ptr<Interrupt> interrupt,
                   Interrupt::make(invocation.output.fd()));
  ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, connect_to_change(invocation));
  const Sleep sleep = [&](std::chrono::nanoseconds time) { return interrupt->wait_for(time); };
  if (step.id() != 0) {
    ASSIGN_OR_RETURN(since_ms, get_step_since_ms(*connection, step));
  }
  v1::GetCaptureResponse stored;
  if (since_ms > 0) {
    v1::FreezeRecorderRequest request;
    request.set_name(step.id() == 0 ? "why" : fmt::format("step {}", step.id()));
    *request.mutable_target() = make_target(invocation.options);
    request.set_last_ms(since_ms);
    ASSIGN_OR_RETURN(stored, freeze_and_wait(*connection, request, sleep));
  } else {
    v1::StartCaptureRequest request;
    request.set_name("why");
    *request.mutable_target() = make_target(invocation.options);
    request.set_duration_ms(length_ms);
    ASSIGN_OR_RETURN(stored, capture_and_wait(*connection, request, sleep));
  }
  return stored.capture().id();
}

Result<std::string> draw(Connection& connection, const View& view, const Options& options,
                         uint64_t id, const v1::Step& step) {
  v1::ExplainCaptureRequest request;
  request.set_id(id);
  request.set_pid(options.pid);
  request.set_container(options.container);
  request.set_pod(options.pod);
  request.set_step_start_unix_ns(step.start_unix_ns());
  const uint64_t findings = options.limit == 0 ? kDefaultFindings : options.limit;
  // Programs get what there is, unless they ask for less.
  const bool is_table = view.format == Format::kTable;
  request.set_limit(static_cast<uint32_t>(
      std::min<uint64_t>(is_table || options.limit != 0 ? findings : 1000, 1000)));
  v1::ExplainCaptureResponse response;
  RETURN_IF_ERROR(connection.call(fmt::format("explain capture {}", id), request, &response));
  if (!is_table) return render_message(response, view.format, view.shape, view.style);
  const std::string again = step.id() == 0 ? "" : fmt::format(" --step {}", step.id());
  return render_why(response, findings, view.style) +
         paint(
             fmt::format("\nCapture {0}, {1}. Again: gpuperfctl why --capture {0}{2}; everything: "
                         "gpuperfctl trace fetch {0} --format report\n",
                         id, format_duration(response.duration_ns()), again),
             Tone::kDim, view.style);
}

Result<v1::Step> find_step(const Invocation& invocation, uint64_t id) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, connect(invocation, nullptr));
  v1::GetStepRequest request;
  request.set_id(id);
  v1::GetStepResponse response;
  RETURN_IF_ERROR(connection->call(fmt::format("find step {}", id), request, &response));
  return std::move(*response.mutable_step());
}

Status run_why(Invocation& invocation, const Why& asked) {
  v1::Step step;
  if (asked.step != 0) {
    ASSIGN_OR_RETURN(step, find_step(invocation, asked.step));
    invocation.options.pid = step.pid();
  }
  ASSIGN_OR_RETURN(const uint64_t id, find_capture(invocation, asked, step));
  if (!invocation.options.timeout_seconds.has_value()) {
    invocation.options.timeout_seconds = kRenderSeconds;
  }
  return run_view(invocation, [&](Connection& connection, const View& view) {
    return draw(connection, view, invocation.options, id, step);
  });
}

}  // namespace

void declare_why(CLI::App& app, Invocation& invocation) {
  const auto asked = std::make_shared<Why>();
  add_process_flags(app, invocation.options);
  CLI::Option* capture =
      app.add_option("--capture", asked->capture,
                     "Explain this capture, by its id from trace list; default: make one")
          ->type_name("ID")
          ->check(make_whole_number_check(1, UINT64_MAX));
  CLI::Option* length = app.add_option("--for", asked->length, "How long to capture; default: 5s")
                            ->type_name("5s|500ms|1m")
                            ->excludes(capture);
  CLI::Option* since =
      app.add_option(
             "--since", asked->since,
             "Explain the last part of what the flight recorder holds instead; it does not know "
             "why threads were blocked")
          ->type_name("5s|30s|1m")
          ->excludes(capture)
          ->excludes(length);
  app.add_option("--step", asked->step,
                 "Explain this step, by its id from steps list, from what the flight recorder "
                 "holds or from the capture given")
      ->type_name("ID")
      ->check(make_whole_number_check(1, UINT64_MAX))
      ->excludes(length)
      ->excludes(since)
      ->excludes(app.get_option("--pid"))
      ->excludes(app.get_option("--container"))
      ->excludes(app.get_option("--pod"));
  app.add_option("--limit", invocation.options.limit,
                 "Findings of each process; default: 3, with -o json all")
      ->check(make_whole_number_check(1, 1000));
  app.callback([&invocation, asked] {
    invocation.run = [&invocation, asked] { return run_why(invocation, *asked); };
  });
}

}  // namespace gpuperf::client
