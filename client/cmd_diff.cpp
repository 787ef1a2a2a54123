// gpuperfctl diff A B: what changed between two captures.

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <string>

#include "client/capture_fetch.h"
#include "client/view.h"

namespace gpuperf::client {
namespace {

struct Diff {
  uint64_t before = 0;
  uint64_t after = 0;
  std::string by = "frame";
  std::string scale = "per-second";
  std::string svg;
  PathFlags flags;
};

v1::CaptureDiffBy find_by(const std::string& name) {
  if (name == "path") return v1::CAPTURE_DIFF_BY_PATH;
  if (name == "stall") return v1::CAPTURE_DIFF_BY_STALL;
  return name == "kernel" ? v1::CAPTURE_DIFF_BY_KERNEL : v1::CAPTURE_DIFF_BY_FRAME;
}

v1::CaptureDiffScale find_scale(const std::string& name) {
  if (name == "absolute") return v1::CAPTURE_DIFF_SCALE_ABSOLUTE;
  return name == "share" ? v1::CAPTURE_DIFF_SCALE_SHARE : v1::CAPTURE_DIFF_SCALE_PER_SECOND;
}

// "1.23 ms", or of shares "12.3 %".
std::string format_amount(uint64_t amount, bool share) {
  return share ? format_ratio(static_cast<double>(amount) / 1e9) : format_duration(amount);
}

std::string describe_ratio(const v1::CaptureDiffRow& row) {
  if (row.before_ns() == 0) return "new";
  if (row.after_ns() == 0) return "gone";
  const double ratio = static_cast<double>(row.delta_ns()) / static_cast<double>(row.before_ns());
  return fmt::format("{:+.1f} %", 100 * ratio);
}

std::string render_table(const v1::DiffCapturesResponse& response, bool share,
                         const TextStyle& style) {
  constexpr auto kRight = Column::Align::kRight;
  Table table({{"CHANGE", kRight},
               {"RATIO", kRight},
               {"BEFORE", kRight},
               {"AFTER", kRight},
               {.title = "COUNT BEFORE", .align = kRight, .optional = true},
               {.title = "COUNT AFTER", .align = kRight, .optional = true},
               {.title = "NAME", .shrink_to = 40, .cut = Cut::kStart}});
  for (const v1::CaptureDiffRow& row : response.rows()) {
    const bool grew = row.delta_ns() > 0;
    const auto size = static_cast<uint64_t>(grew ? row.delta_ns() : -row.delta_ns());
    table.add_row({{(grew                 ? "+"
                     : row.delta_ns() < 0 ? "-"
                                          : "") +
                        format_amount(size, share),
                    grew ? Tone::kBad : Tone::kGood},
                   {describe_ratio(row)},
                   {format_amount(row.before_ns(), share)},
                   {format_amount(row.after_ns(), share)},
                   {format_count(row.before_count())},
                   {format_count(row.after_count())},
                   {row.name()}});
  }
  return table.take_text(style);
}

Result<std::string> draw_diff(Connection& connection, const View& view, const Options& options,
                              const Diff& asked) {
  v1::DiffCapturesRequest request;
  request.set_before_id(asked.before);
  request.set_after_id(asked.after);
  request.set_by(find_by(asked.by));
  request.set_scale(find_scale(asked.scale));
  request.set_weight(find_weight(asked.flags.weight));
  *request.mutable_path() = asked.flags.path;
  request.set_limit(static_cast<uint32_t>(std::min<uint64_t>(options.limit, 10'000)));
  v1::DiffCapturesResponse response;
  RETURN_IF_ERROR(connection.call(
      fmt::format("compare captures {} and {}", asked.before, asked.after), request, &response));
  const std::vector<v1::CaptureDiffRow> rows(response.rows().begin(), response.rows().end());
  if (view.format != Format::kTable) return render_rows(rows, view.format, view.shape, view.style);
  std::string text = render_table(response, asked.scale == "share", view.style);
  std::string notes;
  if (rows.empty()) notes = "Nothing changed.\n";
  if (asked.scale == "per-second") notes += "Times are per second of the captures' windows.\n";
  if (response.total_rows() > rows.size()) {
    notes += fmt::format("{} more rows; show them with --limit\n",
                         format_count(response.total_rows() - rows.size()));
  }
  return text + (notes.empty() ? "" : "\n") + paint(notes, Tone::kDim, view.style);
}

Status run_diff(Invocation& invocation, const Diff& asked) {
  Options& options = invocation.options;
  if (!options.timeout_seconds.has_value()) options.timeout_seconds = kRenderSeconds;
  if (asked.svg.empty()) {
    return run_view(invocation, [&](Connection& connection, const View& view) {
      return draw_diff(connection, view, options, asked);
    });
  }
  RETURN_IF_ERROR(check_destination(invocation, asked.svg));
  RETURN_IF_ERROR(run_view(invocation, [&](Connection& connection, const View& view) {
    return draw_diff(connection, view, options, asked);
  }));
  ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, connect(invocation, nullptr));
  v1::FetchCaptureRequest request;
  request.set_id(asked.after);
  request.set_before_id(asked.before);
  request.set_format("diff-flamegraph");
  request.set_weight(find_weight(asked.flags.weight));
  *request.mutable_path() = asked.flags.path;
  return fetch_capture(*connection, request, invocation.output, asked.svg);
}

}  // namespace

void declare_diff(CLI::App& app, Invocation& invocation) {
  const auto asked = std::make_shared<Diff>();
  for (auto& [name, id, help] :
       {std::tuple("A", &asked->before, "Capture to compare with (before)"),
        std::tuple("B", &asked->after, "Capture to explain (after)")}) {
    app.add_option(name, *id, help)->required()->check(make_whole_number_check(1, UINT64_MAX));
  }
  app.add_option(
         "--by", asked->by,
         "What a row is: a frame that explains the change, a whole path, a kernel, or a stall "
         "reason of sampled kernels")
      ->check(CLI::IsMember({"path", "frame", "kernel", "stall"}).description(""))
      ->type_name("path|frame|kernel|stall")
      ->capture_default_str();
  app.add_option("--scale", asked->scale,
                 "What to compare: time per second, absolute time, or share of the total")
      ->check(CLI::IsMember({"per-second", "absolute", "share"}).description(""))
      ->type_name("per-second|absolute|share")
      ->capture_default_str();
  app.add_option("--svg", asked->svg, "Also write a flame graph of the difference")
      ->type_name("FILE")
      ->check(make_text_check());
  add_path_flags(app, asked->flags);
  add_limit_flag(app, invocation.options);
  app.callback([&invocation, asked] {
    invocation.run = [&invocation, asked] { return run_diff(invocation, *asked); };
  });
}

}  // namespace gpuperf::client
