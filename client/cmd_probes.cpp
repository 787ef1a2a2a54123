// gpuperfctl probes [list]|add|enable|disable: every configured function and what became of it,
// file by file; and changing what is probed until the daemon ends.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "client/change.h"
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
  if (state == v1::PROBE_STATE_SUSPENDED) return Tone::kWarning;
  const bool aside = state == v1::PROBE_STATE_DISABLED || state == v1::PROBE_STATE_ALIAS;
  return aside ? Tone::kDim : Tone::kPlain;
}

// "emulated" and "stepped" are the kernel's words for it; what matters here is the price.
std::string_view describe_hit_cost(v1::HitCost cost) {
  if (cost == v1::HIT_COST_EMULATED) return "cheap";
  return cost == v1::HIT_COST_STEPPED ? "stepped" : "";
}

std::string render_table(const std::vector<Probe>& rows, const TextStyle& style) {
  Table table({{"CATEGORY"},
               {.title = "FUNCTION", .shrink_to = 20},
               {.title = "SYMBOL", .optional = true, .shrink_to = 16},
               {"STATE"},
               {.title = "MECHANISM", .optional = true},
               {.title = "HIT", .optional = true},
               {.title = "EXITS", .align = Column::Align::kRight, .optional = true},
               {.title = "COST", .align = Column::Align::kRight, .optional = true},
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
                   {std::string(describe_hit_cost(row.hit_cost())),
                    row.hit_cost() == v1::HIT_COST_STEPPED ? Tone::kWarning : Tone::kPlain},
                   {row.exit_sites() == 0 ? "" : format_count(row.exit_sites())},
                   {row.cost_ns() == 0 ? "" : format_duration(row.cost_ns())},
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

// What `probes add` was given.
struct NewProbe {
  std::string section;
  std::string name;
  std::string value;  // a symbol, or the JSON object that would stand in the configuration
};

Status run_add(const Invocation& invocation, const NewProbe& probe) {
  using nlohmann::ordered_json;
  v1::AddProbeRequest request;
  request.set_section(probe.section);
  request.set_name(probe.name);
  const bool object = probe.value.starts_with('{');
  request.set_value_json(object ? probe.value : ordered_json(probe.value).dump());
  if (object && !ordered_json::accept(probe.value)) {
    return absl::InvalidArgumentError(
        fmt::format("cannot add {}: not valid JSON: {}", probe.name, probe.value));
  }
  return run_change(invocation, &Connection::ControlStub::AddProbe,
                    fmt::format("add {}", probe.name), request);
}

// Enabling and disabling ask for the same thing in two messages.
template <typename Request, typename Response>
Status run_switch(const Invocation& invocation, Connection::ControlMethod<Request, Response> method,
                  std::string_view verb, const std::string& pattern) {
  Request request;
  request.set_category(invocation.options.category);
  request.set_function(pattern);
  return run_change(invocation, method, fmt::format("{} {}", verb, pattern), request);
}

// `probes` alone lists, so it has flags; behind another subcommand they would be accepted and
// ignored.
void refuse_list_flags(const CLI::App& app) {
  for (const CLI::Option* flag : app.get_options()) {
    if (flag->count() > 0) throw CLI::ExtrasError(app.get_name(), {flag->get_name()});
  }
}

void declare_add(CLI::App& app, Invocation& invocation) {
  CLI::App& add = *app.add_subcommand("add", "Probe one more function until gpuperfd ends (root)");
  const auto probe = std::make_shared<NewProbe>();
  add.add_option("SECTION", probe->section, "Section of the configuration, like cuda_func_sym")
      ->required()
      ->check(make_text_check());
  add.add_option("NAME", probe->name, "Name to show it under")
      ->required()
      ->check(make_text_check());
  add.add_option("VALUE", probe->value, "A symbol, or a JSON object as in the configuration")
      ->required()
      ->check(make_text_check());
  add.callback([&app, &invocation, probe] {
    refuse_list_flags(app);
    invocation.run = [&invocation, probe] { return run_add(invocation, *probe); };
  });
}

template <typename Request, typename Response>
void declare_switch(CLI::App& app, Invocation& invocation, const char* verb, const char* summary,
                    Connection::ControlMethod<Request, Response> method) {
  CLI::App& command = *app.add_subcommand(verb, summary);
  const auto pattern = std::make_shared<std::string>();
  command.add_option("PATTERN", *pattern, "Names of functions; * matches any run of characters")
      ->required()
      ->check(make_text_check());
  command.add_option("--category", invocation.options.category, "Only in this category, like cuda")
      ->check(make_text_check());
  command.callback([&app, &invocation, pattern, verb, method] {
    refuse_list_flags(app);
    invocation.run = [&invocation, pattern, verb, method] {
      return run_switch(invocation, method, verb, *pattern);
    };
  });
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
  declare_add(app, invocation);
  declare_switch(app, invocation, "enable", "Put functions in again that are disabled (root)",
                 &Connection::ControlStub::EnableProbes);
  declare_switch(app, invocation, "disable", "Take functions out until gpuperfd ends (root)",
                 &Connection::ControlStub::DisableProbes);
  app.callback([&invocation] {
    if (invocation.run) return;  // a subcommand's callback came first
    invocation.run = [&invocation]() -> Status {
      RETURN_IF_ERROR(check_sort_field(*Probe::descriptor(), invocation.options.sort));
      return run_view(invocation, [&](Connection& connection, const View& view) {
        return draw_probes(connection, view, invocation.options);
      });
    };
  });
}

}  // namespace gpuperf::client
