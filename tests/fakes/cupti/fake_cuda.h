#pragma once

// A CUDA driver without a GPU: what libcuda.so.1 of the tests offers to workloads and to the fake
// libcupti.
//
// Work "runs" on a timeline per process: it starts a little after the call, lasts as long as asked,
// and is over when CLOCK_REALTIME says so. Every call and every piece of work is noted as it was,
// so that a test can compare with what was recorded of it.

#include <cuda.h>

#include <cstdint>

// One call of the API, at both of its ends. Runtime calls cause no driver calls, as in CUPTI's
// records.
struct FakeCall {
  bool is_driver = false;
  uint32_t callback_id = 0;  // CUPTI_RUNTIME_TRACE_CBID_*, CUPTI_DRIVER_TRACE_CBID_*
  uint32_t correlation_id = 0;
  uint32_t tid = 0;
  uint64_t start_unix_ns = 0;
  uint64_t end_unix_ns = 0;  // 0 = not over
};

enum class FakeWorkKind : uint32_t { kKernel, kNode, kCopy, kPeerCopy, kSet, kGraph, kMemory };

struct FakeWork {
  FakeWorkKind kind = FakeWorkKind::kKernel;
  uint32_t correlation_id = 0;
  uint32_t stream = 7;
  uint32_t graph_id = 0;
  uint64_t node_id = 0;  // of work in a graph: graph and number in it
  uint64_t start_unix_ns = 0;
  uint64_t end_unix_ns = 0;
  const char* name = nullptr;  // of a kernel
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {32, 1, 1};
  uint64_t bytes = 0;
  uint64_t address = 0;
  uint32_t detail = 0;  // direction of a copy; 1 = allocation, 2 = release
};

// What libcupti hangs into the driver; each may be called on any thread.
struct FakeTools {
  void (*on_enter)(const FakeCall&);
  void (*on_work)(const FakeWork&);
  void (*on_exit)(const FakeCall&);
  bool (*traces_graphs)();
  bool (*traces_nodes)();
  bool (*records_any)();
};

struct FakeGraph;

// The driver's functions as a runtime has found them: what the functions below call the driver by.
struct FakeEntries {
  decltype(&::cuLaunchKernel) launch_kernel;
  decltype(&::cuGraphLaunch) graph_launch;
  decltype(&::cuGraphCreate) graph_create;
  decltype(&::cuGraphInstantiate) graph_instantiate;
  decltype(&::cuStreamBeginCapture) begin_capture;
  decltype(&::cuMemcpyAsync) memcpy_async;
  decltype(&::cuMemsetD8Async) memset_d8_async;
};

extern "C" {
// Null = detached.
void fake_cuda_set_tools(const FakeTools* tools);
bool fake_cuda_is_up();
// FakeWork.stream of a handle.
uint32_t fake_cuda_get_stream(CUstream stream);
// A runtime's table, which outlives all calls. Without one they call the driver directly. Returns
// the one before.
const FakeEntries* fake_cuda_set_entries(const FakeEntries* entries);
// The caller is between a runtime's call of the driver and the driver: in a hook.
bool fake_cuda_is_before_driver();
// A kind of records goes on or off; CUPTI is ended, with GRAPH_TRACE on or not.
void fake_cuda_note_switch();
void fake_cuda_note_finalize(bool traces_graphs);
// Of the call that began last.
uint32_t fake_cuda_last_correlation_id();
// Threads other than the caller that are inside a call.
int fake_cuda_others_in_calls();
// Calls that give work or map memory and are past all hooks: CUPTI's PC sampling would hang.
int fake_cuda_count_in_driver();
// The image that the last module was made of, where the driver has it; 0 = there is none.
struct FakeImage {
  const void* bytes = nullptr;
  size_t size = 0;
  bool is_compiled = false;  // by the driver: the program never had it
};
FakeImage fake_cuda_get_image();
// How long the injected library kept cuInit; 0 = none was loaded.
uint64_t fake_cuda_injection_ns();
// Graph launches with GRAPH_TRACE on, by graphs that still carried the instruments of node records.
uint64_t fake_cuda_slowed_launches();

// Each returns the correlation id of its call. `work.kind`, times and id are filled in here.
uint32_t fake_launch(const FakeWork& work, uint64_t duration_ns, bool by_driver);
// A kernel whose end is not known yet; and what it was, once it is over. Takes no place on the
// timeline: it waits for others.
uint32_t fake_launch_open();
void fake_launch_close(uint32_t correlation_id, const FakeWork& work);
uint32_t fake_memcpy(const FakeWork& work, uint64_t duration_ns, bool is_peer);
uint32_t fake_memset(const FakeWork& work, uint64_t duration_ns);
uint32_t fake_allocate(uint64_t address, uint64_t bytes);
uint32_t fake_release(uint64_t address, uint64_t bytes);
uint32_t fake_synchronise();  // waits for everything launched so far
uint32_t fake_get_device();   // a call that nobody records but in bursts
FakeGraph* fake_graph_make(uint32_t nodes, const char* name);
// What `launch` launches, on any thread, becomes the graph's nodes.
FakeGraph* fake_graph_capture(void (*launch)(void*), void* data);
uint32_t fake_graph_launch(FakeGraph* graph);

// What happened, in order of ending. The callbacks get one at a time.
void fake_cuda_visit(void (*on_call)(const FakeCall&, void*),
                     void (*on_work)(const FakeWork&, void*), void* data);
void fake_cuda_forget();
}
