#include "daemon/session/decode_session.h"

#include <functional>

#include "tests/unit/base/fake_clock.h"
#include "tests/unit/matchers.h"
#include "tests/unit/session/session_packets.h"

namespace gpuperf {
namespace {

using namespace session_packets;

constexpr int64_t kHourNs = 3'600'000'000'000;
constexpr int64_t kOffsetNs = 1'000'000 * kHourNs;

class DecodeSessionTest : public ::testing::Test {
 protected:
  Result<DecodedBatch> decode(const Packet& packet) {
    const SessionContext context{.session_id = 9,
                                 .now_unix_ns = clock_.unix_ns(),
                                 .name_bytes_max = name_bytes_max_,
                                 .clock = offset_,
                                 .find_thread = find_thread_,
                                 .cubin_room = cubin_room_,
                                 .holder = {.uid = 1'000, .pid = 1}};
    return decode_session_batch(as_bytes(packet), context, tables_);
  }

  void expect_malformed(const Packet& packet) {
    tables_ = {};
    const auto decoded = decode(packet);
    EXPECT_EQ(decoded.status().code(), absl::StatusCode::kInvalidArgument);
  }

  // What is left out of a batch with one record behind the dictionary.
  SessionRejects find_rejects(const Packet& record) {
    tables_ = {};
    const auto decoded =
        decode(make_batch({make_name(1, "k"), make_shape(1), make_place(1), record}));
    if (!decoded.ok()) {
      ADD_FAILURE() << decoded.status();
      return {};
    }
    return decoded->rejects;
  }
  SessionRejects find_kernel_rejects(const std::function<void(gpuperf_session_kernel&)>& change) {
    auto kernel = make_kernel(start_unix_ns_);
    change(kernel);
    return find_rejects(make_record(GPUPERF_SESSION_KERNEL, 1, kernel));
  }

  FakeClock clock_{100 * kHourNs, 100 * kHourNs + kOffsetNs};
  RealtimeOffset offset_{clock_};
  std::function<uint32_t(uint32_t)> find_thread_ = [](uint32_t tid) { return tid + 1'000; };
  uint64_t name_bytes_max_ = 1 << 20;
  SessionTables tables_;
  Shares cubin_room_{{.total = 100}};
  const uint64_t start_unix_ns_ = static_cast<uint64_t>(clock_.unix_ns() - 5'000);
  const uint64_t start_mono_ns_ = static_cast<uint64_t>(clock_.mono_ns() - 5'000);
};

TEST_F(DecodeSessionTest, ReadsOneRecordOfEachKind) {
  SessionBatch expected{.session_id = 9};
  expected.names = {{.id = 1, .text = "_Z6kernelv"}};
  expected.shapes = {{.id = 1,
                      .grid = {4, 2, 1},
                      .block = {256, 1, 1},
                      .shared_memory_bytes = 1024,
                      .registers_per_thread = 32}};
  expected.places = {{.id = 1,
                      .device = 3,
                      .context = 1,
                      .stream = 7,
                      .sm = {.count = 132,
                             .threads = 2'048,
                             .blocks = 32,
                             .registers = 65'536,
                             .shared_memory_bytes = 233'472,
                             .shared_memory_reserved_bytes = 1'024}}};
  expected.kernels = {{.start_mono_ns = start_mono_ns_,
                       .duration_ns = 1'000,
                       .correlation_id = 42,
                       .name_id = 1,
                       .shape_id = 1,
                       .place_id = 1,
                       .graph_id = 5,
                       .node_id = 6,
                       .flags = GPUPERF_KERNEL_FROM_GRAPH}};
  expected.copies = {{.start_mono_ns = start_mono_ns_,
                      .duration_ns = 2,
                      .bytes = 4096,
                      .correlation_id = 43,
                      .place_id = 1,
                      .is_async = true,
                      .direction = GPUPERF_MEMCPY_HOST_TO_DEVICE,
                      .source_memory = GPUPERF_MEMORY_PINNED,
                      .target_memory = GPUPERF_MEMORY_DEVICE},
                     {.start_mono_ns = start_mono_ns_,
                      .duration_ns = 3,
                      .bytes = 512,
                      .correlation_id = 44,
                      .place_id = 1,
                      .is_set = true,
                      .target_memory = GPUPERF_MEMORY_DEVICE}};
  expected.apis = {{.start_mono_ns = start_mono_ns_,
                    .duration_ns = 4,
                    .correlation_id = 42,
                    .tid = 1'077,
                    .callback_id = 211,
                    .return_value = 2,
                    .is_driver = true}};
  expected.graphs = {{.start_mono_ns = start_mono_ns_,
                      .duration_ns = 5,
                      .correlation_id = 45,
                      .graph_id = 8,
                      .place_id = 1}};
  expected.syncs = {{.start_mono_ns = start_mono_ns_,
                     .duration_ns = 6,
                     .correlation_id = 46,
                     .type = GPUPERF_SYNC_STREAM,
                     .place_id = 1}};
  expected.memory = {{.mono_ns = start_mono_ns_,
                      .address = 0x7f00,
                      .bytes = 1 << 20,
                      .place_id = 1,
                      .memory = GPUPERF_MEMORY_DEVICE,
                      .is_release = true,
                      .is_from_pool = true}};
  expected.overheads = {
      {.start_mono_ns = start_mono_ns_, .duration_ns = 7, .type = GPUPERF_OVERHEAD_MODULE_LOADING}};
  expected.gaps = {
      {.start_mono_ns = start_mono_ns_, .duration_ns = 9, .cause = GPUPERF_SESSION_CAUSE_BURST}};
  expected.stalls = {{.name_id = 1,
                      .pc_offset_bytes = 0x120,
                      .cubin_crc = 0xdf940d43,
                      .counts = {{.stall = GPUPERF_STALL_barrier, .samples = 10, .idle_samples = 3},
                                 {.stall = GPUPERF_STALL_selected, .samples = 20}}}};
  expected.samplings = {{.start_mono_ns = start_mono_ns_,
                         .duration_ns = 8,
                         .samples = 90,
                         .dropped_samples = 2,
                         .other_samples = 5,
                         .place_id = 1,
                         .period = 16,
                         .was_full = true}};
  expected.cubins = {{.cubin_crc = 0xdf940d43, .fate = LineFate::kUnreadable}};

  const auto decoded = decode(make_batch(make_all_records(start_unix_ns_)));

  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->batch, expected);
  EXPECT_EQ(decoded->rejects, SessionRejects());
  EXPECT_EQ(decoded->record_count, 11u);
}

TEST_F(DecodeSessionTest, ReadsBytesAtAnyAddress) {
  const Packet shifted = "x" + make_batch(make_all_records(start_unix_ns_));
  const SessionContext context{.session_id = 9,
                               .now_unix_ns = clock_.unix_ns(),
                               .name_bytes_max = name_bytes_max_,
                               .clock = offset_,
                               .find_thread = find_thread_,
                               .cubin_room = cubin_room_,
                               .holder = {.uid = 1'000, .pid = 1}};

  const auto decoded = decode_session_batch(as_bytes(shifted).subspan(1), context, tables_);

  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->rejects, SessionRejects());
}

TEST_F(DecodeSessionTest, RefusesEveryBatchThatIsCutShort) {
  const Packet whole = make_batch(make_all_records(start_unix_ns_));
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    SCOPED_TRACE(bytes);
    expect_malformed(whole.substr(0, bytes));
  }
}

TEST_F(DecodeSessionTest, RefusesEveryRecordShorterThanItsKind) {
  for (const Packet& record : make_all_records(start_unix_ns_)) {
    gpuperf_session_record front{};
    std::memcpy(&front, record.data(), sizeof front);
    size_t known = record.size();
    if (front.kind == GPUPERF_SESSION_NAME) known = sizeof(gpuperf_session_name);
    if (front.kind == GPUPERF_SESSION_PLACE) known = offsetof(gpuperf_session_place, sm_count);
    if (front.kind == GPUPERF_SESSION_STALLS) known = sizeof(gpuperf_session_stalls);
    if (front.kind == GPUPERF_SESSION_CUBIN) known = sizeof(gpuperf_session_cubin);
    for (size_t bytes = sizeof front; bytes < known; bytes += 8) {
      SCOPED_TRACE("kind " + std::to_string(front.kind) + ", " + std::to_string(bytes) + " bytes");
      Packet cut = record.substr(0, bytes);
      const auto length = static_cast<uint16_t>(bytes);
      std::memcpy(&cut[2], &length, sizeof length);
      expect_malformed(make_batch({cut}));
    }
  }
}

TEST_F(DecodeSessionTest, RefusesLengthsAndCountsThatLie) {
  const Packet record = make_record(GPUPERF_SESSION_KERNEL, 1, make_kernel(start_unix_ns_));
  for (const uint16_t length : {0, 4, 7, 8, 40, 47, 49, 56, 0xffff, 0xfff8}) {
    SCOPED_TRACE(length);
    Packet lying = record;
    std::memcpy(&lying[2], &length, sizeof length);
    expect_malformed(make_batch({lying}));
  }
  for (const uint32_t count : {0u, 2u, UINT32_MAX}) {
    Packet lying = make_batch({make_name(1, "k")});
    std::memcpy(&lying[16], &count, sizeof count);
    expect_malformed(lying);
  }
  for (const uint32_t bytes : {0u, 8u, 23u, 32u, UINT32_MAX}) {
    Packet lying = make_batch({make_name(1, "k")});
    std::memcpy(&lying[20], &bytes, sizeof bytes);
    expect_malformed(lying);
  }
}

TEST_F(DecodeSessionTest, TakesFieldsThatLaterVersionsAdd) {
  auto kernel = make_kernel(start_unix_ns_);
  const Packet more(24, '\xff');
  Packet body = make_dictionary() + make_record(GPUPERF_SESSION_KERNEL, 1, kernel, more) +
                make_record(77, 1, gpuperf_session_gap{}, more);
  // The front of the batch has grown, too.
  const Packet packet = make_message(
      GPUPERF_MESSAGE_BATCH,
      gpuperf_batch{.record_count = 5, .records_bytes = static_cast<uint32_t>(body.size())},
      more + body);

  const auto decoded = decode(packet);

  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->batch.kernels.size(), 1u);
  EXPECT_EQ(decoded->rejects, (SessionRejects{.unknown_kind = 1}));
  EXPECT_EQ(decoded->record_count, 2u);
}

TEST_F(DecodeSessionTest, WantsIdsFromOneUpWithoutGaps) {
  expect_malformed(make_batch({make_name(0, "k")}));
  expect_malformed(make_batch({make_name(2, "k")}));
  expect_malformed(make_batch({make_name(1, "k"), make_name(1, "k")}));
  expect_malformed(make_batch({make_shape(1), make_shape(3)}));
  expect_malformed(make_batch({make_place(1), make_place(2), make_place(1)}));
  expect_malformed(make_batch({make_place(UINT32_MAX)}));
}

TEST_F(DecodeSessionTest, TakesAsManyIdsAsTheContractAllowsAndNoMore) {
  tables_ = {.names = GPUPERF_NAMES_MAX - 1,
             .shapes = GPUPERF_SHAPES_MAX - 1,
             .places = GPUPERF_PLACES_MAX - 1};

  const auto last =
      decode(make_batch({make_name(GPUPERF_NAMES_MAX, "k"), make_shape(GPUPERF_SHAPES_MAX),
                         make_place(GPUPERF_PLACES_MAX)}));

  EXPECT_TRUE(last.ok()) << last.status();
  EXPECT_FALSE(decode(make_batch({make_name(GPUPERF_NAMES_MAX + 1, "k")})).ok());
  EXPECT_FALSE(decode(make_batch({make_shape(GPUPERF_SHAPES_MAX + 1)})).ok());
  EXPECT_FALSE(decode(make_batch({make_place(GPUPERF_PLACES_MAX + 1)})).ok());
}

TEST_F(DecodeSessionTest, TakesNamesUpToTheirLongest) {
  const std::string longest(GPUPERF_NAME_BYTES_MAX, 'n');

  const auto decoded = decode(make_batch({make_name(1, longest, 1), make_name(2, "")}));

  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->batch.names,
            (std::vector<KernelName>{{.id = 1, .text = longest, .is_cut = true}, {.id = 2}}));
  expect_malformed(make_batch({make_name(1, longest + "n")}));
}

TEST_F(DecodeSessionTest, RefusesTextsThatAreDamaged) {
  expect_malformed(make_batch({make_name(1, std::string_view("a\0b", 3))}));
  expect_malformed(make_batch({make_name(1, "k", 2)}));
  Packet padded = make_name(1, "abc");
  padded.back() = 'x';
  expect_malformed(make_batch({padded}));
}

TEST_F(DecodeSessionTest, KeepsIdsOfNamesBeyondItsMemory) {
  name_bytes_max_ = 10;
  const Packet kernel = [&] {
    auto with_name = make_kernel(start_unix_ns_);
    with_name.name_id = 2;
    return make_record(GPUPERF_SESSION_KERNEL, 1, with_name);
  }();

  const auto decoded =
      decode(make_batch({make_name(1, "12345678"), make_name(2, "123"), make_name(3, "12"),
                         make_shape(1), make_place(1), kernel}));

  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->batch.names, (std::vector<KernelName>{{.id = 1, .text = "12345678"},
                                                           {.id = 2, .is_cut = true},
                                                           {.id = 3, .text = "12"}}));
  EXPECT_EQ(decoded->batch.kernels.size(), 1u);
  EXPECT_EQ(decoded->rejects, (SessionRejects{.names_full = 1}));
}

TEST_F(DecodeSessionTest, LeavesOutRecordsWithIdsThatWereNotAnnounced) {
  const SessionRejects unknown{.unknown_id = 1};
  for (const uint32_t id : {0u, 2u, UINT32_MAX}) {
    EXPECT_EQ(find_kernel_rejects([&](auto& kernel) { kernel.name_id = id; }), unknown);
    EXPECT_EQ(find_kernel_rejects([&](auto& kernel) { kernel.shape_id = id; }), unknown);
    EXPECT_EQ(find_kernel_rejects([&](auto& kernel) { kernel.place_id = id; }), unknown);
  }
}

TEST_F(DecodeSessionTest, LeavesOutValuesWithoutMeaning) {
  const SessionRejects bad{.bad_value = 1};
  EXPECT_EQ(find_kernel_rejects([](auto& kernel) { kernel.flags = 8; }), bad);
  auto copy = gpuperf_session_memcpy{.start_unix_ns = start_unix_ns_, .place_id = 1};
  copy.direction = GPUPERF_MEMCPY_COUNT;
  EXPECT_EQ(find_rejects(make_record(GPUPERF_SESSION_MEMCPY, 1, copy)), bad);
  copy = {.start_unix_ns = start_unix_ns_, .place_id = 1, .flags = 2};
  EXPECT_EQ(find_rejects(make_record(GPUPERF_SESSION_MEMCPY, 1, copy)), bad);
  const gpuperf_session_memset set{.start_unix_ns = start_unix_ns_, .place_id = 1, .pad = 1};
  EXPECT_EQ(find_rejects(make_record(GPUPERF_SESSION_MEMSET, 1, set)), bad);
  for (const __u16 domain : {0, 3, 0xffff}) {
    const gpuperf_session_api api{.start_unix_ns = start_unix_ns_, .domain = domain};
    EXPECT_EQ(find_rejects(make_record(GPUPERF_SESSION_API, 1, api)), bad);
  }
  const gpuperf_session_api flagged{
      .start_unix_ns = start_unix_ns_, .domain = GPUPERF_API_DRIVER, .flags = 4};
  EXPECT_EQ(find_rejects(make_record(GPUPERF_SESSION_API, 1, flagged)), bad);
  const gpuperf_session_sync sync{
      .start_unix_ns = start_unix_ns_, .type = GPUPERF_SYNC_COUNT, .place_id = 1};
  EXPECT_EQ(find_rejects(make_record(GPUPERF_SESSION_SYNC, 1, sync)), bad);
  const gpuperf_session_memory memory{.unix_ns = start_unix_ns_, .place_id = 1, .operation = 3};
  EXPECT_EQ(find_rejects(make_record(GPUPERF_SESSION_MEMORY, 1, memory)), bad);
  const gpuperf_session_overhead overhead{.start_unix_ns = start_unix_ns_,
                                          .type = GPUPERF_OVERHEAD_COUNT};
  EXPECT_EQ(find_rejects(make_record(GPUPERF_SESSION_OVERHEAD, 1, overhead)), bad);
  const gpuperf_session_gap gap{.start_unix_ns = start_unix_ns_};
  EXPECT_EQ(find_rejects(make_record(GPUPERF_SESSION_GAP, GPUPERF_SESSION_CAUSE_COUNT, gap)), bad);
}

TEST_F(DecodeSessionTest, LeavesOutSamplesThatCannotBe) {
  const SessionRejects bad{.bad_value = 1};
  EXPECT_EQ(find_rejects(make_stalls(1)), SessionRejects());
  EXPECT_EQ(find_rejects(make_stalls(1, GPUPERF_STALL_COUNT)), bad);
  EXPECT_EQ(find_rejects(make_stalls(1, GPUPERF_STALL_barrier, 11)), bad);    // of 10
  EXPECT_EQ(find_rejects(make_stalls(1, GPUPERF_STALL_barrier, 3, 3)), bad);  // there are 2
  EXPECT_EQ(find_rejects(make_stalls(1, GPUPERF_STALL_barrier, 3, UINT32_MAX)), bad);
  EXPECT_EQ(find_rejects(make_stalls(2)), SessionRejects{.unknown_id = 1});
  const gpuperf_session_sampling sampling{.start_unix_ns = start_unix_ns_, .period = 32};
  EXPECT_EQ(find_rejects(make_record(GPUPERF_SESSION_SAMPLING, 1, sampling)), bad);
}

TEST_F(DecodeSessionTest, ReadsPlacesOfOlderLibrariesWithoutLimits) {
  constexpr size_t kOldBytes = offsetof(gpuperf_session_place, sm_count);
  Packet place = make_place(1).substr(0, kOldBytes);
  const auto length = static_cast<uint16_t>(kOldBytes);
  std::memcpy(place.data() + offsetof(gpuperf_session_record, length_bytes), &length,
              sizeof length);

  const auto decoded = decode(make_batch({place}));

  ASSERT_TRUE(decoded.ok()) << decoded.status();
  ASSERT_EQ(decoded->batch.places.size(), 1u);
  EXPECT_EQ(decoded->batch.places[0].device, 3u);
  EXPECT_EQ(decoded->batch.places[0].sm, SmLimits());
}

TEST_F(DecodeSessionTest, LeavesOutTimesThatCannotBe) {
  const auto now_ns = static_cast<uint64_t>(clock_.unix_ns());
  const auto has_bad_time = [&](uint64_t start_ns, uint64_t duration_ns) {
    const SessionRejects rejects = find_kernel_rejects([&](auto& kernel) {
      kernel.start_unix_ns = start_ns;
      kernel.duration_ns = duration_ns;
    });
    return rejects == SessionRejects{.bad_time = 1};
  };
  EXPECT_TRUE(has_bad_time(0, 1));
  EXPECT_TRUE(has_bad_time(1, 1));
  EXPECT_TRUE(has_bad_time(UINT64_MAX, 1));
  EXPECT_TRUE(has_bad_time(uint64_t{1} << 63, 0));
  EXPECT_TRUE(has_bad_time(now_ns, UINT64_MAX));
  EXPECT_TRUE(has_bad_time(now_ns, UINT64_MAX - now_ns + 1));
  EXPECT_TRUE(has_bad_time(now_ns + kHourNs + 1, 0));
  EXPECT_TRUE(has_bad_time(now_ns, kHourNs + 1));
  EXPECT_TRUE(has_bad_time(now_ns - 24 * kHourNs - 1, 1));
  EXPECT_FALSE(has_bad_time(now_ns + kHourNs, 0));
  EXPECT_FALSE(has_bad_time(now_ns - 24 * kHourNs, 25 * kHourNs));
}

TEST_F(DecodeSessionTest, TakesAGapOfDays) {
  const gpuperf_session_gap gap{.start_unix_ns = start_unix_ns_ - 72 * kHourNs,
                                .duration_ns = 72 * kHourNs};

  const auto decoded = decode(make_batch({make_record(GPUPERF_SESSION_GAP, 1, gap)}));

  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->batch.gaps.size(), 1u);
}

TEST_F(DecodeSessionTest, DoesNotCountAStepOfTheWallClockAsDuration) {
  clock_.advance(std::chrono::nanoseconds(1'000));
  clock_.step(kHourNs / 2);
  (void)offset_.sample();
  clock_.advance(std::chrono::nanoseconds(10'000));
  auto kernel = make_kernel(start_unix_ns_);
  kernel.duration_ns = static_cast<uint64_t>(clock_.unix_ns()) - start_unix_ns_;

  const auto decoded = decode(make_batch({make_name(1, "k"), make_shape(1), make_place(1),
                                          make_record(GPUPERF_SESSION_KERNEL, 1, kernel)}));

  ASSERT_TRUE(decoded.ok());
  ASSERT_EQ(decoded->batch.kernels.size(), 1u);
  EXPECT_EQ(decoded->batch.kernels[0].duration_ns, 5'000u + 1'000 + 10'000);
}

TEST_F(DecodeSessionTest, CountsTimesThatTheWallClockNeverShowed) {
  clock_.step(kHourNs / 2);
  (void)offset_.sample();
  auto kernel = make_kernel(start_unix_ns_);
  kernel.duration_ns = kHourNs / 4;

  const auto decoded = decode(make_batch({make_name(1, "k"), make_shape(1), make_place(1),
                                          make_record(GPUPERF_SESSION_KERNEL, 1, kernel)}));

  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->batch.kernels.size(), 1u);
  EXPECT_EQ(decoded->near_step_count, 1u);
}

TEST(DecodeSessionMessageTest, ReadsTheFront) {
  const Packet packet = make_message(GPUPERF_MESSAGE_STATUS, make_status());

  const auto message = decode_session_message(as_bytes(packet));

  ASSERT_TRUE(message.ok());
  EXPECT_EQ(*message, (SessionMessage{.version = 1, .kind = GPUPERF_MESSAGE_STATUS}));
}

TEST(DecodeSessionMessageTest, RefusesWhatIsNoMessage) {
  const Packet good = make_message(GPUPERF_MESSAGE_STATUS, make_status());
  const auto is_refused = [](const Packet& packet) {
    return absl::IsInvalidArgument(decode_session_message(as_bytes(packet)).status());
  };
  EXPECT_TRUE(is_refused(""));
  EXPECT_TRUE(is_refused(good.substr(0, 15)));
  EXPECT_TRUE(is_refused(good.substr(0, good.size() - 1)));
  EXPECT_TRUE(is_refused(good + "x"));
  EXPECT_TRUE(is_refused("X" + good.substr(1)));
  Packet unversioned = good;
  unversioned[4] = 0;
  EXPECT_TRUE(is_refused(unversioned));
}

TEST(DecodeSessionHelloTest, ReadsWhatAProcessSaysOfItself) {
  const Packet packet = make_message(GPUPERF_MESSAGE_HELLO, make_hello(), "more of later versions");

  const auto hello = decode_session_hello(as_bytes(packet));

  ASSERT_TRUE(hello.ok());
  EXPECT_EQ(*hello, (SessionHello{.version = 1,
                                  .oldest_version = 1,
                                  .capabilities = GPUPERF_SESSION_ALL_KINDS,
                                  .process_start_ticks = 123,
                                  .mono_ns = 5,
                                  .unix_ns = 6,
                                  .pid = 71,
                                  .connection = 2,
                                  .injector_version = "0.1.0",
                                  .comm = "python3"}));
}

TEST(DecodeSessionHelloTest, RefusesOneThatIsShortOrSpeaksNoVersion) {
  const auto is_refused = [](const Packet& packet) {
    return absl::IsInvalidArgument(decode_session_hello(as_bytes(packet)).status());
  };
  const Packet good = make_message(GPUPERF_MESSAGE_HELLO, make_hello());
  EXPECT_TRUE(is_refused(good.substr(0, good.size() - 8)));
  for (const uint32_t oldest : {0u, 2u, UINT32_MAX}) {
    gpuperf_hello hello = make_hello();
    hello.oldest_version = oldest;
    EXPECT_TRUE(is_refused(make_message(GPUPERF_MESSAGE_HELLO, hello))) << oldest;
  }
}

TEST(DecodeSessionHelloTest, TakesTextsWithoutTheirEnd) {
  gpuperf_hello hello = make_hello();
  std::memset(hello.comm, 'c', sizeof hello.comm);

  const auto decoded = decode_session_hello(as_bytes(make_message(GPUPERF_MESSAGE_HELLO, hello)));

  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->comm, std::string(16, 'c'));
}

TEST(DecodeSessionStatusTest, ReadsAll) {
  const Packet packet = make_message(GPUPERF_MESSAGE_STATUS, make_status());

  const auto status = decode_session_status(as_bytes(packet), 9);

  ASSERT_TRUE(status.ok() && status->has_value());
  EXPECT_EQ(**status, (SessionStatus{.session_id = 9,
                                     .enabled_kinds = GPUPERF_SESSION_ALL_KINDS,
                                     .records_sent = 7,
                                     .losses = {1, 2, 3, 4, 5, 6, 7, 8, 9},
                                     .cupti_overhead_ns = 10,
                                     .injector_cpu_ns = 11,
                                     .clock_error_ns = 12,
                                     .yields = 13,
                                     .state = GPUPERF_SESSION_STATE_YIELDED,
                                     .cause = GPUPERF_SESSION_CAUSE_OTHER_CLIENT,
                                     .level = GPUPERF_SESSION_LEVEL_KERNELS,
                                     .sample_every = 10,
                                     .cupti_version = 130001,
                                     .driver_version = 13000,
                                     .is_clock_foreign = true,
                                     .buffer_mib = 32,
                                     .detail = "libkineto",
                                     .mono_ns = 5,
                                     .hooked_calls = 14,
                                     .timed_hooks = 15,
                                     .timed_hooks_ns = 16}));
}

TEST(DecodeSessionStatusTest, TakesThoseOfTheFirstReleasesWhichLackTheLastFields) {
  const Packet full = make_message(GPUPERF_MESSAGE_STATUS, make_status());
  const auto decoded =
      decode_session_status(as_bytes(full.substr(0, offsetof(gpuperf_status, hooked_calls))), 9);
  ASSERT_TRUE(decoded.ok() && decoded->has_value());
  EXPECT_EQ((*decoded)->detail, "libkineto");
  EXPECT_EQ((*decoded)->hooked_calls, 0u);
  EXPECT_EQ((*decoded)->timed_hooks, 0u);
}

TEST(DecodeSessionStatusTest, TellsShortOnesFromThoseWithoutSense) {
  const Packet good = make_message(GPUPERF_MESSAGE_STATUS, make_status());
  EXPECT_FALSE(
      decode_session_status(as_bytes(good.substr(0, offsetof(gpuperf_status, hooked_calls) - 8)), 9)
          .ok());
  const auto makes_sense = [](const std::function<void(gpuperf_status&)>& change) {
    gpuperf_status status = make_status();
    change(status);
    const auto decoded =
        decode_session_status(as_bytes(make_message(GPUPERF_MESSAGE_STATUS, status)), 9);
    return decoded.ok() && decoded->has_value();
  };
  EXPECT_TRUE(makes_sense([](auto& status) { status.level = UINT32_MAX; }));
  EXPECT_FALSE(makes_sense([](auto& status) { status.state = 0; }));
  EXPECT_FALSE(makes_sense([](auto& status) { status.state = 7; }));
  EXPECT_FALSE(makes_sense([](auto& status) { status.cause = GPUPERF_SESSION_CAUSE_COUNT; }));
  EXPECT_FALSE(makes_sense([](auto& status) { status.clock_foreign = 2; }));
}

TEST_F(DecodeSessionTest, PutsTogetherAnImageOfPiecesInSeveralBatches) {
  ASSERT_TRUE(decode(make_batch({make_cubin(30, 0, std::string(16, 'x'))})).ok());
  EXPECT_EQ(cubin_room_.used(), 30u);
  EXPECT_EQ(tables_.cubin.bytes.size(), 16u);

  const auto decoded = decode(make_batch({make_cubin(30, 16, std::string(14, 'y'))}));

  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->record_count, 0u);
  EXPECT_EQ(decoded->batch.cubins,
            (std::vector<CubinLines>{{.cubin_crc = 0xdf940d43, .fate = LineFate::kUnreadable}}));
  EXPECT_EQ(cubin_room_.used(), 0u);
  EXPECT_TRUE(tables_.cubin.bytes.empty());
}

TEST_F(DecodeSessionTest, KeepsNoImageThatThereIsNoRoomFor) {
  const auto decoded = decode(make_batch({make_cubin(101, 0, std::string(50, 'x')),
                                          make_cubin(101, 50, std::string(51, 'x')),
                                          make_cubin(100, 0, std::string(100, 'x'), 3)}));

  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->batch.cubins,
            (std::vector<CubinLines>{{.cubin_crc = 0xdf940d43, .fate = LineFate::kNoRoom},
                                     {.cubin_crc = 3, .fate = LineFate::kUnreadable}}));
  EXPECT_EQ(decoded->rejects, (SessionRejects{.cubins_full = 1}));
  EXPECT_EQ(cubin_room_.used(), 0u);
}

TEST_F(DecodeSessionTest, TakesTheReasonWhyThereIsNoImage) {
  const auto decoded = decode(make_batch({make_cubin(0, 0, "", 1, GPUPERF_CUBIN_UNSEEN),
                                          make_cubin(0, 0, "", 2, GPUPERF_CUBIN_COMPRESSED),
                                          make_cubin(0, 0, "", 3, GPUPERF_CUBIN_TOO_LARGE)}));

  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->batch.cubins,
            (std::vector<CubinLines>{{.cubin_crc = 1, .fate = LineFate::kUnseen},
                                     {.cubin_crc = 2, .fate = LineFate::kCompressed},
                                     {.cubin_crc = 3, .fate = LineFate::kTooLarge}}));
}

TEST_F(DecodeSessionTest, RefusesPiecesOfImagesOutOfOrder) {
  const Packet first = make_cubin(30, 0, std::string(16, 'x'));
  for (const Packet& second :
       {make_cubin(30, 0, std::string(16, 'x')), make_cubin(30, 17, "x"), make_cubin(30, 8, "x"),
        make_cubin(31, 16, "x"), make_cubin(30, 16, "x", 2), make_cubin(30, 16, ""),
        make_cubin(30, 16, std::string(15, 'x')), make_cubin(30, 16, "x", 0xdf940d43, 4)}) {
    expect_malformed(make_batch({first, second}));
    give_back_cubin_room(cubin_room_, {.uid = 1'000, .pid = 1}, tables_.cubin);
  }
  EXPECT_EQ(cubin_room_.used(), 0u);
  expect_malformed(make_batch({make_cubin(0, 0, "x")}));
  expect_malformed(make_batch({make_cubin(30, 5, "x")}));
  give_back_cubin_room(cubin_room_, {.uid = 1'000, .pid = 1}, tables_.cubin);
  expect_malformed(make_batch({make_cubin(GPUPERF_CUBIN_BYTES_MAX + 1, 0, "x")}));
  expect_malformed(make_batch({make_cubin(1, 0, "", 1, GPUPERF_CUBIN_UNSEEN)}));
}

}  // namespace
}  // namespace gpuperf
