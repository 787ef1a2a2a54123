// gpuperfctl probes [list]: every configured function and what became of it, file by file.

#include <algorithm>
#include <string>
#include <vector>

#include "client/pages.h"
#include "client/sort.h"
#include "client/view.h"

namespace gpuperf::client {
namespace {

using v1::ListProbesRequest;
using v1::ListProbesResponse;
using v1::Probe;

constexpr ListCall<ListProbesRequest, ListProbesResponse, Probe> kListProbes = {
    .method = &Connection::Stub::ListProbes,
    .rows = &ListProbesResponse::mutable_probes,
    .action = "list probes",
    .page_rows = 1000};

Tone find_tone(v1::ProbeState state) {
  if (state == v1::PROBE_STATE_ATTACHED) return Tone::kGood;
  if (state == v1::PROBE_STATE_FAILED) return Tone::kBad;
  if (state == v1::PROBE_STATE_SYMBOL_MISSING) return Tone::kWarning;
  return state == v1::PROBE_STATE_DISABLED ? Tone::kDim : Tone::kPlain;
}

std::string render_table(const std::vector<Probe>& rows, const TextStyle& style) {
  Table table({{"CATEGORY"},
               {.title = "FUNCTION", .shrink_to = 20},
               {.title = "SYMBOL", .optional = true, .shrink_to = 16},
               {"STATE"},
               {.title = "MECHANISM", .optional = true},
               {"THRESHOLD", Column::Align::kRight},
               {.title = "LIBRARY", .optional = true, .shrink_to = 16, .cut = Cut::kStart},
               {.title = "REASON", .optional = true, .shrink_to = 30}});
  const bool renamed = std::any_of(rows.begin(), rows.end(),
                                   [](const Probe& row) { return row.symbol() != row.function(); });
  for (const Probe& row : rows) {
    table.add_row({{row.category()},
                   {row.function()},
                   {renamed ? row.symbol() : ""},
                   {make_short_name(row.state()), find_tone(row.state())},
                   {row.mechanism()},
                   {row.slow_threshold_ns() == 0 ? "" : format_duration(row.slow_threshold_ns())},
                   {row.library()},
                   {row.reason()}});
  }
  return table.take_text(style);
}

Result<std::string> draw_probes(Connection& connection, const View& view, const Options& options) {
  ListProbesRequest request;
  ASSIGN_OR_RETURN(*request.mutable_filter(), make_filter(options, read_wall_clock_ns()));
  const uint64_t read_limit = options.sort.empty() ? options.limit : 0;  // all, to sort them here
  ASSIGN_OR_RETURN(std::vector<Probe> rows,
                   read_pages(connection, kListProbes, request, read_limit));
  RETURN_IF_ERROR(sort_rows(rows, options.sort, options.limit));
  if (view.format != Format::kTable) return render_rows(rows, view.format, view.shape, view.style);
  std::string text = render_table(rows, view.style);
  if (rows.empty()) {
    const std::string_view note = has_filter(options)
                                      ? "\nNo probe matches. Without filters: gpuperfctl probes\n"
                                      : "\nNo function is configured: gpuperfctl config show\n";
    text += paint(note, Tone::kDim, view.style);
  }
  return text;
}

}  // namespace

void declare_probes(CLI::App& app, Invocation& invocation) {
  Options& options = invocation.options;
  for (CLI::App* named : {&app, app.add_subcommand("list", "The same as probes alone")}) {
    add_function_flags(*named, options);
    add_sort_flag(*named, options, list_sort_fields(*Probe::descriptor()));
    add_limit_flag(*named, options);
    add_watch_flag(*named, options);
  }
  app.callback([&invocation] {
    invocation.run = [&invocation]() -> Status {
      RETURN_IF_ERROR(check_sort_field(*Probe::descriptor(), invocation.options.sort));
      return run_view(invocation, [&](Connection& connection, const View& view) {
        return draw_probes(connection, view, invocation.options);
      });
    };
  });
}

}  // namespace gpuperf::client
