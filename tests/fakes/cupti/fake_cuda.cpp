#include "tests/fakes/cupti/fake_cuda.h"

#include <cupti_driver_cbid.h>
#include <cupti_runtime_cbid.h>
#include <dlfcn.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

struct FakeGraph {
  uint32_t id = 0;
  uint32_t nodes = 0;
  const char* name = nullptr;
  bool is_traceable = false;  // GRAPH_TRACE was on while it was made
  std::atomic<bool> has_node_instruments = false;
};

namespace {

constexpr uint64_t kQueueNs = 2'000;  // from a call's start to its work's
constexpr uint64_t kNodeNs = 1'000;   // of each kernel in a graph

std::atomic<const FakeTools*> g_tools = nullptr;
std::atomic<bool> g_is_up = false;
std::atomic<uint32_t> g_correlation = 0;
std::atomic<uint32_t> g_graphs = 0;
std::atomic<int> g_calls_under_way = 0;
std::atomic<uint64_t> g_injection_ns = 0;
std::atomic<uint64_t> g_slowed_launches = 0;
std::atomic<uint64_t> g_busy_until_unix_ns = 0;
thread_local int t_depth = 0;

// Never destroyed, as everything here that threads use: some launch while the process exits.
std::mutex g_truth_lock;
std::vector<FakeCall>& g_calls = *new std::vector<FakeCall>;
std::vector<FakeWork>& g_works = *new std::vector<FakeWork>;

uint64_t read_unix_ns() {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// A call from its beginning to its end, with the tools that were there at each.
class Call {
 public:
  Call(bool is_driver, uint32_t callback_id) {
    ++g_calls_under_way;
    ++t_depth;
    call_.is_driver = is_driver;
    call_.callback_id = callback_id;
    call_.correlation_id = ++g_correlation;
    call_.tid = static_cast<uint32_t>(syscall(SYS_gettid));
    call_.start_unix_ns = read_unix_ns();
    if (const FakeTools* tools = g_tools.load()) tools->on_enter(call_);
  }
  ~Call() {
    call_.end_unix_ns = read_unix_ns();
    {
      const std::scoped_lock lock(g_truth_lock);
      g_calls.push_back(call_);
    }
    if (const FakeTools* tools = g_tools.load()) tools->on_exit(call_);
    --t_depth;
    --g_calls_under_way;
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  uint32_t correlation_id() const { return call_.correlation_id; }

  // Runs on the device, once the one before it is over.
  void work(FakeWork work, FakeWorkKind kind, uint64_t duration_ns) const {
    work.kind = kind;
    work.correlation_id = call_.correlation_id;
    const uint64_t earliest = read_unix_ns() + kQueueNs;
    uint64_t busy = g_busy_until_unix_ns.load();
    do {
      work.start_unix_ns = busy > earliest ? busy : earliest;
      work.end_unix_ns = work.start_unix_ns + duration_ns;
    } while (!g_busy_until_unix_ns.compare_exchange_weak(busy, work.end_unix_ns));
    note(work);
  }
  void note(const FakeWork& work) const {
    {
      const std::scoped_lock lock(g_truth_lock);
      g_works.push_back(work);
    }
    if (const FakeTools* tools = g_tools.load()) tools->on_work(work);
  }

 private:
  FakeCall call_;
};

uint32_t change_memory(uint32_t callback_id, uint64_t address, uint64_t bytes, uint32_t operation) {
  const Call call(false, callback_id);
  FakeWork work;
  work.kind = FakeWorkKind::kMemory;
  work.correlation_id = call.correlation_id();
  work.start_unix_ns = read_unix_ns();
  work.address = address;
  work.bytes = bytes;
  work.detail = operation;
  call.note(work);
  return call.correlation_id();
}

// As the real driver does in cuInit.
void load_injection() {
  const char* path = std::getenv("CUDA_INJECTION64_PATH");
  if (path == nullptr || path[0] == '\0') return;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  const auto initialise = reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection"));
  if (initialise == nullptr) return;
  const uint64_t start = read_unix_ns();
  (void)initialise();
  g_injection_ns = read_unix_ns() - start;
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  static std::once_flag once;
  std::call_once(once, [] {
    load_injection();
    g_is_up = true;
  });
  return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int* version) {
  *version = 13000;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  *count = 1;
  return g_is_up ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  if (!g_is_up) return CUDA_ERROR_NOT_INITIALIZED;
  return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

// cuDeviceGetUuid_v2, as cuda.h calls it.
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  for (int i = 0; i < 16; ++i) uuid->bytes[i] = static_cast<char>(0xa0 + i);
  return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

void fake_cuda_set_tools(const FakeTools* tools) { g_tools = tools; }
bool fake_cuda_is_up() { return g_is_up; }
int fake_cuda_others_in_calls() { return g_calls_under_way - (t_depth > 0 ? 1 : 0); }
uint64_t fake_cuda_injection_ns() { return g_injection_ns; }
uint64_t fake_cuda_slowed_launches() { return g_slowed_launches; }

uint32_t fake_launch(const FakeWork& work, uint64_t duration_ns, bool by_driver) {
  const Call call(by_driver, by_driver ? uint32_t{CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel}
                                       : uint32_t{CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000});
  call.work(work, FakeWorkKind::kKernel, duration_ns);
  return call.correlation_id();
}

uint32_t fake_memcpy(const FakeWork& work, uint64_t duration_ns, bool is_peer) {
  const Call call(false, is_peer ? CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyPeerAsync_v4000
                                 : CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020);
  call.work(work, is_peer ? FakeWorkKind::kPeerCopy : FakeWorkKind::kCopy, duration_ns);
  return call.correlation_id();
}

uint32_t fake_memset(const FakeWork& work, uint64_t duration_ns) {
  const Call call(false, CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020);
  call.work(work, FakeWorkKind::kSet, duration_ns);
  return call.correlation_id();
}

uint32_t fake_allocate(uint64_t address, uint64_t bytes) {
  return change_memory(CUPTI_RUNTIME_TRACE_CBID_cudaMalloc_v3020, address, bytes, 1);
}
uint32_t fake_release(uint64_t address, uint64_t bytes) {
  return change_memory(CUPTI_RUNTIME_TRACE_CBID_cudaFree_v3020, address, bytes, 2);
}

uint32_t fake_synchronise() {
  const Call call(false, CUPTI_RUNTIME_TRACE_CBID_cudaDeviceSynchronize_v3020);
  while (read_unix_ns() <= g_busy_until_unix_ns.load()) std::this_thread::yield();
  return call.correlation_id();
}

uint32_t fake_get_device() {
  const Call call(false, CUPTI_RUNTIME_TRACE_CBID_cudaGetDevice_v3020);
  return call.correlation_id();
}

FakeGraph* fake_graph_make(uint32_t nodes, const char* name) {
  auto* graph = new FakeGraph;
  graph->id = ++g_graphs;
  graph->nodes = nodes;
  graph->name = name;
  graph->is_traceable = true;
  for (const uint32_t callback_id :
       {uint32_t{CUPTI_RUNTIME_TRACE_CBID_cudaStreamBeginCapture_v10000},
        uint32_t{CUPTI_RUNTIME_TRACE_CBID_cudaStreamEndCapture_v10000},
        uint32_t{CUPTI_RUNTIME_TRACE_CBID_cudaGraphInstantiate_v12000}}) {
    const Call call(false, callback_id);
    const FakeTools* tools = g_tools.load();
    graph->is_traceable &= tools != nullptr && tools->traces_graphs();
  }
  return graph;
}

uint32_t fake_graph_launch(FakeGraph* graph) {
  const Call call(false, CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000);
  const FakeTools* tools = g_tools.load();
  const bool by_graph = tools != nullptr && tools->traces_graphs();
  const bool by_node = !by_graph && tools != nullptr && tools->traces_nodes();
  if (by_graph && !graph->is_traceable) {
    // Seen on an H200 with CUPTI 13.0: a crash in the driver.
    std::fprintf(
        stderr,
        "fake CUDA: launch with GRAPH_TRACE on of a graph made while it was off: this is a "
        "SIGSEGV on a GPU\n");
    std::abort();
  }
  if (by_graph && graph->has_node_instruments) ++g_slowed_launches;
  if (!by_graph) graph->has_node_instruments = by_node;
  FakeWork work;
  work.graph_id = graph->id;
  if (!by_node) {
    call.work(work, FakeWorkKind::kGraph, kNodeNs * graph->nodes);
    return call.correlation_id();
  }
  work.name = graph->name;
  for (uint32_t i = 0; i < graph->nodes; ++i) {
    work.node_id = (uint64_t{graph->id} << 32) + i + 1;
    call.work(work, FakeWorkKind::kNode, kNodeNs);
  }
  return call.correlation_id();
}

void fake_cuda_visit(void (*on_call)(const FakeCall&, void*),
                     void (*on_work)(const FakeWork&, void*), void* data) {
  const std::scoped_lock lock(g_truth_lock);
  for (const FakeCall& call : g_calls) on_call(call, data);
  for (const FakeWork& work : g_works) on_work(work, data);
}

void fake_cuda_forget() {
  const std::scoped_lock lock(g_truth_lock);
  g_calls.clear();
  g_works.clear();
}

}  // extern "C"
