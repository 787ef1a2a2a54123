// Writes the example capture in every form there is, and what is true of it, for tests that let
// others read these files.
//
// usage: make_example FOLDER
//   FORMAT.SUFFIX of each, chrome-short.json in its form for very large captures, and truth.json,
//   whose numbers are counted here, row by row.

#include <cstdio>
#include <fstream>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "daemon/model/display_text.h"
#include "daemon/view/chrome_trace.h"
#include "daemon/view/formats.h"
#include "tests/fakes/captures/example_capture.h"

namespace gpuperf {
namespace {

nlohmann::json count_truth(const Capture& capture) {
  nlohmann::json truth;
  uint64_t flows = 0;
  uint64_t gpu_ns = 0;
  std::map<std::string, uint64_t> ns_by_name;
  for (const CaptureWork& work : capture.work) {
    gpu_ns += work.duration_ns;
    const bool is_kernel = work.kind == WorkKind::kKernel;
    const std::string name =
        is_kernel ? capture.kernels[work.kernel].short_name : get_work_name(capture, work);
    ns_by_name[to_valid_utf8(name)] += work.duration_ns;
    if (work.launch == kNoIndex) continue;
    if (capture.launches[work.launch].start_mono_ns <= work.start_mono_ns) ++flows;
  }
  for (const CaptureCall& call : capture.calls) {
    ns_by_name[capture.functions[call.function].name] += call.duration_ns;
  }
  truth["calls"] = capture.calls.size();
  truth["launches"] = capture.launches.size();
  truth["work"] = capture.work.size();
  truth["waits"] = capture.waits.size();
  truth["gaps"] = capture.gaps.size();
  truth["flows"] = flows;
  truth["gpu_ns"] = gpu_ns;
  truth["ns_by_name"] = ns_by_name;
  truth["window_mono_ns"] = std::to_string(capture.start_mono_ns);
  truth["start_unix_ns"] = std::to_string(capture.start_unix_ns);
  truth["duration_ns"] = capture.duration_ns;
  return truth;
}

int write_files(const std::string& folder) {
  const Capture capture = testing::make_example_capture();
  std::map<std::string, std::string> files{{"truth.json", count_truth(capture).dump(1)}};
  for (const ViewFormat& format : list_view_formats()) {
    files[std::string(format.name) + "." + std::string(format.suffix)] =
        format.render(capture, ViewOptions{});
  }
  files["chrome-short.json"] = render_chrome_trace(capture, ChromeLimits{0, 0});
  for (const auto& [name, text] : files) {
    const std::string path = folder + "/" + name;
    std::ofstream(path, std::ios::binary) << text;
    if (std::ifstream(path).fail()) {
      std::fprintf(stderr, "make_example: %s cannot be written\n", path.c_str());
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace gpuperf

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: make_example FOLDER\n");
    return 2;
  }
  return gpuperf::write_files(arguments[1]);
}
