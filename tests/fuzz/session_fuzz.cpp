// libFuzzer target: any bytes as what an injected process sends. Aborts where a promise of
// daemon/model/session.h is broken.
//
// Built where the compiler is clang (-DGPUPERF_FUZZ=ON). Usage: session_fuzz [corpus folder];
// `session_fuzz_corpus FOLDER` writes good messages to begin with.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>

#include "tests/unit/base/fake_clock.h"
#include "tests/unit/session/session_decoding.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  const gpuperf::FakeClock clock{400'000'000'000'000, 1'700'000'000'000'000'000};
  const auto decoding =
      gpuperf::decode_any(std::string(reinterpret_cast<const char*>(data), size_bytes), clock);
  if (decoding.fault.empty()) return 0;
  std::cerr << decoding.fault << "\n";
  std::abort();
}
