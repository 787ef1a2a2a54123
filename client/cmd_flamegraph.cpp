// gpuperfctl flamegraph [ID]: an SVG of a capture, of what the flight recorder holds, or of the
// next seconds.

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <iostream>
#include <memory>
#include <string>

#include "client/capture_fetch.h"
#include "client/capture_wait.h"
#include "client/view.h"

namespace gpuperf::client {
namespace {

struct Flamegraph {
  uint64_t id = 0;  // 0 = of what happens now
  std::string file;
  std::string title;
  std::string duration;
  std::string last;
  bool keep = false;
  PathFlags flags;
};

Result<uint64_t> find_capture(const Invocation& invocation, Connection& connection,
                              Interrupt& interrupt, const Flamegraph& asked) {
  if (asked.id != 0) return asked.id;
  const Sleep sleep = [&](std::chrono::nanoseconds time) { return interrupt.wait_for(time); };
  ASSIGN_OR_RETURN(const uint64_t duration_ms, parse_flag_ms("--duration", asked.duration));
  ASSIGN_OR_RETURN(const uint64_t last_ms, parse_flag_ms("--last", asked.last));
  v1::GetCaptureResponse stored;
  if (duration_ms > 0) {
    v1::StartCaptureRequest request;
    request.set_name("flamegraph");
    *request.mutable_target() = make_target(invocation.options);
    request.set_duration_ms(duration_ms);
    ASSIGN_OR_RETURN(stored, capture_and_wait(connection, request, sleep));
  } else {
    v1::FreezeRecorderRequest request;
    request.set_name("flamegraph");
    *request.mutable_target() = make_target(invocation.options);
    request.set_last_ms(last_ms);
    ASSIGN_OR_RETURN(stored, freeze_and_wait(connection, request, sleep));
  }
  if (stored.capture().events() == 0) {
    std::cerr
        << "gpuperfctl: the flame graph is empty: no probed call and no GPU work was recorded; "
           "why: gpuperfctl doctor\n";
  }
  return stored.capture().id();
}

Status run_flamegraph(const Invocation& invocation, const Flamegraph& asked) {
  RETURN_IF_ERROR(check_destination(invocation, asked.file));
  RETURN_IF_ERROR(parse_flag_ms("--duration", asked.duration).status());
  RETURN_IF_ERROR(parse_flag_ms("--last", asked.last).status());
  ASSIGN_OR_RETURN(const std::unique_ptr<Interrupt> interrupt,
                   Interrupt::make(invocation.output.fd()));
  ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, connect_to_change(invocation));
  ASSIGN_OR_RETURN(const uint64_t id, find_capture(invocation, *connection, *interrupt, asked));
  v1::FetchCaptureRequest request;
  request.set_id(id);
  request.set_format("flamegraph");
  request.set_title(asked.title);
  request.set_weight(find_weight(asked.flags.weight));
  *request.mutable_path() = asked.flags.path;
  const Status fetched = fetch_capture(*connection, request, invocation.output, asked.file);
  if (asked.id == 0 && !asked.keep) {
    discard_capture(*connection, id);
    return fetched;
  }
  RETURN_IF_ERROR(fetched);
  std::cerr << fmt::format(
      "gpuperfctl: capture {}; other formats: gpuperfctl trace fetch {} --help\n", id, id);
  return absl::OkStatus();
}

}  // namespace

void declare_flamegraph(CLI::App& app, Invocation& invocation) {
  const auto asked = std::make_shared<Flamegraph>();
  CLI::Option* id =
      app.add_option("ID", asked->id,
                     "Capture id from trace list; default: what the flight recorder holds now")
          ->check(make_whole_number_check(1, UINT64_MAX));
  add_file_flag(app, asked->file);
  add_path_flags(app, asked->flags);
  app.add_option("--title", asked->title, "Title of the flame graph")->check(make_text_check());
  CLI::Option* duration =
      app.add_option("--duration", asked->duration, "Without ID: capture for this long instead")
          ->type_name("10s|500ms|1m")
          ->excludes(id);
  app.add_option("--last", asked->last,
                 "Without ID: only the last part of what the flight recorder holds")
      ->type_name("5s|30s|1m")
      ->excludes(id)
      ->excludes(duration);
  add_keep_flag(app, asked->keep);
  app.get_option("--keep")->excludes(id);
  add_process_flags(app, invocation.options);
  for (const char* name : {"--pid", "--container", "--pod"}) app.get_option(name)->excludes(id);
  app.callback([&invocation, asked] {
    invocation.run = [&invocation, asked] { return run_flamegraph(invocation, *asked); };
  });
}

}  // namespace gpuperf::client
