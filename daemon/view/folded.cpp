#include "daemon/view/folded.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "daemon/view/frame_text.h"
#include "daemon/view/frame_tree.h"

namespace gpuperf {

namespace {

constexpr size_t kLauncherLength = 64;  // of a line, about

// The beginning of a line: who launched.
std::string make_launcher(const Capture& capture, uint32_t thread) {
  if (thread >= capture.threads.size()) return "? 0 0";
  const CaptureThread& found = capture.threads[thread];
  std::string comm = found.comm;
  uint32_t pid = 0;
  if (found.process < capture.processes.size()) {
    pid = capture.processes[found.process].process.pid;
    if (comm.empty()) comm = capture.processes[found.process].owner.comm;
  }
  comm = comm.empty() ? "?" : to_path_text(comm);
  std::replace(comm.begin(), comm.end(), ' ', '_');
  return fmt::format("{} {} {}", comm, pid, found.tid);
}

std::string join_path(const PathTable& table, uint32_t path) {
  std::string joined;
  for (const uint32_t frame : table.get_frames(path)) {
    if (!joined.empty()) joined += ';';
    joined += table.get_text(frame);
  }
  return joined;
}

}  // namespace

std::string render_folded(const Capture& capture, const ViewOptions& options) {
  const FrameTree tree = make_frame_tree(capture, options);
  std::string text;
  std::string path;
  std::vector<size_t> ends;  // of the path, by depth
  for (const FrameTree::Node& node : tree.list(FrameTree::Order::kByName)) {
    if (node.frame == kNoIndex) continue;
    ends.resize(node.depth - 1);
    path.resize(ends.empty() ? 0 : ends.back());
    if (!path.empty()) path += ';';
    path += tree.get_name(node.frame);
    ends.push_back(path.size());
    const uint64_t self_ns = node.totals[FrameTree::kAfter].self_ns;
    if (self_ns == 0) continue;
    fmt::format_to(std::back_inserter(text), "{} {}.{:03}\n", path, self_ns / 1000, self_ns % 1000);
  }
  return text;
}

std::string render_extended_folded(const Capture& capture, const ViewOptions& options) {
  PathTable table(capture, options.path);
  std::vector<std::string> paths;  // by path of the table
  std::vector<std::string> launchers;
  for (uint32_t thread = 0; thread < capture.threads.size(); ++thread) {
    launchers.push_back(make_launcher(capture, thread));
  }
  const std::string unknown = make_launcher(capture, kNoIndex);

  size_t length = 0;
  for (const CaptureLaunch& launch : capture.launches) {
    const uint32_t path = table.find_path(launch);
    if (path == paths.size()) paths.push_back(join_path(table, path));
    length += paths[path].size() + kLauncherLength;
  }
  std::string text;
  text.reserve(length);  // paths are long: growing would need as much again
  for (const CaptureLaunch& launch : capture.launches) {
    const uint32_t path = table.find_path(launch);
    const bool is_known = launch.thread < launchers.size();
    fmt::format_to(std::back_inserter(text), "{} {} -1 {}\n", launch.start_mono_ns,
                   is_known ? launchers[launch.thread] : unknown, paths[path]);
  }
  return text;
}

}  // namespace gpuperf
