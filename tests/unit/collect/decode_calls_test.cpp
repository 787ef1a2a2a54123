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
  record.has_arguments = 1;
  for (uint64_t i = 0; i < GPUPERF_ARGUMENTS; ++i) record.arguments[i] = 10 + i;
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
  EXPECT_EQ(std::get<SlowCallEvent>(*decoded), (SlowCallEvent{.function_id = 3,
                                                              .process = {41, 77},
                                                              .tid = 42,
                                                              .comm = "python3",
                                                              .start_mono_ns = 1000,
                                                              .duration_ns = 2000,
                                                              .threshold_ns = 1500,
                                                              .has_arguments = true,
                                                              .arguments = {10, 11, 12, 13, 14, 15},
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

TEST(DecodeRecord, RefusesEveryShorterLength) {
  const auto whole = bytes_of(make_slow_call());

  for (size_t length = 0; length < whole.size(); ++length) {
    const auto decoded = decode_record(std::span(whole).first(length));
    EXPECT_TRUE(absl::IsInvalidArgument(decoded.status())) << length;
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
  const auto whole = bytes_of(make_slow_call());

  for (int round = 0; round < 20000; ++round) {
    auto bytes = whole;
    for (int flips = 0; flips < 8; ++flips) bytes[random() % bytes.size()] = std::byte(random());
    bytes.resize(random() % (bytes.size() + 1));
    const auto decoded = decode_record(bytes);
    if (!decoded.ok()) continue;
    if (const auto* call = std::get_if<SlowCallEvent>(&*decoded)) {
      ASSERT_LE(call->user_stack.size(), GPUPERF_STACK_FRAMES) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace gpuperf
