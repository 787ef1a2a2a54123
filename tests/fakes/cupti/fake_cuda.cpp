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
#include <fstream>
#include <iterator>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/fakes/cupti/fake_entries.h"

struct FakeNode {
  FakeWork work;
  FakeWorkKind kind;
  uint64_t duration_ns;
};

struct FakeGraph {
  uint32_t id = 0;
  std::vector<FakeNode> nodes;
  bool is_traceable = false;  // GRAPH_TRACE was on while it was made
  std::atomic<bool> has_node_instruments = false;
  // It ran under GRAPH_TRACE, and not with nothing on since.
  std::atomic<bool> has_trace_instruments = false;
  // CUPTI was ended since it was made; and in a way that leaves it pointing to nothing.
  std::atomic<bool> is_from_before = false;
  std::atomic<bool> is_broken = false;
};

namespace {

constexpr uint64_t kMapNs = 20'000;   // of an allocation
constexpr uint64_t kQueueNs = 2'000;  // from a call's start to its work's
constexpr uint64_t kNodeNs = 1'000;   // of each kernel in a graph that was not captured
// Of three nodes one leaves a record; the others are of the kinds that leave none.
constexpr uint64_t kNodeStep = 3;

std::atomic<const FakeTools*> g_tools = nullptr;
std::atomic<bool> g_is_up = false;
std::atomic<uint32_t> g_correlation = 0;
std::atomic<uint32_t> g_graphs = 0;
std::atomic<int> g_calls_under_way = 0;
FakeImage g_image;                 // guarded by g_truth_lock
std::atomic<int> g_in_driver = 0;  // calls that give work or map memory, past all hooks
std::atomic<uint64_t> g_injection_ns = 0;
std::atomic<uint64_t> g_slowed_launches = 0;
std::atomic<uint64_t> g_busy_until_unix_ns = 0;
std::atomic<FakeGraph*> g_captured = nullptr;  // what is launched becomes its nodes
thread_local int t_depth = 0;
thread_local bool t_is_before_driver = false;
std::atomic<const FakeEntries*> g_entries = nullptr;
std::atomic<int> g_graph_launches_under_way = 0;
std::atomic<uint64_t> g_graphs_busy_until_unix_ns = 0;
// Kinds were switched while a graph was launched or ran.
std::atomic<bool> g_are_graphs_tainted = false;

// Never destroyed, as everything here that threads use: some launch while the process exits.
std::mutex g_truth_lock;
std::vector<FakeCall>& g_calls = *new std::vector<FakeCall>;
std::vector<FakeWork>& g_works = *new std::vector<FakeWork>;
std::vector<FakeGraph*>& g_all_graphs = *new std::vector<FakeGraph*>;  // none goes away

uint64_t read_unix_ns() {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

FakeGraph* make_graph() {
  auto* graph = new FakeGraph;
  graph->id = ++g_graphs;
  const std::scoped_lock lock(g_truth_lock);
  g_all_graphs.push_back(graph);
  return graph;
}

[[noreturn]] void crash(const char* how) {
  std::fprintf(stderr, "fake CUDA: %s on a GPU\n", how);
  std::abort();
}

void note_work(const FakeWork& work) {
  {
    const std::scoped_lock lock(g_truth_lock);
    g_works.push_back(work);
  }
  if (const FakeTools* tools = g_tools.load()) tools->on_work(work);
}

// A call from its beginning to its end, with the tools that were there at each.
class Call {
 public:
  Call(bool is_driver, uint32_t callback_id) {
    ++g_calls_under_way;
    ++t_depth;
    call_.is_driver = is_driver;
    call_.callback_id = callback_id;
    call_.tid = static_cast<uint32_t>(syscall(SYS_gettid));
    call_.start_unix_ns = read_unix_ns();  // first: what comes later has a later id
    call_.correlation_id = ++g_correlation;
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
  void note(const FakeWork& work) const { note_work(work); }

 private:
  FakeCall call_;
};

// What a driver function is asked to do; its arguments stay unused.
struct Request {
  FakeWork work;
  FakeWorkKind kind = FakeWorkKind::kKernel;
  uint64_t duration_ns = 0;
  FakeGraph* graph = nullptr;  // that is launched
  const Call* by = nullptr;    // the runtime call that makes it; null = the workload itself
  bool is_open = false;        // what it was is said later
  uint32_t correlation_id = 0;
};
thread_local Request* t_request = nullptr;

bool traces_graphs() {
  const FakeTools* tools = g_tools.load();
  return tools != nullptr && tools->traces_graphs();
}

// What CUPTI does to a launch of a graph. True: it runs node by node.
bool enter_graph(FakeGraph& graph) {
  const FakeTools* tools = g_tools.load();
  const bool by_graph = traces_graphs();
  const bool by_node = !by_graph && tools != nullptr && tools->traces_nodes();
  // Seen on an H200 with CUPTI 13.0, crashes in the driver and contexts that are lost.
  if (graph.is_broken) crash("launch of a graph that CUPTI left unfinished: this is a crash");
  if (by_graph && (!graph.is_traceable || graph.is_from_before)) {
    crash("launch with GRAPH_TRACE on of a graph made while it was off: this is a SIGSEGV");
  }
  if (by_graph) graph.has_trace_instruments = true;
  if (tools == nullptr || !tools->records_any()) graph.has_trace_instruments = false;
  if (by_graph && graph.has_node_instruments) ++g_slowed_launches;
  if (!by_graph) graph.has_node_instruments = by_node;
  return by_node;
}

// A driver call made by a runtime call has no record of its own.
void obey(uint32_t callback_id, Request& request) {
  t_is_before_driver = false;
  const auto run = [&request](const Call& call) {
    if (FakeGraph* captured = g_captured) {
      const std::scoped_lock lock(g_truth_lock);
      captured->nodes.push_back({request.work, request.kind, request.duration_ns});
    } else if (request.graph != nullptr && enter_graph(*request.graph)) {
      uint64_t node_id = uint64_t{request.graph->id} << 32;
      for (const FakeNode& node : request.graph->nodes) {
        FakeWork work = node.work;
        work.graph_id = request.graph->id;
        work.node_id = node_id += kNodeStep;
        call.work(work, node.kind == FakeWorkKind::kKernel ? FakeWorkKind::kNode : node.kind,
                  node.duration_ns);
      }
    } else if (!request.is_open) {
      call.work(request.work, request.kind, request.duration_ns);
    }
    request.correlation_id = call.correlation_id();
  };
  if (request.by != nullptr) {
    run(*request.by);
  } else {
    run(Call(true, callback_id));
  }
}

// Streams are told by their numbers; 7 is the default one, as in CUPTI's records.
constexpr uint32_t kDefaultStream = 7;
CUstream find_handle(const FakeWork& work) {
  return reinterpret_cast<CUstream>(work.stream == kDefaultStream ? 0 : uint64_t{work.stream} << 4);
}

FakeEntries find_entries() {
  if (const FakeEntries* entries = g_entries) return *entries;
  return {cuLaunchKernel,       cuGraphLaunch, cuGraphCreate,  cuGraphInstantiate,
          cuStreamBeginCapture, cuMemcpyAsync, cuMemsetD8Async};
}

template <typename Function, typename... Arguments>
uint32_t ask(Request& request, Function function, Arguments... arguments) {
  t_request = &request;
  t_is_before_driver = true;
  (void)function(arguments...);
  t_request = nullptr;
  return request.correlation_id;
}

// As long as the real ones at their shortest.
void map_memory() {
  ++g_in_driver;
  const uint64_t until = read_unix_ns() + kMapNs;
  while (read_unix_ns() < until) std::this_thread::yield();
  --g_in_driver;
}

uint32_t change_memory(uint32_t callback_id, uint64_t address, uint64_t bytes, uint32_t operation) {
  const Call call(false, callback_id);
  // Through the table that hooks change, as a runtime's calls.
  static const auto allocate =
      reinterpret_cast<CUresult (*)(CUdeviceptr*, size_t)>(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
  static const auto release =
      reinterpret_cast<CUresult (*)(CUdeviceptr)>(dlsym(RTLD_DEFAULT, "cuMemFree_v2"));
  CUdeviceptr unused = 0;
  if (operation == 1 && allocate != nullptr) (void)allocate(&unused, bytes);
  if (operation == 2 && release != nullptr) (void)release(address);
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

FakeImage find_image(const void* image) {
  static constexpr char kCompile[] = "compile ";
  const auto* bytes = static_cast<const unsigned char*>(image);
  if (std::memcmp(bytes, kCompile, sizeof(kCompile) - 1) == 0) {
    std::ifstream file(reinterpret_cast<const char*>(bytes) + sizeof(kCompile) - 1);
    auto& made = *new std::string((std::istreambuf_iterator<char>(file)), {});
    return {.bytes = made.data(), .size = made.size(), .is_compiled = true};
  }
  const auto read = [](const void* from, auto number) {
    std::memcpy(&number, from, sizeof(number));
    return number;
  };
  if (read(bytes, uint32_t{0}) == 0x466243b1) {
    bytes = reinterpret_cast<const unsigned char*>(read(bytes + 8, uint64_t{0}));
  }
  if (read(bytes, uint32_t{0}) == 0xba55ed50) {
    bytes += 16;
    bytes += read(bytes + 4, uint32_t{0});  // the first entry's header
  }
  // A cubin ends with its program headers.
  return {.bytes = bytes,
          .size = read(bytes + 32, uint64_t{0}) +
                  size_t{read(bytes + 56, uint16_t{0})} * read(bytes + 54, uint16_t{0}),
          .is_compiled = false};
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
  // Which GPU of a host's it is: a number.
  if (const char* number = std::getenv("FAKE_CUDA_GPU")) uuid->bytes[0] = *number;
  return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

// cuGetProcAddress_v2, as cuda.h calls it.
CUresult cuGetProcAddress(const char* name, void** found, int, cuuint64_t,
                          CUdriverProcAddressQueryResult*) {
  // By itself, as the real one: whoever calls it gets the driver's own functions.
  for (const FakeEntryRow& row : kFakeEntries) {
    if (std::strcmp(name, row.name) != 0) continue;
    *found = reinterpret_cast<void*>(row.function);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

bool fake_cuda_obey(uint32_t entry, uint32_t& result) {
  if (t_request == nullptr) return false;
  result = CUDA_SUCCESS;
  const bool is_graph = t_request->graph != nullptr;
  if (is_graph) ++g_graph_launches_under_way;
  ++g_in_driver;
  obey(kFakeEntries[entry].callback_id, *t_request);
  --g_in_driver;
  if (is_graph) {
    g_graphs_busy_until_unix_ns = g_busy_until_unix_ns.load();
    --g_graph_launches_under_way;
  }
  return true;
}

const FakeEntries* fake_cuda_set_entries(const FakeEntries* entries) {
  return g_entries.exchange(entries);
}
bool fake_cuda_is_before_driver() { return t_is_before_driver; }
void fake_cuda_note_switch() {
  if (g_graph_launches_under_way > 0 || read_unix_ns() <= g_graphs_busy_until_unix_ns) {
    g_are_graphs_tainted = true;
  }
}
void fake_cuda_note_finalize(bool traces_graphs) {
  const bool are_tainted = g_are_graphs_tainted.exchange(false);
  const std::scoped_lock lock(g_truth_lock);
  for (FakeGraph* graph : g_all_graphs) {
    graph->is_from_before = true;
    if (traces_graphs || are_tainted || graph->has_trace_instruments) graph->is_broken = true;
  }
}

uint32_t fake_cuda_last_correlation_id() { return g_correlation; }

void fake_cuda_set_tools(const FakeTools* tools) { g_tools = tools; }
bool fake_cuda_is_up() { return g_is_up; }
int fake_cuda_count_in_driver() { return g_in_driver; }
FakeImage fake_cuda_get_image() {
  const std::scoped_lock lock(g_truth_lock);
  return g_image;
}
int fake_cuda_others_in_calls() { return g_calls_under_way - (t_depth > 0 ? 1 : 0); }
uint64_t fake_cuda_injection_ns() { return g_injection_ns; }
uint64_t fake_cuda_slowed_launches() { return g_slowed_launches; }

__attribute__((noinline)) CUresult cuGraphCreate(CUgraph* graph, unsigned) {
  *graph = reinterpret_cast<CUgraph>(make_graph());
  return CUDA_SUCCESS;
}
// As cuda.h calls cuStreamBeginCapture_v2 and cuGraphInstantiateWithFlags. A graph's handle is that
// of its one executable, too.
__attribute__((noinline)) CUresult cuStreamBeginCapture(CUstream, CUstreamCaptureMode) {
  FakeGraph* none = nullptr;
  FakeGraph* graph = make_graph();
  return g_captured.compare_exchange_strong(none, graph) ? CUDA_SUCCESS
                                                         : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}
__attribute__((noinline)) CUresult cuStreamEndCapture(CUstream, CUgraph* graph) {
  *graph = reinterpret_cast<CUgraph>(g_captured.exchange(nullptr));
  return CUDA_SUCCESS;
}
__attribute__((noinline)) CUresult cuGraphInstantiate(CUgraphExec* exec, CUgraph graph,
                                                      unsigned long long) {
  *exec = reinterpret_cast<CUgraphExec>(graph);
  return CUDA_SUCCESS;
}
// As cuda.h calls their newer forms.
__attribute__((noinline)) CUresult cuMemAlloc(CUdeviceptr* address, size_t) {
  *address = 0x7000;
  map_memory();
  return CUDA_SUCCESS;
}
__attribute__((noinline)) CUresult cuMemFree(CUdeviceptr) {
  map_memory();
  return CUDA_SUCCESS;
}
// A cubin, a fat binary with one that is not compressed, or its wrapper; else the text "compile
// PATH", which stands for PTX, of which the driver makes the cubin in that file.
__attribute__((noinline)) CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  map_memory();
  *module = nullptr;
  const FakeImage found = find_image(image);
  const std::scoped_lock lock(g_truth_lock);
  g_image = found;
  return found.size > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}
CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned* flags, int* is_active) {
  *flags = 0;
  *is_active = g_is_up ? 1 : 0;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) { return cuCtxGetCurrent(context); }
CUresult cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }
// An H200's multiprocessors.
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = 132;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      *value = 2048;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
      *value = 32;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
      *value = 65536;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      *value = 233472;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
      *value = 1024;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}
// The driver's own number of a stream is none of CUPTI's.
CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = reinterpret_cast<CUcontext>(0x1000);
  return CUDA_SUCCESS;
}
CUresult cuStreamIsCapturing(CUstream, CUstreamCaptureStatus* status) {
  *status = g_captured != nullptr ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
CUresult cuStreamGetId(CUstream stream, unsigned long long* id) {
  *id = fake_cuda_get_stream(stream) + (stream == nullptr ? 0 : 2);
  return CUDA_SUCCESS;
}
uint32_t fake_cuda_get_stream(CUstream stream) {
  const auto handle = reinterpret_cast<uint64_t>(stream);
  return handle == 0 ? kDefaultStream : static_cast<uint32_t>(handle >> 4);
}
__attribute__((noinline)) CUresult cuGraphDestroy(CUgraph graph) {
  return graph != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
// Spins, as the real one does by default.
__attribute__((noinline)) CUresult cuCtxSynchronize() {
  while (read_unix_ns() <= g_busy_until_unix_ns.load()) std::this_thread::yield();
  return CUDA_SUCCESS;
}

uint32_t fake_launch(const FakeWork& work, uint64_t duration_ns, bool by_driver) {
  Request request{.work = work, .duration_ns = duration_ns};
  const auto launch = [&request] {
    const auto& grid = request.work.grid;
    const auto& block = request.work.block;
    return ask(request, find_entries().launch_kernel, nullptr, grid[0], grid[1], grid[2], block[0],
               block[1], block[2], 0u, find_handle(request.work), nullptr, nullptr);
  };
  if (by_driver) return launch();
  const Call call(false, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000);
  request.by = &call;
  return launch();
}

uint32_t fake_launch_open() {
  const Call call(false, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000);
  Request request{.by = &call, .is_open = true};
  return ask(request, find_entries().launch_kernel, nullptr, 1u, 1u, 1u, 32u, 1u, 1u, 0u,
             find_handle(request.work), nullptr, nullptr);
}

void fake_launch_close(uint32_t correlation_id, const FakeWork& work) {
  FakeWork over = work;
  over.kind = FakeWorkKind::kKernel;
  over.correlation_id = correlation_id;
  note_work(over);
}

uint32_t fake_memcpy(const FakeWork& work, uint64_t duration_ns, bool is_peer) {
  const Call call(false, is_peer ? CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyPeerAsync_v4000
                                 : CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020);
  Request request{.work = work,
                  .kind = is_peer ? FakeWorkKind::kPeerCopy : FakeWorkKind::kCopy,
                  .duration_ns = duration_ns,
                  .by = &call};
  return ask(request, find_entries().memcpy_async, CUdeviceptr{0}, CUdeviceptr{0},
             size_t{work.bytes}, find_handle(work));
}

uint32_t fake_memset(const FakeWork& work, uint64_t duration_ns) {
  const Call call(false, CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020);
  Request request{
      .work = work, .kind = FakeWorkKind::kSet, .duration_ns = duration_ns, .by = &call};
  return ask(request, find_entries().memset_d8_async, CUdeviceptr{0}, static_cast<unsigned char>(0),
             size_t{work.bytes}, find_handle(work));
}

uint32_t fake_allocate(uint64_t address, uint64_t bytes) {
  return change_memory(CUPTI_RUNTIME_TRACE_CBID_cudaMalloc_v3020, address, bytes, 1);
}
uint32_t fake_release(uint64_t address, uint64_t bytes) {
  return change_memory(CUPTI_RUNTIME_TRACE_CBID_cudaFree_v3020, address, bytes, 2);
}

uint32_t fake_synchronise() {
  const Call call(false, CUPTI_RUNTIME_TRACE_CBID_cudaDeviceSynchronize_v3020);
  (void)cuCtxSynchronize();
  return call.correlation_id();
}

uint32_t fake_get_device() {
  const Call call(false, CUPTI_RUNTIME_TRACE_CBID_cudaGetDevice_v3020);
  return call.correlation_id();
}

FakeGraph* fake_graph_make(uint32_t nodes, const char* name) {
  CUgraph made = nullptr;
  CUgraphExec exec = nullptr;
  bool is_traceable = true;
  {
    const Call call(false, CUPTI_RUNTIME_TRACE_CBID_cudaGraphCreate_v10000);
    (void)find_entries().graph_create(&made, 0);
    is_traceable &= traces_graphs();
  }
  {
    const Call call(false, CUPTI_RUNTIME_TRACE_CBID_cudaGraphInstantiate_v12000);
    (void)find_entries().graph_instantiate(&exec, made, 0);
    is_traceable &= traces_graphs();
  }
  auto* graph = reinterpret_cast<FakeGraph*>(exec);
  FakeNode node = {.work = {}, .kind = FakeWorkKind::kKernel, .duration_ns = kNodeNs};
  node.work.name = name;
  graph->nodes.assign(nodes, node);
  graph->is_traceable = is_traceable;
  return graph;
}

FakeGraph* fake_graph_capture(void (*launch)(void*), void* data) {
  const auto stream = reinterpret_cast<CUstream>(0x5000);
  CUgraph captured = nullptr;
  CUgraphExec exec = nullptr;
  bool is_traceable = true;
  {
    const Call call(false, CUPTI_RUNTIME_TRACE_CBID_cudaStreamBeginCapture_v10000);
    if (find_entries().begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) != CUDA_SUCCESS) {
      return nullptr;
    }
    is_traceable &= traces_graphs();
  }
  launch(data);
  {
    const Call call(false, CUPTI_RUNTIME_TRACE_CBID_cudaStreamEndCapture_v10000);
    (void)cuStreamEndCapture(stream, &captured);
    is_traceable &= traces_graphs();
  }
  const Call call(false, CUPTI_RUNTIME_TRACE_CBID_cudaGraphInstantiate_v12000);
  (void)find_entries().graph_instantiate(&exec, captured, 0);
  (void)cuGraphDestroy(captured);
  auto* graph = reinterpret_cast<FakeGraph*>(exec);
  graph->is_traceable = is_traceable && traces_graphs();
  return graph;
}

uint32_t fake_graph_launch(FakeGraph* graph) {
  const Call call(false, CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000);
  Request request{.kind = FakeWorkKind::kGraph, .graph = graph, .by = &call};
  request.work.graph_id = graph->id;
  for (const FakeNode& node : graph->nodes) request.duration_ns += node.duration_ns;
  return ask(request, find_entries().graph_launch, reinterpret_cast<CUgraphExec>(graph), nullptr);
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
