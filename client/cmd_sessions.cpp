// gpuperfctl sessions [list]|run|pause|off|burst: the injected processes, what each one sends and
// lost; and telling them what to collect.

#include <absl/strings/str_join.h>
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "client/attach_text.h"
#include "client/duration.h"
#include "client/list_view.h"
#include "client/session_text.h"
#include "gpuperf/v1/control.pb.h"

namespace gpuperf::client {
namespace {

using v1::Session;

constexpr uint64_t kBurstLimitMs = 60'000;  // as SetSession takes it

std::string describe_sampling(const Session& row) {
  return row.sample_every() <= 1 ? "" : fmt::format("1 of {}", format_count(row.sample_every()));
}

// Nothing where every session is of a library that was there from the start.
std::string describe_library(const Session& row, bool any_attached) {
  if (!any_attached) return "";
  if (row.attached_unix_ns() == 0) return "from its start";
  return fmt::format("attached: held a thread {}", format_duration(row.attach_held_ns()));
}

std::string render_table(const std::vector<Session>& rows, const TextStyle& style) {
  const bool any_attached =
      std::ranges::any_of(rows, [](const Session& row) { return row.attached_unix_ns() != 0; });
  constexpr auto kRight = Column::Align::kRight;
  Table table({{"PID", kRight},
               {.title = "COMM", .shrink_to = 8},
               {"STATE"},
               {"AGE", kRight},
               {"RECORDS", kRight},
               {"LOST", kRight},
               {.title = "SAMPLED", .align = kRight, .optional = true},
               {.title = "MEMORY", .align = kRight, .optional = true},
               {.title = "LEVEL", .optional = true, .shrink_to = 12},
               {.title = "LIBRARY", .optional = true},
               {.title = "CONTAINER", .optional = true},
               {.title = "POD", .optional = true, .shrink_to = 12},
               {.title = "CAUSE", .optional = true, .shrink_to = 30}});
  for (const Session& row : rows) {
    uint64_t used_bytes = 0;
    for (const v1::GpuMemory& memory : row.memory()) {
      if (memory.memory() == "device") used_bytes += memory.used_bytes();
    }
    // What is not complete says so: it is at least this much, or less after releases unseen.
    const std::string sign = row.memory_complete() ? "" : "~";
    table.add_row(
        {{std::to_string(row.pid())},
         {row.comm()},
         {row.state(), find_session_tone(row.state())},
         {format_duration(row.age_ns())},
         {format_count(row.received_records())},
         {format_count(row.lost_records()), row.lost_records() > 0 ? Tone::kWarning : Tone::kPlain},
         {describe_sampling(row)},
         {used_bytes == 0 ? "" : sign + format_bytes(used_bytes)},
         {absl::StrJoin(row.level(), ",")},
         {describe_library(row, any_attached)},
         {row.container()},
         {row.pod()},
         {describe_cause(row)}});
  }
  return table.take_text(style);
}

// Processes that use CUDA and have no session: whether they can be attached to. Root alone is told.
std::string draw_others(Connection& connection, const TextStyle& style) {
  v1::ListAttachableResponse response;
  if (!connection.call("list processes to attach to", v1::ListAttachableRequest(), &response).ok())
    return "";
  std::vector<v1::Attachment> rows(response.attachments().begin(), response.attachments().end());
  std::erase_if(rows, [](const v1::Attachment& row) {
    return row.state() != "can" && row.state() != "cannot";
  });
  if (rows.empty()) return "";
  return "\nProcesses that use CUDA without the library, by whether they can be attached to:\n" +
         render_attachments(rows, style);
}

Result<std::string> draw_sessions(Connection& connection, const View& view, const Options& options,
                                  bool all) {
  v1::ListSessionsRequest request;
  request.set_include_closed(all);
  ASSIGN_OR_RETURN(
      std::string text,
      draw_list(connection, view, options, kListSessions, request, &render_table,
                "\nNo session matches. Without filters: gpuperfctl sessions\n",
                all ? "\nNo process is injected: gpuperfctl doctor\n"
                    : "\nNo process is injected. Sessions that have ended: gpuperfctl sessions "
                      "--all\n"));
  // It inspects every process of the host, so --watch leaves it out.
  const bool is_plain =
      view.format == Format::kTable && !has_filter(options) && !all && !options.watch_seconds;
  if (is_plain) text += draw_others(connection, view.style);
  return text;
}

// Asks, and says how many sessions were told.
Status run_order(const Invocation& invocation, const std::string& action,
                 const v1::SetSessionRequest& request) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, connect_to_change(invocation));
  v1::SetSessionResponse response;
  RETURN_IF_ERROR(connection->call(action, request, &response));
  const View view = {find_format(invocation.options), JsonShape::kIndented,
                     invocation.output.read_style()};
  if (view.format != Format::kTable) {
    return invocation.output.write(render_message(response, view.format, view.shape, view.style));
  }
  return invocation.output.write(
      fmt::format("Sent to {} {}. Check the new state: gpuperfctl sessions --pid {}\n",
                  format_count(response.sessions()),
                  response.sessions() == 1 ? "session" : "sessions", request.pid()));
}

