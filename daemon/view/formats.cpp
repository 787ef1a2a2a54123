#include "daemon/view/formats.h"

#include <fmt/format.h>

#include <array>

#include "daemon/view/chrome_trace.h"
#include "daemon/view/flamegraph_svg.h"
#include "daemon/view/folded.h"
#include "daemon/view/perfetto_trace.h"
#include "daemon/view/pprof.h"
#include "daemon/view/report_html.h"

namespace gpuperf {

namespace {

template <auto kRender>
std::string render_idle(const Capture& capture, const ViewOptions& options) {
  ViewOptions idle = options;
  idle.weight = ViewWeight::kIdleTime;
  return kRender(capture, idle);
}

constexpr auto kFormats = std::to_array<ViewFormat>({
    {"folded", "folded", "text/plain; charset=utf-8",
     "one line per stack with its microseconds, for flame graph tools", render_folded},
    {"extended-folded", "txt", "text/plain; charset=utf-8",
     "one line per launch: time, process, thread, stack", render_extended_folded},
    {"flamegraph", "svg", "image/svg+xml",
     "flame graph in one file: zoom, search; any browser shows it", render_flamegraph},
    {"idle-folded", "folded", "text/plain; charset=utf-8",
     "one line per stack with the microseconds that a GPU was idle meanwhile",
     render_idle<render_folded>},
    {"idle-flamegraph", "svg", "image/svg+xml",
     "flame graph of the time that GPUs were idle, by what the host did",
     render_idle<render_flamegraph>},
    {"report", "html", "text/html; charset=utf-8",
     "everything on one page: idle time, flame graph, timeline, kernels, launches", render_report},
    {"chrome", "json", "application/json",
     "trace for Perfetto's viewer, chrome://tracing and speedscope", render_chrome_trace},
    {"perfetto", "pftrace", "application/x-protobuf",
     "trace for Perfetto's viewer and its SQL, smaller than chrome", render_perfetto_trace},
    {"pprof", "pb.gz", "application/gzip",
     "profile for `go tool pprof` and what else reads its format", render_pprof},
});

}  // namespace

std::span<const ViewFormat> list_view_formats() { return kFormats; }

Result<std::string> render_view(const Capture& capture, std::string_view format,
                                const ViewOptions& options) {
  std::string names;
  for (const ViewFormat& row : kFormats) {
    if (row.name == format) return row.render(capture, options);
    names += names.empty() ? "" : ", ";
    names += row.name;
  }
  return absl::InvalidArgumentError(
      fmt::format("view: unknown format '{}'; formats: {}", format, names));
}

}  // namespace gpuperf
