// gpuperfctl kernels --by operator|stack|kernel|line|library: the GPU work of a capture by what
// launched it.

#include <absl/strings/str_join.h>
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "client/capture_wait.h"
#include "client/kernels_by.h"
#include "client/view.h"

namespace gpuperf::client {
namespace {

v1::CaptureGrouping find_grouping(const std::string& by) {
  if (by == "operator") return v1::CAPTURE_GROUPING_OPERATOR;
  if (by == "stack") return v1::CAPTURE_GROUPING_STACK;
  if (by == "line") return v1::CAPTURE_GROUPING_LINE;
  return by == "library" ? v1::CAPTURE_GROUPING_LIBRARY : v1::CAPTURE_GROUPING_KERNEL;
}

Result<uint64_t> find_capture(const Invocation& invocation, const KernelsBy& asked) {
  if (asked.capture != 0) return asked.capture;
  v1::FreezeRecorderRequest request;
  request.set_name("kernels");
  *request.mutable_target() = make_target(invocation.options);
  ASSIGN_OR_RETURN(const uint64_t last_ms, parse_flag_ms("--last", asked.last));
  request.set_last_ms(last_ms);
  ASSIGN_OR_RETURN(const std::unique_ptr<Interrupt> interrupt,
                   Interrupt::make(invocation.output.fd()));
  ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, connect(invocation, nullptr));
  ASSIGN_OR_RETURN(const v1::GetCaptureResponse stored,
                   freeze_and_wait(*connection, request, [&](std::chrono::nanoseconds time) {
                     return interrupt->wait_for(time);
                   }));
  return stored.capture().id();
}

std::string render_table(const v1::SummariseCaptureResponse& response, const std::string& by,
                         const TextStyle& style) {
  constexpr auto kRight = Column::Align::kRight;
  Table table({{"GPU TIME", kRight},
               {"SHARE", kRight},
               {"WORK", kRight},
               {"LAUNCHES", kRight},
               {"AVG", kRight},
               {"MAX", kRight},
               {.title = by == "stack"  ? "STACK"
                         : by == "line" ? "LINE"
                                        : "NAME",
                .shrink_to = 30,
                .cut = by == "stack" ? Cut::kStart : Cut::kMiddle},
               {.title = "MOSTLY", .optional = true, .shrink_to = 20, .cut = Cut::kMiddle}});
  for (const v1::CaptureWorkRow& row : response.rows()) {
    table.add_row({{format_duration(row.gpu_ns())},
                   {format_ratio(row.share_ratio())},
                   {format_count(row.work())},
                   {format_count(row.launches())},
                   {format_duration(row.avg_ns())},
                   {format_duration(row.max_ns())},
                   {row.name()},
                   {row.top_kernels().empty() ? "" : row.top_kernels(0)}});
  }
  return table.take_text(style);
}

Result<std::string> draw_rows(Connection& connection, const View& view, const Options& options,
                              const KernelsBy& asked, bool full_names, uint64_t id, bool is_kept) {
  v1::SummariseCaptureRequest request;
  request.set_id(id);
  request.set_by(find_grouping(asked.by));
  request.set_kernel(options.function);
  request.set_short_names(view.format == Format::kTable && !full_names);
  request.set_depth(asked.depth);
  request.set_module(asked.module);
  request.set_interpreter_frames(asked.interpreter_frames);
  request.set_limit(static_cast<uint32_t>(std::min<uint64_t>(options.limit, 10'000)));
  v1::SummariseCaptureResponse response;
  RETURN_IF_ERROR(connection.call(fmt::format("add up capture {}", id), request, &response));
  const std::vector<v1::CaptureWorkRow> rows(response.rows().begin(), response.rows().end());
  if (view.format != Format::kTable) return render_rows(rows, view.format, view.shape, view.style);
  std::string notes = fmt::format("{}, {} of GPU time.\n",
                                  is_kept ? fmt::format("Capture {}", id) : "The flight recorder",
                                  format_duration(response.total_gpu_ns()));
  if (response.estimated_work() > 0) {
    notes += fmt::format(
        "Estimated for {} pieces of work, whose launches carry no stack: shared out like those of "
        "the "
        "same kernel that do. For exact rows: gpuperfctl trace start, then --capture ID\n",
        format_count(response.estimated_work()));
  }
  if (rows.empty()) notes += "It contains no GPU work. Why: gpuperfctl doctor\n";
  if (response.total_rows() > rows.size()) {
    notes += fmt::format("{} more rows; show them with --limit\n",
                         format_count(response.total_rows() - rows.size()));
  }
  return render_table(response, asked.by, view.style) + "\n" + paint(notes, Tone::kDim, view.style);
}

}  // namespace

void add_kernels_by_flags(CLI::App& app, KernelsBy& asked) {
  CLI::Option* by =
      app.add_option("--by", asked.by,
                     "Summarise the GPU work of a capture by this; default: kernel statistics "
                     "since gpuperfd started")
          ->check(CLI::IsMember({"operator", "stack", "kernel", "line", "library"}).description(""))
          ->type_name("operator|stack|kernel|line|library");
  CLI::Option* capture =
      app.add_option(
             "--capture", asked.capture,
             "With --by: capture id from trace list; default: what the flight recorder holds now")
          ->type_name("ID")
          ->needs(by)
          ->check(make_whole_number_check(1, UINT64_MAX));
  app.add_option("--last", asked.last,
                 "With --by: only the last part of what the flight recorder holds")
      ->type_name("5s|30s|1m")
      ->needs(by)
      ->excludes(capture);
  add_keep_flag(app, asked.keep);
  app.get_option("--keep")->needs(by)->excludes(capture);
  app.add_option("--depth", asked.depth,
                 "With --by line: 2 = the line's caller, 3 = its caller, and so on")
      ->type_name("N")
      ->needs(by)
      ->check(make_whole_number_check(1, UINT32_MAX));
  app.add_option("--module", asked.module,
                 "With --by line: only lines of this package, module or file, like transformers")
      ->needs(by)
      ->check(make_text_check());
  add_interpreter_flag(app, [&asked] { asked.interpreter_frames = true; })->needs(by);
  for (const char* name : {"--sort", "--watch", "--per-process"}) {
    app.get_option(name)->excludes(by);
  }
  for (const char* name : {"--pid", "--container", "--pod"})
    app.get_option(name)->excludes(capture);
}

Status run_kernels_by(Invocation& invocation, const KernelsBy& asked, bool full_names) {
  if (asked.by != "line" && (asked.depth != 0 || !asked.module.empty())) {
    return absl::InvalidArgumentError("--depth and --module need --by line");
  }
  ASSIGN_OR_RETURN(const uint64_t id, find_capture(invocation, asked));
  if (!invocation.options.timeout_seconds.has_value()) {
    invocation.options.timeout_seconds = kRenderSeconds;
  }
  const bool is_kept = asked.capture != 0 || asked.keep;
  return run_view(invocation, [&](Connection& connection, const View& view) {
    auto text = draw_rows(connection, view, invocation.options, asked, full_names, id, is_kept);
    if (!is_kept) discard_capture(connection, id);
    return text;
  });
}

}  // namespace gpuperf::client
