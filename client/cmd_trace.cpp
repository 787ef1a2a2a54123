// gpuperfctl trace start|stop|list|show|fetch|delete|freeze: captures, from their order to a file.

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <string>
#include <vector>

#include "client/capture_fetch.h"
#include "client/capture_text.h"
#include "client/capture_wait.h"
#include "client/pages.h"
#include "client/view.h"

namespace gpuperf::client {
namespace {

// How `trace start` and `trace freeze` were asked for.
struct Order {
  std::string name;
  std::string duration;
  std::string align;
  std::string last;
  bool cpu_only = false;
  bool gpu_only = false;
  bool nodes = false;
  bool samples = false;
  bool wait = false;
};

Result<v1::StartCaptureRequest> make_start(const Options& options, const Order& order) {
  v1::StartCaptureRequest request;
  request.set_name(order.name);
  *request.mutable_target() = make_target(options);
  ASSIGN_OR_RETURN(const uint64_t duration_ms, parse_flag_ms("--duration", order.duration));
  ASSIGN_OR_RETURN(const uint64_t align_ms, parse_flag_ms("--align", order.align));
  request.set_duration_ms(duration_ms);
  request.set_align_ms(align_ms);
  if (order.cpu_only) request.set_parts(v1::CAPTURE_PARTS_CPU);
  if (order.gpu_only) request.set_parts(v1::CAPTURE_PARTS_GPU);
  request.set_nodes(order.nodes);
  request.set_samples(order.samples);
  return request;
}

// The row, and on a terminal what may come next.
Status show_begun(const Invocation& invocation, const v1::Capture& capture) {
  v1::GetCaptureResponse response;
  *response.mutable_capture() = capture;
  const Format format = find_format(invocation.options);
  std::string text = render_capture(response, format, invocation.output.read_style());
  if (format == Format::kTable) {
    text +=
        paint(fmt::format("\nEnd it: gpuperfctl trace stop {0}; then: gpuperfctl flamegraph {0}\n",
                          capture.id()),
              Tone::kDim, invocation.output.read_style());
  }
  return invocation.output.write(text);
}

Status show_stored(const Invocation& invocation, const v1::GetCaptureResponse& response) {
  return invocation.output.write(
      render_capture(response, find_format(invocation.options), invocation.output.read_style()));
}

Sleep make_sleep(Interrupt& interrupt) {
  return [&interrupt](std::chrono::nanoseconds duration) { return interrupt.wait_for(duration); };
}

Status run_start(const Invocation& invocation, const Order& order) {
  ASSIGN_OR_RETURN(const v1::StartCaptureRequest request, make_start(invocation.options, order));
  if (order.wait && request.duration_ms() == 0) {
    return absl::InvalidArgumentError("--wait needs --duration");
  }
  if (!order.wait) {
    ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, connect_to_change(invocation));
    v1::StartCaptureResponse response;
    RETURN_IF_ERROR(connection->call("start a capture", request, &response));
    return show_begun(invocation, response.capture());
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Interrupt> interrupt,
                   Interrupt::make(invocation.output.fd()));
  ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, connect_to_change(invocation));
  ASSIGN_OR_RETURN(const v1::GetCaptureResponse stored,
                   capture_and_wait(*connection, request, make_sleep(*interrupt)));
  return show_stored(invocation, stored);
}

Status run_freeze(const Invocation& invocation, const Order& order) {
  v1::FreezeRecorderRequest request;
  request.set_name(order.name);
  *request.mutable_target() = make_target(invocation.options);
  ASSIGN_OR_RETURN(const uint64_t last_ms, parse_flag_ms("--last", order.last));
  request.set_last_ms(last_ms);
  ASSIGN_OR_RETURN(const std::unique_ptr<Interrupt> interrupt,
                   Interrupt::make(invocation.output.fd()));
  ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, connect_to_change(invocation));
  ASSIGN_OR_RETURN(const v1::GetCaptureResponse stored,
                   freeze_and_wait(*connection, request, make_sleep(*interrupt)));
  return show_stored(invocation, stored);
}

