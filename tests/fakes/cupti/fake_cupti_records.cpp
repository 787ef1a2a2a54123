// Records as the headers lay them out, each as long as this version has it.

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "tests/fakes/cupti/fake_cupti.h"

namespace fake_cupti {
namespace {

constexpr uint32_t kContext = 1;
constexpr bool kIsOld = FAKE_CUPTI_MAJOR == 12;
// How the record of a kind is called in each version; what was before is a prefix of what came.
template <typename New, typename Old>
constexpr size_t kBytes = kIsOld ? sizeof(Old) : sizeof(New);

}  // namespace

size_t record_bytes(CUpti_ActivityKind kind) {
  switch (static_cast<uint32_t>(kind)) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return kBytes<CUpti_ActivityKernel10, CUpti_ActivityKernel9>;
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return kBytes<CUpti_ActivityMemcpy6, CUpti_ActivityMemcpy5>;
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
      return sizeof(CUpti_ActivityMemcpyPtoP4);
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return sizeof(CUpti_ActivityMemset4);
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER:
      return sizeof(CUpti_ActivityAPI);
    case CUPTI_ACTIVITY_KIND_OVERHEAD:
      return kBytes<CUpti_ActivityOverhead3, CUpti_ActivityOverhead2>;
    case CUPTI_ACTIVITY_KIND_MEMORY2:
      return kBytes<CUpti_ActivityMemory4, CUpti_ActivityMemory3>;
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
      return kBytes<CUpti_ActivityGraphTrace2, CUpti_ActivityGraphTrace>;
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
      return sizeof(CUpti_ActivityExternalCorrelation);
    default:
      return 0;
  }
}

// Writes a record whose times are known when the work is over; until then they are 0.
template <typename Record>
void Activities::put(Record& record, uint64_t start_unix_ns, uint64_t end_unix_ns) {
  const size_t bytes = record_bytes(record.kind);
  uint8_t* at = reserve(bytes);
  if (at == nullptr) return;
  record.start = 0;
  record.end = 0;
  std::memcpy(at, &record, std::min(bytes, sizeof(record)));
  if (bytes > sizeof(record)) std::memset(at + sizeof(record), 0, bytes - sizeof(record));
  static_assert(offsetof(Record, end) == offsetof(Record, start) + sizeof(uint64_t));
  if (end_unix_ns == 0) return;
  const uint64_t start_ticks = to_ticks(start_unix_ns);
  const uint64_t end_ticks =
      start_ticks + to_span_ticks(static_cast<int64_t>(end_unix_ns - start_unix_ns));
  current_.pending.push_back(
      {at + offsetof(Record, start), start_ticks, end_ticks, std::max(start_unix_ns, end_unix_ns)});
}

void Activities::put_kernel(const FakeWork& work) {
  CUpti_ActivityKernel10 kernel = {};
  kernel.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  kernel.registersPerThread = 40;
  kernel.contextId = kContext;
  kernel.streamId = work.stream;
  kernel.gridX = static_cast<int32_t>(work.grid[0]);
  kernel.gridY = static_cast<int32_t>(work.grid[1]);
  kernel.gridZ = static_cast<int32_t>(work.grid[2]);
  kernel.blockX = static_cast<int32_t>(work.block[0]);
  kernel.blockY = static_cast<int32_t>(work.block[1]);
  kernel.blockZ = static_cast<int32_t>(work.block[2]);
  kernel.staticSharedMemory = 1024;
  kernel.dynamicSharedMemory = 512;
  kernel.correlationId = work.correlation_id;
  kernel.name = names_.keep(work.name);
  kernel.graphNodeId = work.node_id;
  kernel.graphId = work.graph_id;
  if (untimed > 0) {
    --untimed;
    return put(kernel, 0, 0);
  }
  if (reversed > 0) {
    --reversed;
    return put(kernel, work.end_unix_ns, work.start_unix_ns);
  }
  put(kernel, work.start_unix_ns, work.end_unix_ns);
}

