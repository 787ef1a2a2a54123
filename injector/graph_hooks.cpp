#include "injector/graph_hooks.h"

#include <atomic>
#include <cerrno>

// No cuda.h: it renames functions to their newer forms, and each form has a row here.

namespace gpuperf::injector {
namespace {

// Every function below takes only integers and pointers, six at most, passed on unchanged.
using AnyFunction = Word (*)(Word, Word, Word, Word, Word, Word);

OnGraph g_on_graph = nullptr;

void tell(bool begins) {
  if (g_on_graph == nullptr) return;
  const int error = errno;
  g_on_graph(begins);
  errno = error;
}

// What a call does to the open stream captures.
enum class Capture { kNone, kBegins, kEnds };

void count_capture(Capture capture, Word result) {
  std::atomic<uint16_t>& count = gpuperf_hook_flags.open_captures;
  if (capture == Capture::kBegins && static_cast<uint32_t>(result) == 0) count.fetch_add(1);
  if (capture != Capture::kEnds) return;
  // A capture whose beginning was not seen was not counted.
  uint16_t open = count.load();
  while (open > 0 && !count.compare_exchange_weak(open, static_cast<uint16_t>(open - 1))) {
  }
}

// X(function, whether it creates a graph from nothing, what it does to captures). Functions that
// need a graph are listed for graphs whose beginning was not seen, because it went through a
// pointer copied to where it is not found.
#define GPUPERF_GRAPH_CALLS(X)                                 \
  X(cuGraphCreate, true, Capture::kNone)                       \
  X(cuStreamBeginCapture, true, Capture::kBegins)              \
  X(cuStreamBeginCapture_ptsz, true, Capture::kBegins)         \
  X(cuStreamBeginCapture_v2, true, Capture::kBegins)           \
  X(cuStreamBeginCapture_v2_ptsz, true, Capture::kBegins)      \
  X(cuStreamBeginCaptureToGraph, false, Capture::kBegins)      \
  X(cuStreamBeginCaptureToGraph_ptsz, false, Capture::kBegins) \
  X(cuStreamEndCapture, false, Capture::kEnds)                 \
  X(cuStreamEndCapture_ptsz, false, Capture::kEnds)            \
  X(cuGraphClone, false, Capture::kNone)                       \
  X(cuGraphInstantiate, false, Capture::kNone)                 \
  X(cuGraphInstantiate_v2, false, Capture::kNone)              \
  X(cuGraphInstantiateWithFlags, false, Capture::kNone)        \
  X(cuGraphInstantiateWithParams, false, Capture::kNone)       \
  X(cuGraphInstantiateWithParams_ptsz, false, Capture::kNone)

#define GPUPERF_GRAPH_CALL(name, begins, capture)                      \
  AnyFunction real_##name = nullptr;                                   \
  Word before_##name(Word a, Word b, Word c, Word d, Word e, Word f) { \
    tell(begins);                                                      \
    const Word result = real_##name(a, b, c, d, e, f);                 \
    count_capture(capture, result);                                    \
    return result;                                                     \
  }
GPUPERF_GRAPH_CALLS(GPUPERF_GRAPH_CALL)
#undef GPUPERF_GRAPH_CALL

struct GraphCall {
  const char* name;
  AnyFunction* real;
  AnyFunction ours;
};
const GraphCall kGraphCalls[] = {
#define GPUPERF_GRAPH_ROW(name, begins, capture) {#name, &real_##name, before_##name},
    GPUPERF_GRAPH_CALLS(GPUPERF_GRAPH_ROW)
#undef GPUPERF_GRAPH_ROW
};
static_assert(std::size(kGraphCalls) <= kGraphHooksMax);

}  // namespace

void set_graph_watcher(OnGraph on_graph) { g_on_graph = on_graph; }

size_t list_graph_hooks(void* driver, std::span<PointerReplacement> replacements) {
  return list_replacements(driver, kGraphCalls, replacements);
}

}  // namespace gpuperf::injector
