#include "injector/cupti_records.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "tests/unit/injector/daemon_end.h"

namespace gpuperf::injector {
namespace {

constexpr uint64_t kStartNs = 1'700'000'000'000'000'000;

// Stepping as CUPTI does: each kind by its length here.
std::map<CUpti_ActivityKind, size_t>& lengths() {
  static std::map<CUpti_ActivityKind, size_t> all;
  return all;
}
CUptiResult get_next(uint8_t* buffer, size_t valid_bytes, CUpti_Activity** record) {
  uint8_t* next = *record == nullptr
                      ? buffer
                      : reinterpret_cast<uint8_t*>(*record) + lengths().at((*record)->kind);
  if (next >= buffer + valid_bytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return CUPTI_SUCCESS;
}

class CuptiRecordsTest : public testing::Test {
 protected:
  void SetUp() override {
    api_.cuptiActivityGetNextRecord = get_next;
    ASSERT_TRUE(daemon_.come_together(*link_, kNowMs));
    records_->set_kinds(GPUPERF_SESSION_ALL_KINDS);
    calls_->runtime[10] = CallClass::kLaunch;
    calls_->runtime[11] = CallClass::kGraphLaunch;
    calls_->runtime[12] = CallClass::kSyncStream;
    calls_->driver[10] = CallClass::kSyncContext;
  }
  template <typename Record>
  void add(const Record& record, size_t length_bytes = sizeof(Record)) {
    lengths()[record.kind] = length_bytes;
    const auto* bytes = reinterpret_cast<const uint8_t*>(&record);
    buffer_.insert(buffer_.end(), bytes, bytes + length_bytes);
  }
  // What the daemon gets of what was added, record by record.
  std::vector<std::vector<uint8_t>> convert() {
    records_->decode(buffer_.data(), buffer_.size(), kNowMs);
    batch_->send(kNowMs);
    buffer_.clear();
    std::vector<std::vector<uint8_t>> all;
    for (auto message = daemon_.take(); !message.empty(); message = daemon_.take()) {
      for (size_t at = sizeof(gpuperf_batch); at < message.size();) {
        const auto head = read_as<gpuperf_session_record>(message, at);
        const auto begin = message.begin() + static_cast<ptrdiff_t>(at);
        all.emplace_back(begin, begin + head.length_bytes);
        at += head.length_bytes;
      }
    }
    return all;
  }
  // The first record of a kind.
  template <typename Record>
  Record convert_to(uint16_t kind) {
    for (const auto& record : convert()) {
      if (read_as<gpuperf_session_record>(record).kind == kind) return read_as<Record>(record);
    }
    ADD_FAILURE() << "no record of kind " << kind;
    return {};
  }
  static CUpti_ActivityKernel10 make_kernel(uint32_t id, const char* name) {
    CUpti_ActivityKernel10 kernel = {};
    kernel.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    kernel.start = kStartNs;
    kernel.end = kStartNs + 1'500;
    kernel.correlationId = id;
    kernel.name = name;
    return kernel;
  }
  template <typename Record>
  static void set_common(Record& record, CUpti_ActivityKind kind) {
    record.kind = kind;
    record.start = kStartNs;
    record.end = kStartNs + 300;
    record.correlationId = 77;
  }
  uint64_t lost(gpuperf_session_loss loss) const { return records_->losses()[loss]; }

  DaemonEnd daemon_;
  CuptiApi api_;
  CuptiClock clock_;
  std::unique_ptr<CallClasses> calls_ = std::make_unique<CallClasses>();
  std::unique_ptr<DaemonLink> link_ = std::make_unique<DaemonLink>();
  std::unique_ptr<Batch> batch_ = std::make_unique<Batch>(*link_);
  std::unique_ptr<CuptiRecords> records_ =
      std::make_unique<CuptiRecords>(api_, clock_, *calls_, *batch_);
  std::vector<uint8_t> buffer_;
};

TEST_F(CuptiRecordsTest, AKernelComesAfterItsNameShapeAndPlace) {
  CUpti_ActivityKernel10 kernel = make_kernel(9, "_Z3fooPi");
  kernel.gridX = 4, kernel.gridY = 5, kernel.gridZ = 6;
  kernel.blockX = 32, kernel.blockY = 2, kernel.blockZ = 1;
  kernel.clusterX = 2, kernel.clusterY = 1, kernel.clusterZ = 1;
  kernel.staticSharedMemory = 1000, kernel.dynamicSharedMemory = 24;
  kernel.registersPerThread = 80, kernel.localMemoryPerThread = 16;
  kernel.deviceId = 3, kernel.contextId = 1, kernel.streamId = 7;
  kernel.launchType = CUPTI_ACTIVITY_LAUNCH_TYPE_COOPERATIVE_SINGLE_DEVICE;
  add(kernel);

  const auto all = convert();

  ASSERT_EQ(all.size(), 4u);
  const auto name = read_as<gpuperf_session_name>(all[0]);
  EXPECT_EQ(name.record.kind, GPUPERF_SESSION_NAME);
  EXPECT_EQ(name.record.id, 1u);
  EXPECT_EQ(std::string(all[0].begin() + sizeof(name), all[0].end()).substr(0, name.text_bytes),
            "_Z3fooPi");
  const auto shape = read_as<gpuperf_session_shape>(all[1]);
  const gpuperf_session_shape shape_expected = {
      {GPUPERF_SESSION_SHAPE, sizeof(shape), 1}, {4, 5, 6}, {32, 2, 1}, {2, 1, 1}, 1024, 80, 16};
  EXPECT_EQ(std::memcmp(&shape, &shape_expected, sizeof(shape)), 0);
  const auto place = read_as<gpuperf_session_place>(all[2]);
  EXPECT_EQ(place.record.kind, GPUPERF_SESSION_PLACE);
  EXPECT_EQ((std::vector<uint32_t>{place.device, place.context, place.stream}),
            (std::vector<uint32_t>{3, 1, 7}));
  const auto record = read_as<gpuperf_session_kernel>(all[3]);
  const gpuperf_session_kernel expected = {{GPUPERF_SESSION_KERNEL, sizeof(record), 9},
                                           kStartNs,
                                           1'500,
                                           1,
                                           1,
                                           1,
                                           0,
                                           0,
                                           GPUPERF_KERNEL_COOPERATIVE};
  EXPECT_EQ(std::memcmp(&record, &expected, sizeof(record)), 0);
}

TEST_F(CuptiRecordsTest, WhatWasAnnouncedIsAnnouncedOnceForEachConnection) {
  const std::string again = "same";
  add(make_kernel(1, "same"));
  add(make_kernel(2, again.c_str()));
  EXPECT_EQ(convert().size(), 5u);
  add(make_kernel(3, "same"));
  EXPECT_EQ(convert().size(), 1u);

  records_->start_connection();

  add(make_kernel(4, "same"));
  EXPECT_EQ(convert().size(), 4u);
}

TEST_F(CuptiRecordsTest, ANameThatIsTooLongIsCutAndSaysSo) {
  const std::string fits(GPUPERF_NAME_BYTES_MAX, 'f');
  const std::string longer(GPUPERF_NAME_BYTES_MAX + 1, 'l');
  add(make_kernel(1, fits.c_str()));
  const auto whole = convert_to<gpuperf_session_name>(GPUPERF_SESSION_NAME);
  add(make_kernel(2, longer.c_str()));
  const auto cut = convert_to<gpuperf_session_name>(GPUPERF_SESSION_NAME);
  add(make_kernel(3, nullptr));
  const auto none = convert_to<gpuperf_session_name>(GPUPERF_SESSION_NAME);

  EXPECT_EQ((std::vector<int>{whole.text_bytes, whole.cut}), (std::vector<int>{1024, 0}));
  EXPECT_EQ((std::vector<int>{cut.text_bytes, cut.cut}), (std::vector<int>{1024, 1}));
  EXPECT_EQ((std::vector<int>{none.text_bytes, none.cut}), (std::vector<int>{0, 0}));
}

TEST_F(CuptiRecordsTest, AKernelOfAGraphSaysWhichNode) {
  CUpti_ActivityKernel10 kernel = make_kernel(5, "node");
  kernel.graphId = 12;
  kernel.graphNodeId = 0xc'0000'0007;
  add(kernel);

  const auto record = convert_to<gpuperf_session_kernel>(GPUPERF_SESSION_KERNEL);

  EXPECT_EQ((std::vector<uint32_t>{record.graph_id, record.node_id, record.flags}),
            (std::vector<uint32_t>{12, 7, GPUPERF_KERNEL_FROM_GRAPH}));
  EXPECT_EQ(records_->node_count(), 1u);
}

TEST_F(CuptiRecordsTest, KernelsOfOlderVersionsAreReadByTheirLength) {
  add(make_kernel(1, "one"), sizeof(CUpti_ActivityKernel9));
  add(make_kernel(2, "one"), sizeof(CUpti_ActivityKernel9));

  EXPECT_EQ(convert().size(), 5u);
}

TEST_F(CuptiRecordsTest, ACopyIsCarriedOver) {
  CUpti_ActivityMemcpy6 copy = {};
  set_common(copy, CUPTI_ACTIVITY_KIND_MEMCPY);
  copy.bytes = 4096;
  copy.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_DTOH;
  copy.srcKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  copy.dstKind = CUPTI_ACTIVITY_MEMORY_KIND_PINNED;
  copy.flags = CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC;
  add(copy);

  const auto record = convert_to<gpuperf_session_memcpy>(GPUPERF_SESSION_MEMCPY);

  const gpuperf_session_memcpy expected = {{GPUPERF_SESSION_MEMCPY, sizeof(record), 77},
                                           kStartNs,
                                           300,
                                           4096,
                                           1,
                                           GPUPERF_MEMCPY_DEVICE_TO_HOST,
                                           GPUPERF_MEMORY_DEVICE,
                                           GPUPERF_MEMORY_PINNED,
                                           GPUPERF_MEMCPY_ASYNC,
                                           0,
                                           0};
  EXPECT_EQ(std::memcmp(&record, &expected, sizeof(record)), 0);
}

TEST_F(CuptiRecordsTest, NumbersOfVersionsToComeBecomeUnknown) {
  CUpti_ActivityMemcpy6 copy = {};
  set_common(copy, CUPTI_ACTIVITY_KIND_MEMCPY);
  copy.copyKind = 200, copy.srcKind = 200, copy.dstKind = 200;
  add(copy);

  const auto record = convert_to<gpuperf_session_memcpy>(GPUPERF_SESSION_MEMCPY);

  EXPECT_EQ((std::vector<int>{record.direction, record.source_memory, record.target_memory}),
            (std::vector<int>{0, 0, 0}));
}

TEST_F(CuptiRecordsTest, ACopyBetweenDevicesIsCarriedOver) {
  CUpti_ActivityMemcpyPtoP4 copy = {};
  set_common(copy, CUPTI_ACTIVITY_KIND_MEMCPY2);
  copy.bytes = 100;
  add(copy);

  const auto record = convert_to<gpuperf_session_memcpy>(GPUPERF_SESSION_MEMCPY);

  EXPECT_EQ(record.record.id, 77u);
  EXPECT_EQ(record.direction, GPUPERF_MEMCPY_PEER_TO_PEER);
  EXPECT_EQ(record.copied_bytes, 100u);
}

TEST_F(CuptiRecordsTest, ASetIsCarriedOver) {
  CUpti_ActivityMemset4 set = {};
  set_common(set, CUPTI_ACTIVITY_KIND_MEMSET);
  set.bytes = 512;
  set.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_MANAGED;
  set.graphId = 3, set.graphNodeId = 0x3'0000'0002;
  add(set);

  const auto record = convert_to<gpuperf_session_memset>(GPUPERF_SESSION_MEMSET);

  const gpuperf_session_memset expected = {{GPUPERF_SESSION_MEMSET, sizeof(record), 77},
                                           kStartNs,
                                           300,
                                           512,
                                           1,
                                           GPUPERF_MEMORY_MANAGED,
                                           0,
                                           0,
                                           3,
                                           2};
  EXPECT_EQ(std::memcmp(&record, &expected, sizeof(record)), 0);
}

CUpti_ActivityAPI make_call(CUpti_ActivityKind kind, uint32_t id) {
  CUpti_ActivityAPI call = {};
  call.kind = kind;
  call.cbid = id;
  call.start = kStartNs;
  call.end = kStartNs + 40;
  call.threadId = 1234;
  call.correlationId = 55;
  call.returnValue = 2;
  return call;
}

TEST_F(CuptiRecordsTest, ACallIsCarriedOver) {
  add(make_call(CUPTI_ACTIVITY_KIND_RUNTIME, 10));

  const auto record = convert_to<gpuperf_session_api>(GPUPERF_SESSION_API);

  const gpuperf_session_api expected = {
      {GPUPERF_SESSION_API, sizeof(record), 55}, kStartNs, 40, 1234, 10, 2, GPUPERF_API_RUNTIME, 0};
  EXPECT_EQ(std::memcmp(&record, &expected, sizeof(record)), 0);
}

TEST_F(CuptiRecordsTest, ACallThatWaitsIsAWaitToo) {
  add(make_call(CUPTI_ACTIVITY_KIND_RUNTIME, 12));
  EXPECT_EQ(convert_to<gpuperf_session_sync>(GPUPERF_SESSION_SYNC).type, GPUPERF_SYNC_STREAM);
  add(make_call(CUPTI_ACTIVITY_KIND_DRIVER, 10));
  EXPECT_EQ(convert_to<gpuperf_session_sync>(GPUPERF_SESSION_SYNC).type, GPUPERF_SYNC_CONTEXT);

  records_->set_kinds(GPUPERF_SESSION_BIT(GPUPERF_SESSION_API));
  add(make_call(CUPTI_ACTIVITY_KIND_RUNTIME, 12));
  EXPECT_EQ(convert().size(), 1u);
  records_->set_kinds(GPUPERF_SESSION_BIT(GPUPERF_SESSION_KERNEL));
  add(make_call(CUPTI_ACTIVITY_KIND_RUNTIME, 12));
  EXPECT_EQ(convert().size(), 0u);
}

TEST_F(CuptiRecordsTest, CallsOfUnknownIdsAreCallsOnly) {
  add(make_call(CUPTI_ACTIVITY_KIND_RUNTIME, UINT32_MAX));

  EXPECT_EQ(convert_to<gpuperf_session_api>(GPUPERF_SESSION_API).callback_id, UINT32_MAX);
}

TEST_F(CuptiRecordsTest, AGraphLaunchIsCarriedOverAndItsCallCounted) {
  CUpti_ActivityGraphTrace2 graph = {};
  set_common(graph, CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
  graph.graphId = 8;
  add(graph);
  add(make_call(CUPTI_ACTIVITY_KIND_RUNTIME, 11));

  const auto record = convert_to<gpuperf_session_graph>(GPUPERF_SESSION_GRAPH);

  const gpuperf_session_graph expected = {
      {GPUPERF_SESSION_GRAPH, sizeof(record), 77}, kStartNs, 300, 8, 1};
  EXPECT_EQ(std::memcmp(&record, &expected, sizeof(record)), 0);
  EXPECT_EQ(records_->graph_launch_count(), 1u);
}

TEST_F(CuptiRecordsTest, AnAllocationIsCarriedOverAndOtherOperationsAreCounted) {
  CUpti_ActivityMemory4 memory = {};
  memory.kind = CUPTI_ACTIVITY_KIND_MEMORY2;
  memory.memoryOperationType = CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE;
  memory.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  memory.timestamp = kStartNs;
  memory.address = 0x7f00'0000'0000;
  memory.bytes = 64;
  memory.correlationId = 5;
  memory.memoryPoolConfig.memoryPoolType = CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL;
  add(memory);

  const auto record = convert_to<gpuperf_session_memory>(GPUPERF_SESSION_MEMORY);

  const gpuperf_session_memory expected = {{GPUPERF_SESSION_MEMORY, sizeof(record), 5},
                                           kStartNs,
                                           0x7f00'0000'0000,
                                           64,
                                           1,
                                           GPUPERF_MEMORY_RELEASE,
                                           GPUPERF_MEMORY_DEVICE,
                                           1};
  EXPECT_EQ(std::memcmp(&record, &expected, sizeof(record)), 0);
  memory.memoryOperationType = CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_INVALID;
  add(memory);
  EXPECT_EQ(convert().size(), 0u);
  EXPECT_EQ(lost(GPUPERF_SESSION_LOSS_UNKNOWN_RECORD), 1u);
}

TEST_F(CuptiRecordsTest, TimesThatCannotBeAreCountedByWhy) {
  CUpti_ActivityKernel10 kernel = make_kernel(1, "k");
  kernel.start = kernel.end = 0;
  add(kernel);
  kernel.start = kStartNs;
  add(kernel);
  kernel.end = kStartNs - 1;
  add(kernel);
  EXPECT_EQ(convert().size(), 0u);
  EXPECT_EQ(lost(GPUPERF_SESSION_LOSS_DEVICE_BUFFER), 2u);
  EXPECT_EQ(lost(GPUPERF_SESSION_LOSS_REVERSED), 1u);

  records_->set_stopping(true);
  kernel.end = 0;
  add(kernel);
  EXPECT_EQ(convert().size(), 0u);
  EXPECT_EQ(lost(GPUPERF_SESSION_LOSS_INCOMPLETE), 1u);

  kernel.end = kernel.start;  // no time at all is a time
  add(kernel);
  EXPECT_EQ(convert_to<gpuperf_session_kernel>(GPUPERF_SESSION_KERNEL).duration_ns, 0u);
}

TEST_F(CuptiRecordsTest, KindsThatAreNotUnderstoodAreCounted) {
  CUpti_ActivityExternalCorrelation other = {};
  other.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
  add(other);
  add(make_kernel(1, "k"));

  EXPECT_EQ(convert().size(), 4u);
  EXPECT_EQ(lost(GPUPERF_SESSION_LOSS_UNKNOWN_RECORD), 1u);
}

TEST_F(CuptiRecordsTest, ASampleKeepsLaunchesWhole) {
  records_->set_sample_every(10);
  for (uint32_t id = 1; id <= 1'000; ++id) {
    add(make_kernel(id, "k"));
    CUpti_ActivityAPI call = make_call(CUPTI_ACTIVITY_KIND_RUNTIME, 10);
    call.correlationId = id;
    add(call);
  }
  std::map<uint32_t, int> kept;
  for (const auto& bytes : convert()) {
    const auto record = read_as<gpuperf_session_record>(bytes);
    if (record.kind == GPUPERF_SESSION_KERNEL || record.kind == GPUPERF_SESSION_API)
      ++kept[record.id];
  }

  EXPECT_NEAR(static_cast<double>(kept.size()), 100, 60);
  for (const auto& [id, count] : kept) EXPECT_EQ(count, 2) << id;
  EXPECT_EQ(lost(GPUPERF_SESSION_LOSS_SAMPLED), 2 * (1'000 - kept.size()));
}

TEST_F(CuptiRecordsTest, WhatIsDiscardedIsCounted) {
  for (uint32_t i = 0; i < 12; ++i) add(make_kernel(i, "k"));

  records_->discard(buffer_.data(), buffer_.size(), GPUPERF_SESSION_LOSS_QUEUE_FULL);

  EXPECT_EQ(lost(GPUPERF_SESSION_LOSS_QUEUE_FULL), 12u);
  buffer_.clear();
  EXPECT_EQ(convert().size(), 0u);
}

TEST_F(CuptiRecordsTest, AGapIsSentUnlessItEndsBeforeItBegins) {
  records_->add_gap(GPUPERF_SESSION_CAUSE_BURST, kStartNs, kStartNs + 5, kNowMs);
  const auto gap = convert_to<gpuperf_session_gap>(GPUPERF_SESSION_GAP);
  records_->add_gap(GPUPERF_SESSION_CAUSE_BURST, kStartNs, kStartNs - 5, kNowMs);

  EXPECT_EQ(gap.record.id, uint32_t{GPUPERF_SESSION_CAUSE_BURST});
  EXPECT_EQ(gap.duration_ns, 5u);
  EXPECT_EQ(convert().size(), 0u);
}

TEST_F(CuptiRecordsTest, StreamsBeyondTheTableShareAPlaceOfTheirContext) {
  constexpr uint32_t kKernels = GPUPERF_PLACES_MAX + 3;
  for (uint32_t i = 1; i <= kKernels; ++i) {
    CUpti_ActivityKernel10 kernel = make_kernel(i, "k");
    kernel.streamId = i;
    add(kernel);
  }
  CUpti_ActivityKernel10 known = make_kernel(kKernels + 1, "k");
  known.streamId = 1;
  add(known);
  uint32_t last_stream = 0;
  uint32_t places = 0;
  std::vector<uint32_t> places_of_kernels;
  for (const auto& record : convert()) {
    const auto kind = read_as<gpuperf_session_record>(record).kind;
    if (kind == GPUPERF_SESSION_PLACE) {
      last_stream = read_as<gpuperf_session_place>(record).stream;
      ++places;
    } else if (kind == GPUPERF_SESSION_KERNEL) {
      places_of_kernels.push_back(read_as<gpuperf_session_kernel>(record).place_id);
    }
  }
  ASSERT_EQ(places_of_kernels.size(), kKernels + 1);
  EXPECT_EQ(last_stream, UINT32_MAX);
  EXPECT_LT(places, GPUPERF_PLACES_MAX);  // there is room for other contexts
  EXPECT_EQ(places_of_kernels[kKernels - 1], places);
  EXPECT_EQ(places_of_kernels.back(), places_of_kernels.front());
  EXPECT_EQ(lost(GPUPERF_SESSION_LOSS_TABLE_FULL), 0u);
}

TEST_F(CuptiRecordsTest, PlacesBeyondTheTableAreCountedAndTheRestGoesOn) {
  for (uint32_t context = 1; context < GPUPERF_PLACES_MAX + 3; ++context) {
    CUpti_ActivityKernel10 kernel = make_kernel(context, "k");
    kernel.contextId = context;
    add(kernel);
  }
  EXPECT_EQ(convert().size(), 2u + 2 * (GPUPERF_PLACES_MAX - 1));
  EXPECT_EQ(lost(GPUPERF_SESSION_LOSS_TABLE_FULL), 3u);
}

TEST(ClassifyCallTest, KnowsCallsByTheirNames) {
  const std::pair<const char*, CallClass> rows[] = {
      {"cudaLaunchKernel_v7000", CallClass::kLaunch},
      {"cudaLaunchKernelExC_ptsz_v11060", CallClass::kLaunch},
      {"cuLaunchKernelEx", CallClass::kLaunch},
      {"cuLaunchCooperativeKernel", CallClass::kLaunch},
      {"cudaLaunchHostFunc_v10000", CallClass::kOther},
      {"cudaGraphLaunch_v10000", CallClass::kGraphLaunch},
      {"cuGraphLaunch_ptsz", CallClass::kGraphLaunch},
      {"cudaGraphInstantiate_v12000", CallClass::kGraphMaking},
      {"cuStreamBeginCapture_v2", CallClass::kGraphMaking},
      {"cudaStreamEndCapture_v10000", CallClass::kGraphMaking},
      {"cudaMemcpyAsync_v3020", CallClass::kCopy},
      {"cuMemcpyHtoDAsync_v2", CallClass::kCopy},
      {"cudaMemsetAsync_v3020", CallClass::kSet},
      {"cuMemsetD8Async", CallClass::kSet},
      {"cudaStreamSynchronize_v3020", CallClass::kSyncStream},
      {"cuStreamSynchronize", CallClass::kSyncStream},
      {"cudaEventSynchronize_v3020", CallClass::kSyncEvent},
      {"cudaDeviceSynchronize_v3020", CallClass::kSyncContext},
      {"cuCtxSynchronize", CallClass::kSyncContext},
      {"cudaGetDevice_v3020", CallClass::kOther},
      {"cudaMalloc_v3020", CallClass::kOther},
      {"", CallClass::kOther},
      {"unrelatedLaunch", CallClass::kOther},
  };
  for (const auto& [name, expected] : rows) EXPECT_EQ(classify_call(name), expected) << name;
}

}  // namespace
}  // namespace gpuperf::injector
