// Calls torch::nn::LinearImpl::forward of the real libtorch a known number of times, every tenth
// with a wrong shape: then c10::Error is thrown through forward and caught here. Prints one JSON
// line:
//   {"program":"torch_linear","pid":71,"elapsed_ns":..,"caught":10,
//    "calls":{"linear_forward":{"calls":100,"errors":{}}}}

#include <c10/util/Exception.h>
#include <torch/nn/modules/linear.h>

#include <string>

#include "options.h"
#include "truth.h"

using namespace workload;

int main(int argc, char** argv) {
  const Options options(argc, argv,
                        {{"--calls", "100"},
                         {"--wait-for-file", ""},      // begin once it exists
                         {"--linger-for-file", ""}});  // exit once it exists
  const uint64_t calls = options.get_count("--calls");
  torch::nn::LinearImpl linear(64, 32);
  const torch::Tensor right = torch::ones({16, 64});
  const torch::Tensor wrong = torch::ones({16, 63});
  wait_for_file(options.get_text("--wait-for-file"));

  const uint64_t start_ns = now_mono_ns();
  uint64_t caught = 0;
  Truth truth;
  for (uint64_t i = 0; i < calls; ++i) {
    truth["linear_forward"].calls += 1;
    try {
      const torch::Tensor result = linear.forward(i % 10 == 3 ? wrong : right);
      if (result.size(0) != 16 || result.size(1) != 32) {
        fprintf(stderr, "torch_linear: the result has a wrong shape\n");
        return 1;
      }
    } catch (const c10::Error&) {
      ++caught;
    }
  }
  print_line("{\"program\":\"torch_linear\",\"pid\":" + std::to_string(getpid()) +
             ",\"elapsed_ns\":" + std::to_string(now_mono_ns() - start_ns) +
             ",\"caught\":" + std::to_string(caught) + ",\"calls\":" + render_truth(truth) + "}");
  wait_for_file(options.get_text("--linger-for-file"));
  return 0;
}
