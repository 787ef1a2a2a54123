// Writes what a browser shows of a synthetic capture, and of it compared with a slower one, into a
// folder.
//
// usage: make_capture FOLDER STACKS WORK DEEPEST [hostile]

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>

#include "daemon/view/diff.h"
#include "daemon/view/formats.h"
#include "tests/workloads/synthetic_capture.h"

namespace {

bool write_file(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  file.close();
  if (!file) std::cerr << "make_capture: " << path << " could not be written\n";
  return !file.fail();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::cerr << "usage: make_capture FOLDER STACKS WORK DEEPEST [hostile]\n";
    return 2;
  }
  const std::string folder = argv[1];
  gpuperf::testing::SyntheticCapture options = {
      .stacks = std::strtoul(argv[2], nullptr, 10),
      .work = std::strtoul(argv[3], nullptr, 10),
      .deepest = std::strtoul(argv[4], nullptr, 10),
      .is_hostile = argc > 5 && std::string(argv[5]) == "hostile"};
  if (options.stacks == 0 || options.work == 0 || options.deepest < 9) {
    std::cerr << "make_capture: STACKS and WORK must not be 0, DEEPEST not below 9\n";
    return 2;
  }
  const gpuperf::Capture before = make_synthetic_capture(options);
  options.is_slower = true;
  const gpuperf::Capture after = make_synthetic_capture(options);

  bool is_written = true;
  for (const gpuperf::ViewFormat& format : gpuperf::list_view_formats()) {
    if (format.name != "flamegraph" && format.name != "report") continue;
    const std::string path =
        folder + "/" + std::string(format.name) + "." + std::string(format.suffix);
    is_written &= write_file(path, format.render(before, {}));
  }
  is_written &= write_file(folder + "/diff.svg", render_diff_flamegraph(before, after, {}));
  return is_written ? 0 : 1;
}
