// Calls moe::dispatch, the function of the example in docs/configuration.md: arguments in registers
// and on the stack, a name, dimensions and expert ids behind pointers. Prints one JSON line:
//   {"program":"typed_calls","pid":71,"bytes":786432,"calls":{"dispatch":{"calls":3,"errors":{}}}}

#include <string>

#include "options.h"
#include "truth.h"

using namespace workload;

namespace moe {

struct Operator {
  uint64_t id;
  uint64_t flags;
  const char* name;  // 16 bytes behind the beginning
  int64_t dims[4];
};
struct Experts {
  uint64_t count;
  const int32_t* ids;
};
struct Routing {
  const Experts* experts;
};

uint64_t dispatch(const Operator* op, uint32_t tokens, uint64_t token_bytes, const Routing* routing,
                  uint64_t seed, uint64_t rank, void* stream) {
  sleep_ns(6'000'000);
  return op->id + tokens * token_bytes + routing->experts->count + seed + rank +
         reinterpret_cast<uintptr_t>(stream);
}

}  // namespace moe

int main(int argc, char** argv) {
  const Options options(argc, argv, {{"--calls", "3"}, {"--wait-for-file", ""}});
  wait_for_file(options.get_text("--wait-for-file"));

  const moe::Operator op = {.id = 7, .flags = 0, .name = "expert_mlp", .dims = {4, 128, 2048, -1}};
  const int32_t ids[8] = {3, 1, 4, 1, 5, 9, 2, 6};
  const moe::Experts experts = {.count = 8, .ids = ids};
  const moe::Routing routing = {.experts = &experts};
  constexpr uint32_t kTokens = 64;
  constexpr uint64_t kTokenBytes = 4096;
  Truth truth;
  uint64_t bytes = 0;
  for (uint64_t i = 0; i < options.get_count("--calls"); ++i) {
    (void)moe::dispatch(&op, kTokens, kTokenBytes, &routing, 1, 2,
                        reinterpret_cast<void*>(uintptr_t{0x5eed}));
    count_call(truth["dispatch"], 0);
    bytes += kTokens * kTokenBytes;
  }

  print_line("{\"program\":\"typed_calls\",\"pid\":" + std::to_string(getpid()) +
             ",\"bytes\":" + std::to_string(bytes) + ",\"calls\":" + render_truth(truth) + "}");
  return 0;
}
