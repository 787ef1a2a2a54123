// gpuperfctl kernels: what ran on the GPUs, for how long, and how long it took to get there.

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "client/kernel_text.h"
#include "client/kernels_by.h"
#include "client/pages.h"
#include "client/view.h"

namespace gpuperf::client {
namespace {

using v1::KernelStats;
using v1::ListKernelsRequest;
using v1::ListKernelsResponse;

constexpr ListCall<ListKernelsRequest, ListKernelsResponse, KernelStats> kListKernels = {
    .rows = &ListKernelsResponse::mutable_kernels, .action = "list kernels", .page_rows = 1000};

Table make_kernel_table(bool per_process) {
  constexpr auto kRight = Column::Align::kRight;
  std::vector<Column> columns;
  if (per_process) columns = {{"PID", kRight}, {.title = "COMM", .shrink_to = 8}};
  for (const Column& column :
       std::vector<Column>{{.title = "KERNEL", .shrink_to = 30, .cut = Cut::kMiddle},
                           {"LAUNCHES", kRight},
                           {.title = "IN GRAPHS", .align = kRight, .optional = true},
                           {"TOTAL", kRight},
                           {"SHARE", kRight},
                           {"AVG", kRight},
                           {"P50", kRight},
                           {"P99", kRight},
                           {"MAX", kRight},
                           {.title = "LATENCY P50", .align = kRight, .optional = true},
                           {.title = "LATENCY P99", .align = kRight, .optional = true},
                           {.title = "COVERAGE", .align = kRight, .optional = true}}) {
    columns.push_back(column);
  }
  return Table(std::move(columns));
}

struct KernelFlags {
  bool per_process = false;
  bool full_names = false;
  bool stalls = false;
};

// Short names that several kernels of the table have: overloads, and equal names in namespaces.
std::set<std::string> find_shared_names(const std::vector<KernelStats>& rows) {
  std::map<std::string, std::string> kernels;  // by short name
  std::set<std::string> shared;
  for (const KernelStats& row : rows) {
    const auto [found, is_new] = kernels.try_emplace(row.short_name(), row.kernel());
    if (!is_new && found->second != row.kernel()) shared.insert(row.short_name());
  }
  return shared;
}

std::string render_table(const std::vector<KernelStats>& rows, const KernelFlags& flags,
                         const TextStyle& style) {
  Table table = make_kernel_table(flags.per_process);
  const std::set<std::string> shared = find_shared_names(rows);
  for (const KernelStats& row : rows) {
    const auto latency = [&row](uint64_t ns) {
      return Cell{row.joined_launches() == 0 ? "" : format_duration(ns)};
    };
    std::vector<Cell> cells;
    if (flags.per_process) {
      cells = {{std::to_string(row.pid())}, {row.comm() + (row.exited() ? " (exited)" : "")}};
    }
    for (Cell& cell : std::vector<Cell>{
             {flags.full_names || shared.contains(row.short_name()) ? row.kernel()
                                                                    : row.short_name()},
             {format_count(row.launches())},
             {row.graph_launches() == 0 ? "" : format_count(row.graph_launches())},
             {format_duration(row.total_ns())},
             {format_ratio(row.share_ratio())},
             {format_duration(row.avg_ns())},
             {format_duration(row.p50_ns())},
             {format_duration(row.p99_ns())},
             {format_duration(row.max_ns())},
             latency(row.launch_latency_p50_ns()),
             latency(row.launch_latency_p99_ns()),
             {row.coverage() < 1 ? format_ratio(row.coverage()) : "", Tone::kWarning}}) {
      cells.push_back(std::move(cell));
    }
    table.add_row(std::move(cells));
  }
  return table.take_text(style);
}

uint64_t count_sessions(const v1::SessionCounts& counts) {
  return uint64_t{counts.starting()} + counts.waiting() + counts.collecting() + counts.paused() +
         counts.yielded() + counts.off() + counts.failed();
}

// What the numbers above do not say by themselves; empty when there is nothing.
std::string render_notes(const std::vector<KernelStats>& rows, const v1::GetStatusResponse& status,
                         bool filtered) {
  std::string notes;
  if (rows.empty() && filtered) {
    notes += "No kernel matches. Without filters: gpuperfctl kernels\n";
  } else if (rows.empty() && count_sessions(status.sessions()) == 0) {
    notes +=
        "No process is injected. Start the workload with "
        "CUDA_INJECTION64_PATH=…/libgpuperf_injector.so; if you did: gpuperfctl doctor\n";
  } else if (rows.empty()) {
    notes += "No kernel was seen yet. State of the injected processes: gpuperfctl sessions\n";
  }
  uint64_t sampled = 0;
  for (const KernelStats& row : rows) sampled += row.coverage() < 1 ? 1 : 0;
  if (sampled > 0) {
    notes += fmt::format(
        "Rows that count only a sample of the launches, unscaled (COVERAGE): {}. Sessions that "
        "sample: gpuperfctl sessions\n",
        format_count(sampled));
  }
  if (status.session_lost_records() > 0) {
    notes += fmt::format("Records lost since the daemon started: {}. Where: gpuperfctl sessions\n",
                         format_count(status.session_lost_records()));
  }
  return notes;
}

Result<std::string> draw_kernels(Connection& connection, const View& view, const Options& options,
                                 const KernelFlags& flags) {
  ListKernelsRequest request;
  ASSIGN_OR_RETURN(*request.mutable_filter(), make_filter(options, read_wall_clock_ns()));
  request.set_sort(options.sort);
  request.set_per_process(flags.per_process);
  ASSIGN_OR_RETURN(const std::vector<KernelStats> rows,
                   read_pages(connection, kListKernels, request, options.limit));
  if (view.format != Format::kTable) return render_rows(rows, view.format, view.shape, view.style);
  v1::GetStatusResponse status;
  RETURN_IF_ERROR(connection.call("read the status", v1::GetStatusRequest(), &status));
  const std::string notes = render_notes(rows, status, has_filter(options));
  const std::string table = flags.stalls ? render_stalls_table(rows, flags.full_names, view.style)
                                         : render_table(rows, flags, view.style);
  return fmt::format("{}{}{}", table, notes.empty() ? "" : "\n",
                     paint(notes, Tone::kDim, view.style));
}

// The kernel with the most time of those that the name matches.
Result<std::string> draw_kernel(Connection& connection, const View& view, const Options& options) {
  ListKernelsRequest request;
  ASSIGN_OR_RETURN(*request.mutable_filter(), make_filter(options, read_wall_clock_ns()));
  ASSIGN_OR_RETURN(const std::vector<KernelStats> rows,
                   read_pages(connection, kListKernels, request, 2));
  if (rows.empty()) {
    return absl::NotFoundError(fmt::format(
        "no kernel matches \"{}\"; all that were seen: gpuperfctl kernels", options.function));
  }
  if (view.format != Format::kTable) {
    return render_message(rows.front(), view.format, view.shape, view.style);
  }
  const std::string more =
      rows.size() > 1 ? "\nOther kernels match, too: this one took the most time. Give more of its "
                        "name for another.\n"
                      : "";
  return render_kernel(rows.front(), view.style) + paint(more, Tone::kDim, view.style);
}

void declare_show(CLI::App& kernels, Invocation& invocation) {
  CLI::App& app = *kernels.add_subcommand("show", "Show what limits one kernel");
  add_process_flags(app, invocation.options);
  app.add_option("NAME", invocation.options.function,
                 "Its name, short or full; * matches any characters")
      ->required()
      ->check(make_text_check());
  app.callback([&invocation] {
    invocation.run = [&invocation] {
      return run_view(invocation, [&](Connection& connection, const View& view) {
        return draw_kernel(connection, view, invocation.options);
      });
    };
  });
}

}  // namespace

void declare_kernels(CLI::App& app, Invocation& invocation) {
  Options& options = invocation.options;
  const auto flags = std::make_shared<KernelFlags>();
  add_process_flags(app, options);
  app.add_option("--kernel", options.function,
                 "Only kernels of this name, short or full; * matches any characters")
      ->check(make_text_check());
  add_sort_flag(app, options, "kernel, or any number in the JSON output, like launches or p99_ns");
  add_limit_flag(app, options);
  add_watch_flag(app, options);
  app.add_flag("--per-process", flags->per_process, "One row per kernel and process");
  app.add_flag("--full-names", flags->full_names,
               "Show kernel names with return type, namespaces and parameters");
  app.add_flag("--stalls", flags->stalls,
               "Show what limits them: occupancy, and what their warps wait for, once sampled");
  declare_show(app, invocation);
  const auto by = std::make_shared<KernelsBy>();
  add_kernels_by_flags(app, *by);
  app.callback([&invocation, flags, by] {
    if (invocation.run) return;  // a subcommand's callback came first
    if (!by->by.empty()) {
      invocation.run = [&invocation, flags, by] {
        return run_kernels_by(invocation, *by, flags->full_names);
      };
      return;
    }
    invocation.run = [&invocation, flags] {
      return run_view(invocation, [&](Connection& connection, const View& view) {
        return draw_kernels(connection, view, invocation.options, *flags);
      });
    };
  });
}

}  // namespace gpuperf::client
