#include "daemon/gpu/pci.h"

#include <filesystem>
#include <fstream>

namespace gpuperf {
namespace {

std::string read_line(const std::filesystem::path& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

}  // namespace

bool has_nvidia_gpu(const std::string& pci_devices) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(pci_devices, error), end; !error && entry != end;
       entry.increment(error)) {
    // PCI class 03: display controllers; 0302 is "3D controller", as GPUs without outputs are.
    if (read_line(entry->path() / "vendor") == "0x10de" &&
        read_line(entry->path() / "class").starts_with("0x03")) {
      return true;
    }
  }
  return false;
}

}  // namespace gpuperf
