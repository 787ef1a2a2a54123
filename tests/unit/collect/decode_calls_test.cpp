#include "daemon/collect/decode_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
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
  record.stack_bytes = 2 * sizeof(uint64_t);
  record.user_stack[0] = 0xaaa;
  record.user_stack[1] = 0xbbb;
  record.user_stack[2] = 0xdead;  // beyond stack_bytes
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
                           .user_stack = {0xaaa, 0xbbb}}));
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

TEST(DecodeRecord, TellsAnUnknownKindApart) {
  auto record = make_slow_call();
  record.header.kind = 4711;

  EXPECT_TRUE(absl::IsUnimplemented(decode_record(bytes_of(record)).status()));
}

TEST(DecodeRecord, KeepsAStackLengthOutOfRangeWithinTheRecord) {
  auto record = make_slow_call();
  record.stack_bytes = 1 << 30;
  const auto long_stack = decode_record(bytes_of(record));
  record.stack_bytes = -14;
  const auto failed_stack = decode_record(bytes_of(record));

  EXPECT_EQ(std::get<SlowCallEvent>(*long_stack).user_stack.size(), GPUPERF_STACK_FRAMES);
  EXPECT_THAT(std::get<SlowCallEvent>(*failed_stack).user_stack, testing::IsEmpty());
}

TEST(DecodeRecord, TakesNamesWithoutAnEnd) {
  auto record = make_slow_call();
  std::memset(record.comm, 'x', sizeof record.comm);

  EXPECT_EQ(std::get<SlowCallEvent>(*decode_record(bytes_of(record))).comm, std::string(16, 'x'));
}

TEST(DecodeRecord, SurvivesRandomBytes) {
  const unsigned seed = std::random_device{}();
  RecordProperty("seed", static_cast<int>(seed));
  std::mt19937 random(seed);
  const std::vector<std::byte> kinds[] = {bytes_of(make_slow_call()),
                                          bytes_of(make_handle_name("_Z4gemmv"))};

  for (int round = 0; round < 20000; ++round) {
    auto bytes = kinds[round % 2];
    for (int flips = 0; flips < 8; ++flips) bytes[random() % bytes.size()] = std::byte(random());
    bytes.resize(random() % (bytes.size() + 1));
    const auto decoded = decode_record(bytes);
    if (!decoded.ok()) continue;
    if (const auto* call = std::get_if<SlowCallEvent>(&*decoded)) {
      ASSERT_LE(call->user_stack.size(), GPUPERF_STACK_FRAMES) << "seed " << seed;
    }
    if (const auto* named = std::get_if<HandleNamed>(&*decoded)) {
      ASSERT_LE(named->name.size(), GPUPERF_HANDLE_NAME_BYTES) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace gpuperf
