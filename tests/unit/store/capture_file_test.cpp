#include "daemon/store/capture_file.h"

#include <chrono>

#include "gpuperf/v1/stored_capture.pb.h"
#include "tests/unit/matchers.h"
#include "tests/unit/store/random_capture.h"

namespace gpuperf {
namespace {

using testing::RandomCapture;

constexpr testing::CaptureSizes kSmall = {
    .calls = 3, .launches = 4, .work = 5, .waits = 2, .gaps = 2, .names = 3};

std::string encode(const Capture& capture) {
  const auto bytes = encode_capture(capture, {});
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  return bytes.value_or("");
}

// With a checksum that fits: only then is the rest looked at.
std::string sign(std::string bytes) { return bytes + make_capture_trailer(bytes); }

std::string cut_trailer(const std::string& bytes) {
  return bytes.substr(0, bytes.size() - kCaptureTrailerBytes);
}

// What a reader of damaged bytes promises: an error, or a capture all of whose indices are good.
void expect_harmless(const std::string& bytes) {
  const Result<Capture> read = decode_capture(bytes);
  if (read.ok()) {
    EXPECT_TRUE(check_capture(*read).ok());
  } else {
    EXPECT_EQ(read.status().code(), absl::StatusCode::kDataLoss) << read.status();
  }
}

TEST(CaptureFileTest, GivesBackWhatItWasGiven) {
  const Capture capture = RandomCapture(1).make({.calls = 50'000,
                                                 .launches = 40'000,
                                                 .work = 70'000,
                                                 .waits = 20'000,
                                                 .gaps = 30,
                                                 .names = 300});

  const auto read = decode_capture(encode(capture));

  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(*read == capture);
}

TEST(CaptureFileTest, GivesBackAnEmptyCapture) {
  const Capture capture = {.id = 1};

  const auto read = decode_capture(encode(capture));

  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(*read == capture);
}

TEST(CaptureFileTest, KeepsTextsThatAreNotUtf8) {
  Capture capture = RandomCapture(2).make(kSmall);
  capture.name = "run \xff";
  capture.trigger = "\xfe";
  capture.host = "\xfd";

  const auto read = decode_capture(encode(capture));

  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(*read == capture);
}

TEST(CaptureFileTest, IsOneMessageThatProtobufReads) {
  const Capture capture = RandomCapture(3).make(kSmall);
  v1::StoredCapture message;

  ASSERT_TRUE(message.ParseFromString(encode(capture)));

  EXPECT_EQ(message.head().capture().id(), capture.id);
  ASSERT_EQ(message.work_size(), 1);
  EXPECT_EQ(message.work(0).duration_ns_size(), 5);
  EXPECT_NE(message.crc32(), 0u);
}

TEST(CaptureFileTest, HoldsAMillionPiecesOfWorkInLittleSpace) {
  const Capture capture = RandomCapture(4).make({.calls = 100'000,
                                                 .launches = 1'000'000,
                                                 .work = 1'000'000,
                                                 .waits = 10'000,
                                                 .gaps = 3,
                                                 .names = 2'000});
  const auto begin = std::chrono::steady_clock::now();

  const std::string bytes = encode(capture);
  const auto written = std::chrono::steady_clock::now();
  const auto read = decode_capture(bytes);
  const auto end = std::chrono::steady_clock::now();

  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(*read == capture);
  EXPECT_LT(bytes.size(), size_t{45} << 20);
  const auto to_ms = [](auto duration) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
  };
  RecordProperty("bytes", std::to_string(bytes.size()));
  RecordProperty("write_ms", std::to_string(to_ms(written - begin)));
  RecordProperty("read_ms", std::to_string(to_ms(end - written)));
  std::printf("%zu bytes, written in %ld ms, read in %ld ms\n", bytes.size(),
              static_cast<long>(to_ms(written - begin)), static_cast<long>(to_ms(end - written)));
}

TEST(CaptureFileTest, ReadsTheHeadFromTheBeginningAlone) {
  const Capture capture = RandomCapture(5).make(kSmall);
  const CaptureRow row = {.id = capture.id,
                          .name = capture.name,
                          .trigger = capture.trigger,
                          .target = {.pid = 3, .with_children = true, .container = "", .pod = "p"},
                          .state = CaptureState::kStored,
                          .problem = "",
                          .start_unix_ns = capture.start_unix_ns,
                          .duration_ns = capture.duration_ns,
                          .events = 6,
                          .lost_events = 7,
                          .launches = 8,
                          .work = 9,
                          .work_matched = 10,
                          .ambiguous = 11,
                          .stored_bytes = 0,
                          .requester_uid = 1000};
  const auto bytes = encode_capture(capture, row);
  ASSERT_TRUE(bytes.ok());

  const auto head = decode_capture_head(bytes->substr(0, 400));

  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_TRUE(head->row == row);
  EXPECT_TRUE(head->matches == capture.matches);
}

TEST(CaptureFileTest, RefusesAFileOfEveryOtherLength) {
  const std::string bytes = encode(RandomCapture(6).make(kSmall));

  for (size_t length = 0; length < bytes.size(); ++length) {
    const auto read = decode_capture(bytes.substr(0, length));
    EXPECT_EQ(read.status().code(), absl::StatusCode::kDataLoss) << length;
    expect_harmless(sign(bytes.substr(0, length)));
  }
  EXPECT_EQ(decode_capture(bytes + "x").status().code(), absl::StatusCode::kDataLoss);
}

TEST(CaptureFileTest, NoticesEveryFlippedBit) {
  const std::string bytes = encode(RandomCapture(7).make(kSmall));

  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string changed = bytes;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ 1 << bit % 8);
    EXPECT_EQ(decode_capture(changed).status().code(), absl::StatusCode::kDataLoss) << bit;
    expect_harmless(sign(cut_trailer(changed)));
  }
}

TEST(CaptureFileTest, RefusesAnIndexThatNamesNothing) {
  Capture capture = RandomCapture(9).make(kSmall);
  v1::StoredCapture message;
  ASSERT_TRUE(message.ParseFromString(encode(capture)));
  message.clear_crc32();
  message.mutable_work(0)->set_kernel(2, 4);  // three there are, numbered from one

  const auto read = decode_capture(sign(message.SerializeAsString()));

  EXPECT_EQ(read.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(read.status().message()), HasSubstr("kernel of work of row 2: 3 of 3"));
}

TEST(CaptureFileTest, RefusesColumnsOfDifferentLengths) {
  v1::StoredCapture message;
  ASSERT_TRUE(message.ParseFromString(encode(RandomCapture(10).make(kSmall))));
  message.clear_crc32();
  message.mutable_launches(0)->add_duration_ns(5);

  const auto read = decode_capture(sign(message.SerializeAsString()));

  EXPECT_THAT(std::string(read.status().message()), HasSubstr("columns of different lengths"));
}

TEST(CaptureFileTest, RefusesAnOperationInsideItself) {
  v1::StoredCapture message;
  ASSERT_TRUE(message.ParseFromString(encode(RandomCapture(11).make(kSmall))));
  message.clear_crc32();
  for (v1::StoredTables& tables : *message.mutable_tables()) {
    if (tables.operation_parent_size() > 1) tables.set_operation_parent(1, 2);  // itself
  }

  EXPECT_EQ(decode_capture(sign(message.SerializeAsString())).status().code(),
            absl::StatusCode::kDataLoss);
}

TEST(CaptureFileTest, RefusesToMakeMuchOfLittle) {
  v1::StoredCapture message;
  ASSERT_TRUE(message.ParseFromString(encode(Capture{.id = 1})));
  message.clear_crc32();
  message.mutable_head()->mutable_counts()->set_work(kMaxCaptureEvents);
  EXPECT_THAT(std::string(decode_capture(sign(message.SerializeAsString())).status().message()),
              HasSubstr("more rows than bytes"));

  // One long text, named by a great many.
  message.mutable_head()->clear_counts();
  message.add_texts()->add_text(std::string(kMaxCaptureTextBytes, 'x'));
  for (int piece = 0; piece < 3; ++piece) {
    v1::StoredTables& tables = *message.add_tables();
    for (int i = 0; i < 16'000; ++i) {
      tables.add_function_category(1);
      tables.add_function_name(1);
    }
  }
  EXPECT_THAT(std::string(decode_capture(sign(message.SerializeAsString())).status().message()),
              HasSubstr("a text that is not there, or too much text"));
}

TEST(CaptureFileTest, RefusesALayoutItDoesNotKnow) {
  v1::StoredCapture message;
  ASSERT_TRUE(message.ParseFromString(encode(Capture{.id = 1})));
  message.clear_crc32();
  message.mutable_head()->set_format(2);

  EXPECT_THAT(std::string(decode_capture(sign(message.SerializeAsString())).status().message()),
              HasSubstr("its layout is 2, and this gpuperfd reads 1"));
}

TEST(CaptureFileTest, ReadsPastPiecesOfLaterVersions) {
  const Capture capture = RandomCapture(12).make(kSmall);
  const std::string bytes = cut_trailer(encode(capture));

  const auto read = decode_capture(sign(bytes + "\x72\x03xyz"));  // field 14

  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(*read == capture);
}

TEST(CaptureFileTest, DoesNotWriteWhatItWouldNotRead) {
  Capture capture = RandomCapture(13).make(kSmall);
  capture.work[1].launch = 4;

  const auto bytes = encode_capture(capture, {.id = 7});

  EXPECT_EQ(bytes.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(bytes.status().message()), HasSubstr("launch of work of row 1: 4 of 4"));
}

TEST(CaptureFileTest, CutsTextsThatNobodyReads) {
  Capture capture = RandomCapture(14).make(kSmall);
  capture.kernels[0].name = std::string(kMaxCaptureTextBytes + 1, 'k');

  const auto read = decode_capture(encode(capture));

  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->kernels[0].name.size(), kMaxCaptureTextBytes);
}

}  // namespace
}  // namespace gpuperf
