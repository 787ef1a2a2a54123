// gpuperfctl probes [list]|add|remove|enable|disable|threshold: every configured function and what
// became of it, file by file; and changing, until the daemon ends, what is probed and what is slow.

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/change.h"
#include "client/duration.h"
#include "client/list_view.h"

namespace gpuperf::client {
namespace {

using v1::ListProbesRequest;
using v1::Probe;

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
               {.title = "ADAPTIVE", .align = Column::Align::kRight, .optional = true},
               {.title = "LIBRARY", .optional = true, .shrink_to = 16, .cut = Cut::kStart},
               {.title = "REASON", .optional = true, .shrink_to = 30}});
  const bool renamed = std::any_of(rows.begin(), rows.end(),
                                   [](const Probe& row) { return row.symbol() != row.function(); });
  const auto duration = [](uint64_t ns) { return ns == 0 ? "" : format_duration(ns); };
  for (const Probe& row : rows) {
    table.add_row({{row.category()},
                   {row.function()},
                   {renamed ? row.symbol() : ""},
                   {make_short_name(row.state()), find_tone(row.state())},
                   {row.mechanism()},
                   {std::string(describe_hit_cost(row.hit_cost())),
                    row.hit_cost() == v1::HIT_COST_STEPPED ? Tone::kWarning : Tone::kPlain},
                   {row.exit_sites() == 0 ? "" : format_count(row.exit_sites())},
                   {duration(row.cost_ns())},
                   {duration(row.slow_threshold_ns())},
                   {duration(row.adaptive_threshold_ns())},
                   {row.library()},
                   {row.reason()}});
  }
  return table.take_text(style);
}

Result<std::string> draw_probes(Connection& connection, const View& view, const Options& options) {
  return draw_list(connection, view, options, kListProbes, ListProbesRequest{}, &render_table,
                   "\nNo probe matches. Without filters: gpuperfctl probes\n",
                   "\nNo function is configured: gpuperfctl config show\n");
}

// What `probes add` was given.
struct NewProbe {
  std::string section;
  std::string name;
  std::string value;  // a symbol, or the JSON object that would stand in the configuration
};

std::string_view find_category(std::string_view section) {
  for (const std::string_view ending : {"_func_sym", "_sym"}) {
    if (section.ends_with(ending)) return section.substr(0, section.size() - ending.size());
  }
  return section;
}

// What became of it: where it is attached, or what it waits for. Matches of a wildcard have names
// of their own and are not shown.
Status show_state(const Invocation& invocation, Connection& connection, const NewProbe& probe) {
  ListProbesRequest request;
  request.mutable_filter()->set_category(std::string(find_category(probe.section)));
  request.mutable_filter()->set_function(probe.name);
  ASSIGN_OR_RETURN(const std::vector<Probe> rows, read_pages(connection, kListProbes, request, 0));
  if (rows.empty()) return absl::OkStatus();
  return invocation.output.write("\n" + render_table(rows, invocation.output.read_style()));
}

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
  const std::string action = fmt::format("add {}", probe.name);
  ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, connect_to_change(invocation));
  v1::AddProbeResponse response;
  const Status called = connection->call(action, request, &response);
  RETURN_IF_ERROR(show_change(invocation, action, called, response.change()));
  if (find_format(invocation.options) != Format::kTable) return absl::OkStatus();
  return show_state(invocation, *connection, probe);
}

Status run_remove(const Invocation& invocation, const std::string& section,
                  const std::string& name) {
  v1::RemoveProbeRequest request;
  request.set_section(section);
  request.set_name(name);
  return run_change<v1::RemoveProbeResponse>(invocation, fmt::format("remove {}", name), request);
}

// Enabling and disabling ask for the same thing in two messages.
template <typename Request, typename Response>
Status run_switch(const Invocation& invocation, std::string_view verb, const std::string& pattern) {
  Request request;
  request.set_category(invocation.options.category);
  request.set_function(pattern);
  return run_change<Response>(invocation, fmt::format("{} {}", verb, pattern), request);
}

// "20ms"; "0" = no call is slow; "config", which gives nothing = as the configuration says.
Result<std::optional<uint64_t>> parse_threshold_ns(const std::string& text) {
  constexpr uint64_t kLimitNs = uint64_t{1} << 62;  // as SetSlowThreshold takes it
  if (text == "config") return std::nullopt;
  if (text == "0") return 0;
  const Result<uint64_t> parsed = parse_duration_ns(text);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(
        fmt::format("{}; 0 means no call is slow, config means the configured threshold",
                    std::string(parsed.status().message())));
  }
  if (*parsed < kLimitNs) return *parsed;
  return absl::InvalidArgumentError(fmt::format("\"{}\": longer than 146 years", text));
}

