// What libFuzzer calls, the same for every target.

#include <spdlog/spdlog.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>

#include "tests/fuzz/fuzz_target.h"

namespace gpuperf::fuzz {

__attribute__((weak)) std::vector<std::string> make_seeds() { return {}; }

}  // namespace gpuperf::fuzz

// With GPUPERF_SEED_FOLDER: writes the target's seeds there, and ends.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  spdlog::set_level(spdlog::level::off);
  const char* folder = std::getenv("GPUPERF_SEED_FOLDER");
  if (folder == nullptr) return 0;
  int number = 0;
  for (const std::string& seed : gpuperf::fuzz::make_seeds()) {
    std::ofstream file(std::string(folder) + "/" + std::to_string(number++), std::ios::binary);
    if (!(file << seed).flush()) {
      std::cerr << folder << ": cannot write a seed\n";
      std::exit(1);
    }
  }
  std::exit(0);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  const std::string fault =
      gpuperf::fuzz::find_fault({reinterpret_cast<const char*>(data), size_bytes});
  if (fault.empty()) return 0;
  std::cerr << "broken promise: " << fault << "\n";
  std::abort();
}