void add_pid(CLI::App& command, v1::SetSessionRequest& request) {
  command
      .add_option_function<uint32_t>(
          "PID", [&request](uint32_t pid) { request.set_pid(pid); }, "Process id")
      ->required()
      ->type_name("PID")
      ->check(make_whole_number_check(1, UINT32_MAX));
}

CLI::App& declare_order(CLI::App& app, Invocation& invocation, const char* verb,
                        const char* summary, const std::shared_ptr<v1::SetSessionRequest>& request,
                        v1::SessionMode mode) {
  // "cannot …" goes before it in an error.
  const std::string action = mode == v1::SESSION_MODE_OFF ? "switch off" : verb;
  CLI::App& command = *app.add_subcommand(verb, summary);
  add_pid(command, *request);
  command.callback([&app, &invocation, request, action, mode] {
    refuse_list_flags(app);
    request->set_mode(mode);
    invocation.run = [&invocation, request, action] {
      return run_order(invocation, fmt::format("{} process {}", action, request->pid()), *request);
    };
  });
  return command;
}

void declare_run(CLI::App& app, Invocation& invocation) {
  const auto request = std::make_shared<v1::SetSessionRequest>();
  CLI::App& command = declare_order(app, invocation, "run",
                                    "Resume collecting, optionally a sample of the launches (root)",
                                    request, v1::SESSION_MODE_RUN);
  command
      .add_option_function<uint32_t>(
          "--sample-every", [request](uint32_t every) { request->set_sample_every(every); },
          "Keep one of every COUNT launches")
      ->type_name("COUNT")
      ->check(make_whole_number_check(1, 1'000'000));
}

void declare_burst(CLI::App& app, Invocation& invocation) {
  const auto request = std::make_shared<v1::SetSessionRequest>();
  const auto length = std::make_shared<std::string>("5s");
  CLI::App& command = *app.add_subcommand("burst", "Collect more detail for a limited time (root)");
  add_pid(command, *request);
  command.add_flag_callback(
      "--nodes", [request] { request->set_burst_nodes(true); },
      "Record each kernel inside CUDA graphs");
  command.add_flag_callback(
      "--all-apis", [request] { request->set_burst_all_apis(true); },
      "Record every call of the CUDA runtime and driver");
  command.add_flag_callback(
      "--samples", [request] { request->set_burst_samples(true); },
      "Sample what the warps of kernels wait for: gpuperfctl kernels --stalls has it");
  command.add_option("--for", *length, "How long to collect, at most 1m")->type_name("5s|500ms|1m");
  command.callback([&app, &invocation, request, length] {
    refuse_list_flags(app);
    if (!request->burst_nodes() && !request->burst_all_apis() && !request->burst_samples()) {
      throw CLI::ValidationError("burst", "give --nodes, --all-apis or --samples");
    }
    const Result<uint64_t> parsed = parse_duration_ns(*length);
    if (!parsed.ok()) throw CLI::ValidationError("--for", std::string(parsed.status().message()));
    const uint64_t milliseconds = *parsed / 1'000'000;
    if (milliseconds == 0 || milliseconds > kBurstLimitMs) {
      throw CLI::ValidationError("--for", fmt::format("\"{}\": from 1ms to 1m", *length));
    }
    request->set_mode(v1::SESSION_MODE_RUN);
    request->set_burst_ms(static_cast<uint32_t>(milliseconds));
    invocation.run = [&invocation, request] {
      return run_order(invocation, fmt::format("begin a burst of process {}", request->pid()),
                       *request);
    };
  });
}

}  // namespace

void declare_sessions(CLI::App& app, Invocation& invocation) {
  Options& options = invocation.options;
  const auto all = std::make_shared<bool>(false);
  for (CLI::App* named :
       {&app, app.add_subcommand("list", "Same as sessions without a subcommand")}) {
    add_process_flags(*named, options);
    named->add_flag("--all", *all, "Also show sessions that ended recently");
    add_sort_flag(*named, options, list_sort_fields(*Session::descriptor()));
    add_limit_flag(*named, options);
    add_watch_flag(*named, options);
  }
  declare_run(app, invocation);
  declare_order(app, invocation, "pause", "Stop collecting, but stay connected (root)",
                std::make_shared<v1::SetSessionRequest>(), v1::SESSION_MODE_PAUSE);
  declare_order(app, invocation, "off", "Stop collecting and release CUPTI for other tools (root)",
                std::make_shared<v1::SetSessionRequest>(), v1::SESSION_MODE_OFF);
  declare_burst(app, invocation);
  app.callback([&invocation, all] {
    if (invocation.run) return;  // a subcommand's callback came first
    invocation.run = [&invocation, all]() -> Status {
      RETURN_IF_ERROR(check_sort_field(*Session::descriptor(), invocation.options.sort));
      return run_view(invocation, [&](Connection& connection, const View& view) {
        return draw_sessions(connection, view, invocation.options, *all);
      });
    };
  });
}

}  // namespace gpuperf::client
