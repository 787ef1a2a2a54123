// libFuzzer target: any bytes as what a client of the HTTP port sends. Aborts where a promise of
// daemon/export/http_request_reader.h is broken.
//
// Built where the compiler is clang (-DGPUPERF_FUZZ=ON). Usage: http_request_fuzz [corpus folder].

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "tests/unit/export/http_reading.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  const std::string fault =
      gpuperf::testing::find_http_fault({reinterpret_cast<const char*>(data), size_bytes});
  if (fault.empty()) return 0;
  std::cerr << fault << "\n";
  std::abort();
}
