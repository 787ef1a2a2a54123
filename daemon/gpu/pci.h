#pragma once

#include <string>

namespace gpuperf {

inline constexpr const char* kPciDevices = "/sys/bus/pci/devices";

// Whether an NVIDIA GPU is plugged in, driver or not: a host without one needs no driver, and
// nothing is wrong with it. False where that cannot be seen.
bool has_nvidia_gpu(const std::string& pci_devices);

}  // namespace gpuperf
