#include "daemon/collect/decode_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

namespace gpuperf {
namespace {

template <typename Record>
std::vector<std::byte> bytes_of(const Record& record) {
  std::vector<std::byte> bytes(sizeof record);
  std::memcpy(bytes.data(), &record, sizeof record);
  return bytes;
}

gpuperf_slow_call make_slow_call() {
  gpuperf_slow_call record{};
  record.header = {GPUPERF_RECORD_SLOW_CALL, sizeof record};
  record.start_mono_ns = 1000;
  record.duration_ns = 2000;
  record.threshold_ns = 1500;
  record.process_start_boot_ns = 77;
  record.pid = 41;
  record.tid = 42;
  record.function_id = 3;
  record.has_values = 1;
  record.has_return_value = 1;
  for (uint64_t i = 0; i < GPUPERF_ARGUMENTS; ++i) record.values[i] = 10 + i;
  record.return_value = 2;
  std::memcpy(record.comm, "python3", 8);
  record.stack_id = 0xaaa;
  return record;
}

TEST(DecodeRecord, ReadsEveryFieldOfASlowCall) {
  const auto decoded = decode_record(bytes_of(make_slow_call()));

  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(std::get<SlowCallEvent>(*decoded),
            (SlowCallEvent{.function_id = 3,
                           .process = {41, 77},
                           .tid = 42,
                           .comm = "python3",
                           .start_mono_ns = 1000,
                           .duration_ns = 2000,
                           .threshold_ns = 1500,
                           .values = CallValues{.values = {10, 11, 12, 13, 14, 15}},
                           .return_value = 2,
                           .stack_id = 0xaaa}));
}

TEST(DecodeRecord, ReadsAProcessExit) {
  gpuperf_process_exit record{};
  record.header = {GPUPERF_RECORD_PROCESS_EXIT, sizeof record};
  record.pid = 9;
  record.process_start_boot_ns = 12345;

  const auto decoded = decode_record(bytes_of(record));

  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(std::get<ProcessExited>(*decoded), (ProcessExited{{9, 12345}}));
}

gpuperf_handle_name make_handle_name(const std::string& name) {
  gpuperf_handle_name record{};
  record.header = {GPUPERF_RECORD_HANDLE_NAME, sizeof record};
  record.pid = 9;
  record.process_start_boot_ns = 12345;
  record.handle = 0x5550001000;
  std::memcpy(record.name, name.data(), std::min(name.size(), sizeof record.name));
  return record;
}

gpuperf_launches make_launches(uint32_t count) {
  gpuperf_launches record{};
  record.header = {GPUPERF_RECORD_LAUNCHES, sizeof record};
  record.base_mono_ns = 5000;
  record.process_start_boot_ns = 77;
  record.pid = 41;
  record.tid = 42;
  record.count = count;
  for (uint32_t i = 0; i < GPUPERF_LAUNCHES; ++i) {
    record.launches[i].offset_ns = 100 * i;
    record.function_id[i] = 3 + i % 2;
  }
  return record;
}

TEST(DecodeRecord, ReadsLaunchesThatWereReportedTogether) {
  const auto decoded = decode_record(bytes_of(make_launches(2)));

  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_THAT(std::get<std::vector<TraceLaunch>>(*decoded),
              testing::ElementsAre(
                  TraceLaunch{.mono_ns = 5000, .process = {41, 77}, .tid = 42, .function_id = 3},
                  TraceLaunch{.mono_ns = 5100, .process = {41, 77}, .tid = 42, .function_id = 4}));
}

TEST(DecodeRecord, TakesOnlyLaunchesThatWereNotSentBefore) {
  gpuperf_launches record = make_launches(3);
  record.first = 2;

  const auto decoded = decode_record(bytes_of(record));

  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_THAT(std::get<std::vector<TraceLaunch>>(*decoded),
              testing::ElementsAre(
                  TraceLaunch{.mono_ns = 5200, .process = {41, 77}, .tid = 42, .function_id = 3}));
}

TEST(DecodeRecord, ReadsTheSitesOfLaunchesThatWereReportedTogether) {
  gpuperf_launches record = make_launches(4);
  record.site_count = 2;
  record.sites[0].id = 11;
  record.sites[1].id = 12;
  record.sites[2].id = 13;  // beyond site_count
  for (uint16_t i = 0; i < 4; ++i) record.launches[i].site = i;

  const auto decoded = decode_record(bytes_of(record));

  ASSERT_TRUE(decoded.ok()) << decoded.status();
  std::vector<uint64_t> sites;
  for (const TraceLaunch& launch : std::get<std::vector<TraceLaunch>>(*decoded)) {
    sites.push_back(launch.site_id);
  }
  EXPECT_THAT(sites, testing::ElementsAre(0, 11, 12, 0));
}

TEST(DecodeRecord, TakesNoMoreLaunchesThanARecordHolds) {
  const auto decoded = decode_record(bytes_of(make_launches(UINT32_MAX)));

  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(std::get<std::vector<TraceLaunch>>(*decoded).size(), size_t{GPUPERF_LAUNCHES});
}

TEST(DecodeRecord, ReadsTheNameOfAHandle) {
  const auto decoded = decode_record(bytes_of(make_handle_name("_Z4gemmv")));

  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(std::get<HandleNamed>(*decoded), (HandleNamed{{9, 12345}, 0x5550001000, "_Z4gemmv"}));
}

TEST(DecodeRecord, TakesANameThatWasCut) {
  const std::string longest(GPUPERF_HANDLE_NAME_BYTES, 'k');

  const auto decoded = decode_record(bytes_of(make_handle_name(longest)));

  EXPECT_EQ(std::get<HandleNamed>(*decoded).name, longest);
}

TEST(DecodeRecord, ReadsTheStringsAndArraysOfASlowCall) {
  auto record = make_slow_call();
  record.blob_count = 3;
  record.values_unread = 0b100;
  std::memcpy(record.blobs[0], "bf16", 4);
  record.blob_bytes[0] = 4;
  record.blob_bytes[1] = 0;    // could not be read
  record.blob_bytes[2] = 255;  // more than there is
  record.blob_bytes[3] = 9;    // beyond blob_count

  const auto decoded = decode_record(bytes_of(record));

  const CallValues& values = *std::get<SlowCallEvent>(*decoded).values;
  EXPECT_THAT(values.blobs,
              testing::ElementsAre("bf16", "", std::string(GPUPERF_BLOB_BYTES, '\0')));
  EXPECT_EQ(values.unread, 0b100);
}

TEST(DecodeRecord, SaysWhenTheEntryOfASlowCallWasNotKept) {
  auto record = make_slow_call();
  record.has_values = 0;

  EXPECT_EQ(std::get<SlowCallEvent>(*decode_record(bytes_of(record))).values, std::nullopt);
}

gpuperf_slow_call make_split_call() {
  auto record = make_slow_call();
  record.has_split = 1;
  return record;
}

SlowCallEvent decode(const gpuperf_slow_call& record) {
  return std::get<SlowCallEvent>(*decode_record(bytes_of(record)));
}

TEST(DecodeRecord, ReadsWhereTheTimeWent) {
  auto record = make_split_call();
  record.split = {.runnable_ns = 1,
                  .throttled_ns = 2,
                  .waits_ns = {3, 4, 5, 6, 7, 8, 9},
                  .ticks = {10, 11, 12},
                  .preemptions = 13,
                  .migrations = 14,
                  .minor_faults = 15,
                  .major_faults = 16};

  EXPECT_EQ(decode(record).split, (TimeSplit{.runnable_ns = 1,
                                             .throttled_ns = 2,
                                             .waits_ns = {3, 4, 5, 6, 7, 8, 9},
                                             .ticks = {10, 11, 12},
                                             .preemptions = 13,
                                             .migrations = 14,
                                             .minor_faults = 15,
                                             .major_faults = 16}));
}

TEST(DecodeRecord, HasOnlyTheCallsAroundItWhereItsThreadWasNotFollowed) {
  auto record = make_split_call();
  record.has_split = 0;
  record.outer_count = 2;
  record.outer[0] = 7;
  record.outer[1] = 9;
  record.children[0] = {.function_id = 4, .calls = 1, .total_ns = 5};
  record.waits[0] = {.start_mono_ns = 1, .duration_ns = 2};

  SlowCallEvent expected = decode(make_slow_call());
  expected.outer = {7, 9};
  EXPECT_EQ(decode(record), expected);
}

TEST(DecodeRecord, ReadsWhatMadeTheCallSlow) {
  auto record = make_slow_call();
  record.adaptive = 1;
  record.worst = 1;

  SlowCallEvent expected = decode(make_slow_call());
  expected.is_adaptive = true;
  expected.is_worst = true;
  EXPECT_EQ(decode(record), expected);
}

TEST(DecodeRecord, ReadsTheCallsAroundIt) {
  auto record = make_split_call();
  record.outer[0] = 7;
  record.outer[1] = 3;
  record.outer[2] = 99;  // beyond outer_count
  record.outer_count = 2;

  EXPECT_THAT(decode(record).outer, testing::ElementsAre(7, 3));
}

TEST(DecodeRecord, KeepsACountOfCallsAroundItWithinTheRecord) {
  auto record = make_split_call();
  record.outer_count = 255;

  EXPECT_EQ(decode(record).outer.size(), size_t{GPUPERF_CALL_DEPTH});
}

TEST(DecodeRecord, ReadsTheCallsInsideOfItInTheOrderTheyBegan) {
  auto record = make_split_call();
  record.children[0] = {.function_id = 9, .calls = 2, .total_ns = 30};
  record.children[1] = {};  // unused
  record.children[3] = {.function_id = GPUPERF_OTHER_CHILDREN, .calls = 1, .total_ns = 500};

  EXPECT_THAT(decode(record).children,
              testing::ElementsAre(
                  ChildCalls{.function_id = 9, .calls = 2, .total_ns = 30},
                  ChildCalls{.function_id = GPUPERF_OTHER_CHILDREN, .calls = 1, .total_ns = 500}));
}

TEST(DecodeRecord, ReadsEveryFieldOfAWait) {
  auto record = make_split_call();
  gpuperf_wait& wait = record.waits[1];
  wait = {.start_mono_ns = 1100,
          .duration_ns = 700,
          .syscall = 202,
          .kind = GPUPERF_WAIT_FUTEX,
          .file_mode = 0100644,
          .waker_tid = 51,
          .waker_pid = 50,
          .waker_is_kernel = 1,
          .waker_start_boot_ns = 88};
  std::memcpy(wait.waker_comm, "worker", 7);
  std::memcpy(wait.file_name, "data.bin", 9);
  wait.kernel_stack[0] = 0xf1;
  wait.waker_stack_id = 0xe1;

  EXPECT_THAT(decode(record).waits, testing::ElementsAre(Wait{.start_mono_ns = 1100,
                                                              .duration_ns = 700,
                                                              .kind = WaitKind::kFutex,
                                                              .syscall = 202,
                                                              .file_mode = 0100644,
                                                              .file_name = "data.bin",
                                                              .waker = {.tid = 51,
                                                                        .pid = 50,
                                                                        .process_start_boot_ns = 88,
                                                                        .is_kernel = true,
                                                                        .comm = "worker",
                                                                        .stack_id = 0xe1},
                                                              .kernel_stack = {0xf1}}));
}

TEST(DecodeRecord, PutsTheLongestWaitFirst) {
  auto record = make_split_call();
  record.waits[0] = {.start_mono_ns = 1, .duration_ns = 20};
  record.waits[1] = {.start_mono_ns = 2, .duration_ns = 90};
  record.waits[2] = {.start_mono_ns = 3, .duration_ns = 50};

  std::vector<uint64_t> durations_ns;
  for (const Wait& wait : decode(record).waits) durations_ns.push_back(wait.duration_ns);

  EXPECT_THAT(durations_ns, testing::ElementsAre(90, 50, 20));
}

TEST(DecodeRecord, LeavesUnusedWaitsOut) {
  auto record = make_split_call();
  record.waits[0] = {.start_mono_ns = 0, .duration_ns = 90};
  record.waits[2] = {.start_mono_ns = 3, .duration_ns = 0};

  const auto waits = decode(record).waits;

  ASSERT_EQ(waits.size(), 1u);
  EXPECT_EQ(waits[0].start_mono_ns, 3u);
}

TEST(DecodeRecord, KnowsEveryKindOfWaitAndTakesOthersForOther) {
  for (const uint32_t kind : {0u, 1u, 2u, 3u, 4u, 5u, 6u, 7u, UINT32_MAX}) {
    auto record = make_split_call();
    record.waits[0] = {.start_mono_ns = 1, .kind = kind};

    EXPECT_EQ(decode(record).waits.at(0).kind,
              kind < GPUPERF_WAIT_KINDS ? static_cast<WaitKind>(kind) : WaitKind::kOther);
  }
}

TEST(DecodeRecord, TakesAKernelStackThatFillsItsRoom) {
  auto record = make_split_call();
  gpuperf_wait& wait = record.waits[0];
  wait.start_mono_ns = 1;
  for (uint64_t i = 0; i < GPUPERF_WAIT_FRAMES; ++i) wait.kernel_stack[i] = 0x100 + i;

  const Wait decoded = decode(record).waits.at(0);

  ASSERT_EQ(decoded.kernel_stack.size(), size_t{GPUPERF_WAIT_FRAMES});
  EXPECT_EQ(decoded.kernel_stack.back(), 0x100u + GPUPERF_WAIT_FRAMES - 1);
}

TEST(DecodeRecord, TakesNamesOfAWaitWithoutAnEnd) {
  auto record = make_split_call();
  record.waits[0].start_mono_ns = 1;
  std::memset(record.waits[0].waker_comm, 'w', sizeof record.waits[0].waker_comm);
  std::memset(record.waits[0].file_name, 'f', sizeof record.waits[0].file_name);

  const Wait decoded = decode(record).waits.at(0);

  EXPECT_EQ(decoded.waker.comm, std::string(GPUPERF_COMM_BYTES, 'w'));
  EXPECT_EQ(decoded.file_name, std::string(GPUPERF_FILE_NAME_BYTES, 'f'));
}

gpuperf_slow_in_flight make_slow_in_flight(uint32_t state) {
  gpuperf_slow_in_flight record{};
  record.call = make_split_call();
  record.call.header = {GPUPERF_RECORD_SLOW_IN_FLIGHT, sizeof record};
  record.call.has_return_value = 0;
  record.state = state;
  return record;
}

TEST(DecodeSlowInFlight, ReadsEveryFieldOfTheCall) {
  gpuperf_slow_in_flight record = make_slow_in_flight(GPUPERF_THREAD_BLOCKED);
  record.call.split.runnable_ns = 5;
  record.call.waits[0] = {.start_mono_ns = 1200, .duration_ns = 800, .syscall = 16};
  record.entry_sp = 0x50;
  record.entry_bp = 0x60;
  record.thread_pointer = 0x70;
  record.return_count = 1;
  record.returns[0] = {.sp = 0x80, .address = 0x90};

  EXPECT_EQ(decode_slow_in_flight(record),
            (SlowCallEvent{.function_id = 3,
                           .process = {41, 77},
                           .tid = 42,
                           .comm = "python3",
                           .start_mono_ns = 1000,
                           .duration_ns = 2000,
                           .threshold_ns = 1500,
                           .values = CallValues{.values = {10, 11, 12, 13, 14, 15}},
                           .stack_id = 0xaaa,
                           .live_stack = LiveStack{.sp = 0x50,
                                                   .bp = 0x60,
                                                   .thread_pointer = 0x70,
                                                   .returns = {{.sp = 0x80, .address = 0x90}}},
                           .split = TimeSplit{.runnable_ns = 5},
                           .waits = {{.start_mono_ns = 1200, .duration_ns = 800, .syscall = 16}},
                           .in_flight = ThreadState::kBlocked}));
}

TEST(DecodeSlowInFlight, KnowsEveryStateAndTakesOthersForRunning) {
  const auto decode_state = [](uint32_t state) {
    return decode_slow_in_flight(make_slow_in_flight(state)).in_flight;
  };

  EXPECT_EQ(decode_state(GPUPERF_THREAD_RUNNING), ThreadState::kRunning);
  EXPECT_EQ(decode_state(GPUPERF_THREAD_RUNNABLE), ThreadState::kRunnable);
  EXPECT_EQ(decode_state(GPUPERF_THREAD_BLOCKED), ThreadState::kBlocked);
  EXPECT_EQ(decode_state(3), ThreadState::kRunning);
  EXPECT_EQ(decode_state(UINT32_MAX), ThreadState::kRunning);
}

TEST(DecodeRecord, RefusesACallWithoutItsSplit) {
  auto record = make_split_call();
  record.header.length_bytes = offsetof(gpuperf_slow_call, outer);  // as version 2 had it

  EXPECT_TRUE(absl::IsInvalidArgument(decode_record(bytes_of(record)).status()));
}

gpuperf_in_flight make_in_flight(uint64_t start_mono_ns) {
  gpuperf_in_flight record{};
  record.start_mono_ns = start_mono_ns;
  record.process_start_boot_ns = 77;
  // Function 5 with a lane, a generation and a condition around it.
  record.cookie = 0x1203'0000'0700'0005;
  record.pid = 41;
  record.tid = 42;
  record.depth = 1;
  std::memcpy(record.comm, "python3", 8);
  return record;
}

TEST(DecodeInFlight, ReadsEveryFieldAndPutsTheLongestFirst) {
  const std::vector<gpuperf_in_flight> records = {make_in_flight(300), make_in_flight(0),
                                                  make_in_flight(100), make_in_flight(200)};

  const InFlightCalls look = decode_in_flight(records);

  InFlightCall expected{.function_id = 5,
                        .process = {41, 77},
                        .tid = 42,
                        .comm = "python3",
                        .depth = 1,
                        .start_mono_ns = 100};
  ASSERT_EQ(look.calls.size(), 3u);  // without the one that has not begun
  EXPECT_EQ(look.calls[0], expected);
  EXPECT_EQ(look.calls[1].start_mono_ns, 200u);
  EXPECT_EQ(look.calls[2].start_mono_ns, 300u);
  EXPECT_EQ(look.truncated_count, 0u);
}

TEST(DecodeInFlight, KeepsTheLongestWhenThereAreTooMany) {
  std::vector<gpuperf_in_flight> records;
  for (uint64_t i = kMaxInFlightCalls + 7; i > 0; --i) records.push_back(make_in_flight(i));

  const InFlightCalls look = decode_in_flight(records);

  ASSERT_EQ(look.calls.size(), kMaxInFlightCalls);
  EXPECT_EQ(look.calls.front().start_mono_ns, 1u);
  EXPECT_EQ(look.calls.back().start_mono_ns, kMaxInFlightCalls);
  EXPECT_EQ(look.truncated_count, 7u);
}

TEST(DecodeRecord, RefusesEveryShorterLength) {
  for (const auto& whole : {bytes_of(make_slow_call()), bytes_of(make_handle_name("k"))}) {
    for (size_t length = 0; length < whole.size(); ++length) {
      const auto decoded = decode_record(std::span(whole).first(length));
      EXPECT_TRUE(absl::IsInvalidArgument(decoded.status())) << length;
    }
  }
}

TEST(DecodeRecord, RefusesALengthFieldShorterThanTheKind) {
  auto record = make_slow_call();
  record.header.length_bytes = 40;

  EXPECT_TRUE(absl::IsInvalidArgument(decode_record(bytes_of(record)).status()));
}

TEST(DecodeRecord, RefusesAHeaderAloneOfEveryKindOfTheRings) {
  for (uint32_t kind = 1; kind < GPUPERF_RECORD_KINDS; ++kind) {
    if (kind == GPUPERF_RECORD_SLOW_IN_FLIGHT || kind == GPUPERF_RECORD_ALARM) continue;
    const gpuperf_record header{.kind = kind, .length_bytes = sizeof header};

    EXPECT_TRUE(absl::IsInvalidArgument(decode_record(bytes_of(header)).status())) << kind;
  }
}

TEST(DecodeRecord, ReadsEveryFieldOfAThreadsTime) {
  gpuperf_thread_time record{};
  record.header = {GPUPERF_RECORD_THREAD_TIME, sizeof record};
  record.start_mono_ns = 1000;
  record.blocked_ns = 500;
  record.throttled_ns = 40;
  record.runnable_ns = 3;
  record.stack_id = 0xaaa;
  record.process_start_boot_ns = 77;
  record.pid = 41;
  record.tid = 42;
  record.kind = GPUPERF_WAIT_SLEEP;
  record.waker_pid = 43;
  record.waker_tid = 44;

  const auto decoded = decode_record(bytes_of(record));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(std::get<TraceThreadTime>(*decoded), (TraceThreadTime{.start_mono_ns = 1000,
                                                                  .blocked_ns = 500,
                                                                  .throttled_ns = 40,
                                                                  .runnable_ns = 3,
                                                                  .stack_id = 0xaaa,
                                                                  .process = {41, 77},
                                                                  .tid = 42,
                                                                  .kind = GPUPERF_WAIT_SLEEP,
                                                                  .waker_pid = 43,
                                                                  .waker_tid = 44}));
  record.is_tick = 1;  // of which there are fewer kinds
  EXPECT_FALSE(decode_record(bytes_of(record)).ok());
  record.kind = GPUPERF_TICK_FAULT;
  EXPECT_TRUE(decode_record(bytes_of(record)).ok());
}

TEST(DecodeRecord, ReadsEveryFieldOfAReportedCall) {
  gpuperf_reported_call record{};
  record.header = {GPUPERF_RECORD_REPORTED_CALL, sizeof record};
  record.start_mono_ns = 1000;
  record.duration_ns = 500;
  record.process_start_boot_ns = 77;
  record.values[1] = 4096;
  record.result = 0x7f0000000000;
  record.return_value = 2;
  record.stack_id = 0xaaa;
  record.pid = 41;
  record.tid = 42;
  record.function_id = 7;
  record.values_unread = 4;
  record.depth = 1;
  record.outermost = 6;
  ReportedCall expected{.start_mono_ns = 1000,
                        .duration_ns = 500,
                        .process = {41, 77},
                        .tid = 42,
                        .function_id = 7,
                        .result = 0x7f0000000000,
                        .stack_id = 0xaaa,
                        .depth = 1,
                        .outermost_id = 6};

  auto decoded = decode_record(bytes_of(record));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(std::get<ReportedCall>(*decoded), expected);

  record.has_values = 1;
  record.has_return_value = 1;
  expected.values = {.values = {0, 4096}, .unread = 4};
  expected.return_value = 2;
  decoded = decode_record(bytes_of(record));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(std::get<ReportedCall>(*decoded), expected);
}

TEST(DecodeRecord, ReadsEveryFieldOfAnOperator) {
  gpuperf_operator_call record{};
  record.header = {GPUPERF_RECORD_OPERATOR_CALL, sizeof record};
  record.start_mono_ns = 1000;
  record.process_start_boot_ns = 77;
  record.lost = 9;
  record.pid = 41;
  record.tid = 42;
  record.function_id = 7;
  record.layout = 2;
  record.operation = 30;
  std::memcpy(record.name, "ffn_up-3", 9);

  const auto decoded = decode_record(bytes_of(record));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  const auto& call = std::get<ReportedCall>(*decoded);
  EXPECT_EQ(call.start_mono_ns, 1000u);
  EXPECT_EQ(call.process, (ProcessKey{41, 77}));
  EXPECT_EQ(call.tid, 42u);
  EXPECT_EQ(call.function_id, 7u);
  ASSERT_NE(call.operator_call, nullptr);
  EXPECT_EQ(*call.operator_call,
            (OperatorCall{.layout = 2, .operation = 30, .name = "ffn_up-3", .lost = 9}));
  EXPECT_EQ(call.routing, nullptr);
}

TEST(DecodeRecord, ReadsTheExpertsOfTheTokensThatWereRead) {
  gpuperf_routing record{};
  record.header = {GPUPERF_RECORD_ROUTING, sizeof record};
  record.process_start_boot_ns = 77;
  record.tokens = 100;
  record.pid = 41;
  record.tid = 42;
  record.function_id = 7;
  record.experts_per_token = 2;
  record.read_tokens = 3;
  record.expert_count = 8;
  std::memcpy(record.name, "ffn_moe_down-3", 15);
  for (int i = 0; i < 3; ++i) {
    record.experts[i][0] = i;
    record.experts[i][1] = 7;
    record.experts[i][2] = 99;  // left over from another record
  }

  const auto decoded = decode_record(bytes_of(record));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  const auto& call = std::get<ReportedCall>(*decoded);
  EXPECT_EQ(call.process, (ProcessKey{41, 77}));
  ASSERT_NE(call.routing, nullptr);
  EXPECT_EQ(*call.routing, (Routing{.name = "ffn_moe_down-3",
                                    .tokens = 100,
                                    .read_tokens = 3,
                                    .expert_count = 8,
                                    .experts = {0, 7, 1, 7, 2, 7}}));

  record.read_tokens = GPUPERF_ROUTED_TOKENS + 1;
  EXPECT_TRUE(absl::IsInvalidArgument(decode_record(bytes_of(record)).status()));
  record.read_tokens = 1;
  record.experts_per_token = GPUPERF_ROUTED_EXPERTS + 1;
  EXPECT_TRUE(absl::IsInvalidArgument(decode_record(bytes_of(record)).status()));
}

TEST(DecodeRecord, ReadsPartsOfResponses) {
  gpuperf_response_part record{};
  record.header = {GPUPERF_RECORD_RESPONSE_PART, sizeof record};
  record.mono_ns = 1'000;
  record.process_start_boot_ns = 77;
  record.connection = 0xffff888000000040;
  record.request_start_mono_ns = 800;
  record.request_end_mono_ns = 900;
  record.bytes = 120;
  record.pid = 41;
  record.tid = 42;
  record.session = 30;
  record.flags = GPUPERF_RESPONSE_BEGINS;

  const auto decode = [&record] {
    const auto decoded = decode_record(bytes_of(record));
    EXPECT_TRUE(decoded.ok()) << decoded.status();
    return std::get<ResponsePart>(*decoded);
  };
  EXPECT_EQ(decode(), (ResponsePart{.mono_ns = 1'000,
                                    .process = {41, 77},
                                    .tid = 42,
                                    .session = 30,
                                    .connection = 0xffff888000000040,
                                    .request_start_mono_ns = 800,
                                    .request_end_mono_ns = 900,
                                    .bytes = 120,
                                    .begins = true,
                                    .has_body = true}));
  record.flags |= GPUPERF_RESPONSE_HEAD;
  EXPECT_FALSE(decode().has_body);
  record.flags = GPUPERF_RESPONSE_ENDS;
  EXPECT_TRUE(decode().ends);
  EXPECT_TRUE(decode().has_body);
  record.bytes = 5;  // the last chunk alone
  EXPECT_FALSE(decode().has_body);
  record.flags = GPUPERF_RESPONSE_CLOSED;
  EXPECT_TRUE(decode().is_closed);
  EXPECT_FALSE(decode().has_body);

  record.header.length_bytes = sizeof record - 8;
  EXPECT_TRUE(absl::IsInvalidArgument(decode_record(bytes_of(record)).status()));
}

TEST(DecodeThreadCosts, ReadsEveryField) {
  const gpuperf_thread_cost record{
      .process_start_boot_ns = 5, .cost_ns = 700, .pid = 71, .tid = 72};
  EXPECT_EQ(decode_thread_costs({&record, 1}),
            (ThreadCosts{.threads = {{.process = {71, 5}, .tid = 72, .cost_ns = 700}}}));
}

TEST(DecodeRecord, AnAlarmIsAHeaderAlone) {
  gpuperf_record alarm{.kind = GPUPERF_RECORD_ALARM, .length_bytes = sizeof alarm};
  const auto decoded = decode_record(bytes_of(alarm));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_TRUE(std::holds_alternative<CallsAlarm>(*decoded));

  alarm.length_bytes = 4;
  EXPECT_TRUE(absl::IsInvalidArgument(decode_record(bytes_of(alarm)).status()));
}

TEST(DecodeRecord, TellsAnUnknownKindApart) {
  auto record = make_slow_call();
  for (const uint32_t kind : {uint32_t{0}, uint32_t{GPUPERF_RECORD_SLOW_IN_FLIGHT},
                              uint32_t{GPUPERF_RECORD_KINDS}, uint32_t{4711}, UINT32_MAX}) {
    record.header.kind = kind;

    EXPECT_TRUE(absl::IsUnimplemented(decode_record(bytes_of(record)).status())) << kind;
  }
}

gpuperf_stack make_stack() {
  gpuperf_stack record{};
  record.kind = GPUPERF_RECORD_STACK;
  record.length_bytes = sizeof record;
  record.stack_id = 0x51;
  record.process_start_boot_ns = 77;
  record.pid = 41;
  record.space = 6;
  record.frame_count = 66;
  record.end = GPUPERF_STACK_CUT;
  record.python_is_cut = 1;
  record.python_count = 1;
  record.bp = 0xb0;
  record.exact_frames[1] = 2;  // the last one
  for (uint64_t i = 0; i < record.frame_count; ++i) record.frames[i] = {0x1000 + i, 0x2000 + i};
  record.python[0] = {.code = 0xc0, .entry_sp = 0xe0, .instruction_bytes = 6, .first_line = 7};
  return record;
}

TEST(DecodeRecord, ReadsEveryFieldOfAStack) {
  const auto decoded = decode_record(bytes_of(make_stack()));

  ASSERT_TRUE(decoded.ok()) << decoded.status();
  RawStack expected{
      .id = 0x51,
      .process = {41, 77},
      .space = 6,
      .end = StackEnd::kCut,
      .bp = 0xb0,
      .python = {{.code = 0xc0, .entry_sp = 0xe0, .instruction_bytes = 6, .first_line = 7}},
      .python_is_cut = true};
  for (uint64_t i = 0; i < 66; ++i) {
    expected.frames.push_back({.pc = 0x1000 + i, .sp = 0x2000 + i, .is_exact = i == 65});
  }
  EXPECT_EQ(std::get<RawStack>(*decoded), expected);
}

TEST(DecodeRecord, TakesAStackThatEndsBehindItsPythonFrames) {
  auto record = make_stack();
  record.length_bytes = offsetof(gpuperf_stack, python) + sizeof(gpuperf_python_frame);
  auto bytes = bytes_of(record);
  bytes.resize(record.length_bytes);

  const auto decoded = decode_record(bytes);

  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(std::get<RawStack>(*decoded).python.size(), 1u);
}

TEST(DecodeRecord, RefusesAStackThatClaimsMoreThanItHolds) {
  auto short_python = make_stack();
  short_python.python_count = 2;
  auto short_bytes = bytes_of(short_python);
  short_bytes.resize(offsetof(gpuperf_stack, python) + sizeof(gpuperf_python_frame));
  std::memcpy(short_bytes.data() + offsetof(gpuperf_stack, length_bytes), "\x60\x08\0\0", 4);
  auto many_frames = make_stack();
  many_frames.frame_count = GPUPERF_STACK_FRAMES + 1;
  auto unknown_end = make_stack();
  unknown_end.end = GPUPERF_STACK_BROKEN + 1;

  EXPECT_TRUE(absl::IsInvalidArgument(decode_record(short_bytes).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(decode_record(bytes_of(many_frames)).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(decode_record(bytes_of(unknown_end)).status()));
}

TEST(DecodeRecord, ReadsTheMemoryBehindAStack) {
  const auto record = std::make_unique<gpuperf_stack_copy>();
  record->stack = make_stack();
  record->stack.kind = GPUPERF_RECORD_STACK_COPY;
  record->stack.length_bytes = sizeof *record;
  record->return_count = GPUPERF_REPLACED_RETURNS + 5;  // more than there can be
  record->returns[0] = {.sp = 0x70, .address = 0x71};
  record->address = 0x7000;
  record->copy_bytes = 4097;
  record->present_pages = 6;
  record->copy[1] = 9;

  const auto decoded = decode_record(bytes_of(*record));

  ASSERT_TRUE(decoded.ok()) << decoded.status();
  const RawStack& stack = std::get<RawStack>(*decoded);
  ASSERT_TRUE(stack.copy);
  ASSERT_EQ(stack.copy->memory.size(), 1u);
  const StackMemory& memory = stack.copy->memory[0];
  EXPECT_EQ(memory.address, 0x7000u);
  ASSERT_EQ(memory.bytes.size(), 4097u);
  EXPECT_EQ(memory.bytes[1], std::byte{9});
  EXPECT_EQ(memory.is_present, (std::vector{false, true}));
  ASSERT_EQ(stack.copy->returns.size(), size_t{GPUPERF_REPLACED_RETURNS});
  EXPECT_EQ(stack.copy->returns[0], (ReplacedReturn{.sp = 0x70, .address = 0x71}));
}

TEST(DecodeRecord, TakesNamesWithoutAnEnd) {
  auto record = make_slow_call();
  std::memset(record.comm, 'x', sizeof record.comm);

  EXPECT_EQ(std::get<SlowCallEvent>(*decode_record(bytes_of(record))).comm, std::string(16, 'x'));
}

}  // namespace
}  // namespace gpuperf