void Activities::put_copy(const FakeWork& work) {
  if (work.kind == FakeWorkKind::kPeerCopy) {
    CUpti_ActivityMemcpyPtoP4 copy = {};
    copy.kind = CUPTI_ACTIVITY_KIND_MEMCPY2;
    copy.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_PTOP;
    copy.srcKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
    copy.dstKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
    copy.bytes = work.bytes;
    copy.contextId = kContext;
    copy.streamId = work.stream;
    copy.correlationId = work.correlation_id;
    return put(copy, work.start_unix_ns, work.end_unix_ns);
  }
  CUpti_ActivityMemcpy6 copy = {};
  copy.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  copy.copyKind = static_cast<uint8_t>(work.detail);
  copy.srcKind = CUPTI_ACTIVITY_MEMORY_KIND_PINNED;
  copy.dstKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  copy.flags = CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC;
  copy.bytes = work.bytes;
  copy.contextId = kContext;
  copy.streamId = work.stream;
  copy.correlationId = work.correlation_id;
  copy.graphNodeId = work.node_id;
  copy.graphId = work.graph_id;
  put(copy, work.start_unix_ns, work.end_unix_ns);
}

void Activities::put_memory(const FakeWork& work) {
  CUpti_ActivityMemory4 memory = {};
  memory.kind = CUPTI_ACTIVITY_KIND_MEMORY2;
  memory.memoryOperationType = static_cast<CUpti_ActivityMemoryOperationType>(work.detail);
  memory.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  memory.correlationId = work.correlation_id;
  memory.address = work.address;
  memory.bytes = work.bytes;
  memory.timestamp = to_ticks(work.start_unix_ns);
  memory.processId = static_cast<uint32_t>(getpid());
  memory.contextId = kContext;
  memory.streamId = CUPTI_INVALID_STREAM_ID;
  const size_t bytes = record_bytes(memory.kind);
  if (uint8_t* at = reserve(bytes)) std::memcpy(at, &memory, bytes);
}

void Activities::on_work(const FakeWork& done) {
  const std::scoped_lock lock(lock_);
  // After finalize it knows nothing of what was launched before, and counts from 1 again.
  if (done.correlation_id <= ids_before_) return;
  FakeWork work = done;
  work.correlation_id -= ids_before_;
  switch (work.kind) {
    case FakeWorkKind::kKernel:
    case FakeWorkKind::kNode:
      if (is_on(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)) put_kernel(work);
      return;
    case FakeWorkKind::kCopy:
      if (is_on(CUPTI_ACTIVITY_KIND_MEMCPY)) put_copy(work);
      return;
    case FakeWorkKind::kPeerCopy:
      if (is_on(CUPTI_ACTIVITY_KIND_MEMCPY2)) put_copy(work);
      return;
    case FakeWorkKind::kSet: {
      if (!is_on(CUPTI_ACTIVITY_KIND_MEMSET)) return;
      CUpti_ActivityMemset4 set = {};
      set.kind = CUPTI_ACTIVITY_KIND_MEMSET;
      set.bytes = work.bytes;
      set.contextId = kContext;
      set.streamId = work.stream;
      set.correlationId = work.correlation_id;
      set.flags = CUPTI_ACTIVITY_FLAG_MEMSET_ASYNC;
      set.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
      set.graphNodeId = work.node_id;
      set.graphId = work.graph_id;
      return put(set, work.start_unix_ns, work.end_unix_ns);
    }
    case FakeWorkKind::kGraph: {
      if (!is_on(CUPTI_ACTIVITY_KIND_GRAPH_TRACE)) return;
      CUpti_ActivityGraphTrace2 graph = {};
      graph.kind = CUPTI_ACTIVITY_KIND_GRAPH_TRACE;
      graph.correlationId = work.correlation_id;
      graph.graphId = work.graph_id;
      graph.contextId = kContext;
      graph.streamId = work.stream;
      return put(graph, work.start_unix_ns, work.end_unix_ns);
    }
    case FakeWorkKind::kMemory:
      if (!is_on(CUPTI_ACTIVITY_KIND_MEMORY2)) return;
      has_recorded_allocations_ = true;
      put_memory(work);
      return;
  }
}

void Activities::on_exit(const FakeCall& call) {
  const auto kind = call.is_driver ? CUPTI_ACTIVITY_KIND_DRIVER : CUPTI_ACTIVITY_KIND_RUNTIME;
  const std::scoped_lock lock(lock_);
  if (!is_on(kind) || !calls_[call.is_driver][call.callback_id]) return;
  has_recorded_calls_ = true;
  CUpti_ActivityAPI record = {};
  record.kind = kind;
  record.cbid = call.callback_id;
  record.processId = static_cast<uint32_t>(getpid());
  record.threadId = call.tid;
  record.correlationId = call.correlation_id - ids_before_;
  put(record, call.start_unix_ns, call.end_unix_ns);
}

}  // namespace fake_cupti