Result<std::string> draw_captures(Connection& connection, const View& view,
                                  const Options& options) {
  v1::Recorder recorder;
  ASSIGN_OR_RETURN(const std::vector<v1::Capture> rows,
                   read_pages(connection, kListCaptures, v1::ListCapturesRequest(), options.limit,
                              [&](const v1::ListCapturesResponse& response) {
                                recorder = response.recorder();
                              }));
  if (view.format != Format::kTable) return render_rows(rows, view.format, view.shape, view.style);
  const std::string hint =
      rows.empty() ? "No capture yet: gpuperfctl trace start --duration 10s\n" : "";
  return render_captures(rows, view.style) +
         paint(fmt::format("\n{}{}\n", hint, describe_recorder(recorder)), Tone::kDim, view.style);
}

Result<std::string> draw_capture(Connection& connection, const View& view, uint64_t id) {
  v1::GetCaptureRequest request;
  request.set_id(id);
  v1::GetCaptureResponse response;
  RETURN_IF_ERROR(connection.call(fmt::format("show capture {}", id), request, &response));
  if (view.format != Format::kTable) {
    return render_message(response, view.format, view.shape, view.style);
  }
  return describe_capture(response.capture(),
                          response.has_matches() ? &response.matches() : nullptr, view.style);
}

template <typename Request, typename Response>
Status run_change(const Invocation& invocation, const char* action, uint64_t id) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, connect_to_change(invocation));
  Request request;
  request.set_id(id);
  Response response;
  RETURN_IF_ERROR(connection->call(fmt::format("{} capture {}", action, id), request, &response));
  v1::GetCaptureResponse shown;
  *shown.mutable_capture() = response.capture();
  return show_stored(invocation, shown);
}

Status run_fetch(const Invocation& invocation, const v1::FetchCaptureRequest& request,
                 const std::string& file) {
  RETURN_IF_ERROR(check_destination(invocation, file));
  ASSIGN_OR_RETURN(const std::unique_ptr<Interrupt> interrupt,
                   Interrupt::make(invocation.output.fd()));
  ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection,
                   connect(invocation, interrupt.get()));
  return fetch_capture(*connection, request, invocation.output, file);
}

void add_order_flags(CLI::App& app, Options& options, Order& order) {
  add_process_flags(app, options);
  app.add_option("--name", order.name, "Name of the capture, at most 128 bytes")
      ->check(make_text_check());
}

void declare_start(CLI::App& trace, Invocation& invocation) {
  const auto order = std::make_shared<Order>();
  CLI::App& app = *trace.add_subcommand("start", "Start a capture of launches, calls and GPU work");
  add_order_flags(app, invocation.options, *order);
  app.add_option("--duration", order->duration, "How long to capture; default: until trace stop")
      ->type_name("10s|500ms|1m");
  app.add_option(
         "--align", order->align,
         "Start at the next multiple of this on the wall clock, so that hosts start together")
      ->type_name("10s|60s|5m");
  CLI::Option* cpu =
      app.add_flag("--cpu-only", order->cpu_only, "Capture calls and launches only, no GPU work");
  app.add_flag("--gpu-only", order->gpu_only, "Capture GPU work only: no stacks, no probed calls")
      ->excludes(cpu);
  app.add_flag("--nodes", order->nodes,
               "Also capture each kernel inside CUDA graphs, if the process allows it");
  app.add_flag(
      "--sampling", order->samples,
      "Also sample what the warps of kernels wait for: gpuperfctl kernels --stalls has it");
  app.add_flag("--wait", order->wait, "Wait until the capture is stored, then show it");
  app.callback([&invocation, order] {
    invocation.run = [&invocation, order] { return run_start(invocation, *order); };
  });
}

