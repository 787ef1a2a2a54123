// Passes static probes (USDT), made by systemtap's own header: `begin` each time, `step` only while
// somebody listens, as its semaphore says, the way programs spare themselves costly arguments.
// Prints one JSON line:
//   {"program":"static_probes","pid":71,"calls":{"begin":{"calls":100,"errors":{}},"step":{...}}}

#define _SDT_HAS_SEMAPHORES 1
#include <sys/sdt.h>

#include <string>

#include "options.h"
#include "truth.h"

using namespace workload;

extern "C" {
// The header's names; the kernel counts listeners in them.
__attribute__((section(".probes"))) volatile unsigned short gpuperf_demo_begin_semaphore = 0;
__attribute__((section(".probes"))) volatile unsigned short gpuperf_demo_step_semaphore = 0;
}

int main(int argc, char** argv) {
  const Options options(argc, argv, {{"--calls", "100"}, {"--wait-for-file", ""}});
  wait_for_file(options.get_text("--wait-for-file"));

  Truth truth;
  for (uint64_t i = 0; i < options.get_count("--calls"); ++i) {
    DTRACE_PROBE1(gpuperf_demo, begin, i);
    count_call(truth["begin"], 0);
    if (gpuperf_demo_step_semaphore == 0) continue;
    DTRACE_PROBE1(gpuperf_demo, step, i);
    count_call(truth["step"], 0);
  }

  print_line("{\"program\":\"static_probes\",\"pid\":" + std::to_string(getpid()) +
             ",\"calls\":" + render_truth(truth) + "}");
  return 0;
}