CLI::Validator make_threshold_check() {
  return {[](std::string& text) {
            const auto parsed = parse_threshold_ns(text);
            return parsed.ok() ? std::string() : std::string(parsed.status().message());
          },
          ""};
}

// What `probes threshold` was given.
struct NewThreshold {
  std::string pattern;
  std::string value;
};

Status run_threshold(const Invocation& invocation, const NewThreshold& threshold) {
  v1::SetSlowThresholdRequest request;
  request.set_category(invocation.options.category);
  request.set_function(threshold.pattern);
  ASSIGN_OR_RETURN(const std::optional<uint64_t> threshold_ns, parse_threshold_ns(threshold.value));
  if (threshold_ns.has_value()) request.set_threshold_ns(*threshold_ns);
  return run_change<v1::SetSlowThresholdResponse>(
      invocation, fmt::format("set the threshold of {}", threshold.pattern), request);
}

void declare_add(CLI::App& app, Invocation& invocation) {
  CLI::App& add = *app.add_subcommand("add", "Probe another function until gpuperfd stops (root)");
  const auto probe = std::make_shared<NewProbe>();
  add.add_option("SECTION", probe->section, "Section of the configuration, like cuda_func_sym")
      ->required()
      ->check(make_text_check());
  add.add_option("NAME", probe->name, "Display name")->required()->check(make_text_check());
  add.add_option("VALUE", probe->value, "Symbol, or a JSON object as in the configuration")
      ->required()
      ->check(make_text_check());
  add.callback([&app, &invocation, probe] {
    refuse_list_flags(app);
    invocation.run = [&invocation, probe] { return run_add(invocation, *probe); };
  });
}

void declare_remove(CLI::App& app, Invocation& invocation) {
  CLI::App& remove =
      *app.add_subcommand("remove", "Remove a function that you added with probes add (root)");
  const auto section = std::make_shared<std::string>();
  const auto name = std::make_shared<std::string>();
  remove.add_option("SECTION", *section, "Section it was added to, like cuda_func_sym")
      ->required()
      ->check(make_text_check());
  remove.add_option("NAME", *name, "Its display name")->required()->check(make_text_check());
  remove.callback([&app, &invocation, section, name] {
    refuse_list_flags(app);
    invocation.run = [&invocation, section, name] {
      return run_remove(invocation, *section, *name);
    };
  });
}

// Which functions a change is for.
void add_pattern(CLI::App& command, Options& options, std::string& pattern) {
  command.add_option("PATTERN", pattern, "Function names; * matches any characters")
      ->required()
      ->check(make_text_check());
  command.add_option("--category", options.category, "Only in this category, like cuda")
      ->check(make_text_check());
}

template <typename Request, typename Response>
void declare_switch(CLI::App& app, Invocation& invocation, const char* verb, const char* summary) {
  CLI::App& command = *app.add_subcommand(verb, summary);
  const auto pattern = std::make_shared<std::string>();
  add_pattern(command, invocation.options, *pattern);
  command.callback([&app, &invocation, pattern, verb] {
    refuse_list_flags(app);
    invocation.run = [&invocation, pattern, verb] {
      return run_switch<Request, Response>(invocation, verb, *pattern);
    };
  });
}

void declare_threshold(CLI::App& app, Invocation& invocation) {
  CLI::App& command = *app.add_subcommand(
      "threshold", "Set the threshold for slow calls until gpuperfd stops (root)");
  const auto threshold = std::make_shared<NewThreshold>();
  add_pattern(command, invocation.options, threshold->pattern);
  command
      .add_option("DURATION", threshold->value,
                  "Threshold; 0 = no call is slow; config = back to the configured one")
      ->required()
      ->type_name("20ms|1.5s|0|config")
      ->check(make_threshold_check());
  command.callback([&app, &invocation, threshold] {
    refuse_list_flags(app);
    invocation.run = [&invocation, threshold] { return run_threshold(invocation, *threshold); };
  });
}

}  // namespace

void declare_probes(CLI::App& app, Invocation& invocation) {
  Options& options = invocation.options;
  for (CLI::App* named :
       {&app, app.add_subcommand("list", "Same as probes without a subcommand")}) {
    add_function_flags(*named, options);
    add_sort_flag(*named, options, list_sort_fields(*Probe::descriptor()));
    add_limit_flag(*named, options);
    add_watch_flag(*named, options);
  }
  declare_add(app, invocation);
  declare_remove(app, invocation);
  declare_switch<v1::EnableProbesRequest, v1::EnableProbesResponse>(
      app, invocation, "enable", "Probe disabled functions again (root)");
  declare_switch<v1::DisableProbesRequest, v1::DisableProbesResponse>(
      app, invocation, "disable", "Stop probing functions until gpuperfd stops (root)");
  declare_threshold(app, invocation);
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