void declare_freeze(CLI::App& trace, Invocation& invocation) {
  const auto order = std::make_shared<Order>();
  CLI::App& app =
      *trace.add_subcommand("freeze", "Store what the flight recorder holds as a capture");
  add_order_flags(app, invocation.options, *order);
  app.add_option("--last", order->last, "Only the last part of it; default: all")
      ->type_name("5s|30s|1m");
  app.callback([&invocation, order] {
    invocation.run = [&invocation, order] { return run_freeze(invocation, *order); };
  });
}

void declare_capture_list(CLI::App& trace, Invocation& invocation) {
  CLI::App& app = *trace.add_subcommand(
      "list", "List captures, newest first, and the state of the flight recorder");
  add_limit_flag(app, invocation.options);
  add_watch_flag(app, invocation.options);
  app.callback([&invocation] {
    invocation.run = [&invocation] {
      return run_view(invocation, [&](Connection& connection, const View& view) {
        return draw_captures(connection, view, invocation.options);
      });
    };
  });
}

CLI::App& declare_of_one(CLI::App& trace, const char* verb, const char* summary,
                         const std::shared_ptr<uint64_t>& id) {
  CLI::App& app = *trace.add_subcommand(verb, summary);
  app.add_option("ID", *id, "Id from trace list")
      ->required()
      ->check(make_whole_number_check(1, UINT64_MAX));
  return app;
}

void declare_capture_show(CLI::App& trace, Invocation& invocation) {
  const auto id = std::make_shared<uint64_t>(0);
  CLI::App& app = declare_of_one(trace, "show",
                                 "Show one capture and how much of its GPU work was matched", id);
  app.callback([&invocation, id] {
    invocation.run = [&invocation, id] {
      return run_view(invocation, [&](Connection& connection, const View& view) {
        return draw_capture(connection, view, *id);
      });
    };
  });
}

void declare_fetch(CLI::App& trace, Invocation& invocation) {
  struct Fetch {
    std::string format;
    std::string file;
    PathFlags flags;
  };
  const auto id = std::make_shared<uint64_t>(0);
  const auto fetch = std::make_shared<Fetch>();
  CLI::App& app = declare_of_one(trace, "fetch", "Write a capture in one of several formats", id);
  app.add_option("--format", fetch->format, "Format; raw is the stored gpuperf.v1.StoredCapture")
      ->required()
      ->check(make_text_check())  // the daemon knows its forms, and names them
      ->type_name(
          "chrome|perfetto|pprof|folded|extended-folded|flamegraph|idle-folded|idle-flamegraph|"
          "report|raw");
  add_file_flag(app, fetch->file);
  add_path_flags(app, fetch->flags);
  app.callback([&invocation, id, fetch] {
    invocation.run = [&invocation, id, fetch] {
      v1::FetchCaptureRequest request;
      request.set_id(*id);
      request.set_format(fetch->format);
      request.set_weight(find_weight(fetch->flags.weight));
      *request.mutable_path() = fetch->flags.path;
      return run_fetch(invocation, request, fetch->file);
    };
  });
}

void declare_changes(CLI::App& trace, Invocation& invocation) {
  const auto stopped = std::make_shared<uint64_t>(0);
  declare_of_one(trace, "stop", "Stop a running capture", stopped).callback([&invocation, stopped] {
    invocation.run = [&invocation, stopped] {
      return run_change<v1::StopCaptureRequest, v1::StopCaptureResponse>(invocation, "stop",
                                                                         *stopped);
    };
  });
  const auto deleted = std::make_shared<uint64_t>(0);
  declare_of_one(trace, "delete", "Delete a stored or failed capture", deleted)
      .callback([&invocation, deleted] {
        invocation.run = [&invocation, deleted] {
          return run_change<v1::DeleteCaptureRequest, v1::DeleteCaptureResponse>(
              invocation, "delete", *deleted);
        };
      });
}

}  // namespace

void declare_trace(CLI::App& app, Invocation& invocation) {
  app.require_subcommand(1);
  declare_start(app, invocation);
  declare_capture_list(app, invocation);
  declare_capture_show(app, invocation);
  declare_fetch(app, invocation);
  declare_changes(app, invocation);
  declare_freeze(app, invocation);
}

}  // namespace gpuperf::client
