#include "client/change.h"

#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <fmt/format.h>

#include <iostream>
#include <string>
#include <vector>

namespace gpuperf::client {
namespace {

std::string render_change(const v1::ProbeChange& change, const TextStyle& style) {
  std::string text = fmt::format("{} added, {} removed, {} changed, {} unchanged\n",
                                 format_count(change.added()), format_count(change.removed()),
                                 format_count(change.changed()), format_count(change.unchanged()));
  for (const std::string& warning : change.warnings()) {
    text += paint("Warning: ", Tone::kWarning, style) + make_printable(warning) + "\n";
  }
  if (change.restart_needed().empty()) return text;
  const std::string settings = absl::StrJoin(change.restart_needed(), ", ");
  return text + paint("Takes effect when gpuperfd is restarted: ", Tone::kWarning, style) +
         make_printable(settings) + "\n";
}

}  // namespace

Status show_change(const Invocation& invocation, std::string_view action, const Status& called,
                   const v1::ProbeChange& change) {
  const std::vector<std::string> lines =
      absl::StrSplit(std::string(called.message()), '\n', absl::SkipEmpty());
  if (absl::IsInvalidArgument(called) && lines.size() > 1) {
    // Several errors of a configuration: main would make one line of them.
    std::cerr << fmt::format("gpuperfctl: cannot {}: nothing has changed, because of {} errors:\n",
                             action, lines.size());
    const std::string prefix = fmt::format("cannot {}: ", action);
    for (const std::string& line : lines) {
      const bool prefixed = line.starts_with(prefix);
      std::cerr << "  " << make_printable(prefixed ? line.substr(prefix.size()) : line) << "\n";
    }
    return absl::InvalidArgumentError("");  // said above; only the exit code is left
  }
  RETURN_IF_ERROR(called);
  const View view = {find_format(invocation.options), JsonShape::kIndented,
                     invocation.output.read_style()};
  if (view.format == Format::kTable) {
    return invocation.output.write(render_change(change, view.style));
  }
  return invocation.output.write(render_message(change, view.format, view.shape, view.style));
}

}  // namespace gpuperf::client
