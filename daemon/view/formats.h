#pragma once

// Every form in which a capture can be had: one row each.

#include <span>
#include <string>
#include <string_view>

#include "daemon/base/result.h"
#include "daemon/model/capture.h"
#include "daemon/view/call_path.h"

namespace gpuperf {

// What is added up along the paths of folded forms, flame graphs and pprof.
enum class ViewWeight {
  kGpuTime,     // of the work that a launch caused
  kCpuTime,     // of launch calls and of probed calls, without what runs nested in them
  kOffCpuTime,  // of probed calls
  kIdleTime     // of GPUs, by what the launching thread did: of folded forms and flame graphs alone
};

struct ViewOptions {
  ViewWeight weight = ViewWeight::kGpuTime;
  PathOptions path;
  std::string title;             // of flame graphs and reports; empty = one is made
  bool by_capture_site = false;  // nodes of graphs at who put them there, not at who replayed them
  bool with_stalls = false;      // GPU time of kernels by what their warps waited for
};

struct ViewFormat {
  std::string_view name;        // "flamegraph"
  std::string_view suffix;      // "svg"
  std::string_view media_type;  // "image/svg+xml"
  std::string_view summary;     // one line, for --help and the reference
  std::string (*render)(const Capture& capture, const ViewOptions& options);
};

// "folded", "extended-folded", "flamegraph", "idle-folded", "idle-flamegraph", "report", "chrome",
// "perfetto", "pprof".
std::span<const ViewFormat> list_view_formats();
// InvalidArgument: there is no such format; the message lists those there are.
Result<std::string> render_view(const Capture& capture, std::string_view format,
                                const ViewOptions& options);

}  // namespace gpuperf
