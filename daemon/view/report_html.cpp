#include "daemon/view/report_html.h"

#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "daemon/view/assets.h"
#include "daemon/view/escape.h"
#include "daemon/view/flamegraph_data.h"
#include "daemon/view/report_tables.h"
#include "daemon/view/report_timeline.h"
#include "daemon/view/summary.h"
#include "daemon/view/view_header.h"

namespace gpuperf {

namespace {

// Nothing from anywhere else is loaded or asked for, whatever a name may hold.
constexpr std::string_view kPolicy =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:";

std::string make_section(std::string_view id, std::string_view title, std::string_view body) {
  if (body.empty()) return "";
  return fmt::format("<section id=\"{}\"><h2>{}</h2>\n{}</section>\n", id, title, body);
}

std::string make_flamegraph_section(const Capture& capture, const ViewOptions& options) {
  const FrameTree tree = make_frame_tree(capture, options);
  const std::vector<FrameTree::Node> nodes = tree.list(FrameTree::Order::kByWeight);
  const uint64_t shown_ns = nodes[0].totals[FrameTree::kAfter].total_ns;
  FlameGraph graph = {.header = make_view_header(capture, options, shown_ns)};
  graph.header.lines.resize(1);  // the page's head has the rest
  std::string html =
      "<div><svg xmlns=\"http://www.w3.org/2000/svg\" class=\"fg\" id=\"flamegraph\" width=\"100\" "
      "height=\"60\"></svg></div>\n<noscript><p>The flame graph needs JavaScript; <code>gpuperfctl "
      "flamegraph</code> writes one that does not.</p></noscript>\n";
  html += "<script type=\"application/json\" id=\"flamegraph-data\">";
  html += make_flamegraph_json(graph, tree, nodes);
  html += "</script>\n";
  return html;
}

std::string make_timeline_section(const Capture& capture) {
  return "<div id=\"timeline\"></div>\n"
         "<script type=\"application/json\" id=\"timeline-data\">" +
         make_timeline_json(capture) + "</script>\n";
}

std::string make_head(const Capture& capture, const std::string& title) {
  std::string html = fmt::format("<header><h1>{}</h1>\n<p>{}</p>\n<p>{}</p>\n",
                                 escape_markup(title), escape_markup(describe_window(capture)),
                                 escape_markup(describe_matches(capture)));
  if (const std::string gaps = describe_gaps(capture); !gaps.empty()) {
    html += fmt::format("<p class=\"warning\">{}</p>\n", escape_markup(gaps));
  }
  return html + "</header>\n";
}

}  // namespace

std::string render_report(const Capture& capture, const ViewOptions& options) {
  const CaptureSummary summary = summarise(capture);
  const std::string title = options.title.empty()
                                ? "GPU report" + (capture.host.empty() ? "" : ", " + capture.host)
                                : options.title;
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n<style>\n",
      kPolicy, escape_markup(title));
  html += get_flamegraph_style();
  html += get_report_style();
  html += "</style>\n</head>\n<body>\n";
  html += make_head(capture, title);
  html += "<main>\n" + make_report_cards(capture, summary);
  html += make_section("why", "Where the time went", make_report_why(capture));
  html += make_section("idle", "Busy and idle", make_report_idle(capture, summary));
  html += make_section("flames",
                       options.weight == ViewWeight::kGpuTime ? "Where GPU time comes from"
                       : options.weight == ViewWeight::kCpuTime
                           ? "Where CPU time in probed calls goes"
                           : "Where off-CPU time in probed calls goes",
                       make_flamegraph_section(capture, options));
  html += make_section("time", "Timeline", make_timeline_section(capture));
  html += make_section("kernels", "Kernels", make_report_kernels(capture, summary));
  html += make_section("operations", "Probed calls", make_report_operations(capture, summary));
  html += make_section("launches", "Launches", make_report_launches(capture, summary));
  html += make_section("copies", "Copies", make_report_copies(summary));
  html += make_section("facts", "Processes and streams", make_report_facts(capture, summary));
  html += fmt::format("</main>\n<footer>gpuperf {}</footer>\n<script>\n",
                      escape_markup(capture.version));
  html += get_flamegraph_script();
  html += get_report_script();
  html += "</script>\n</body>\n</html>\n";
  return html;
}

}  // namespace gpuperf
