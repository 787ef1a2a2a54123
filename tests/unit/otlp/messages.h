#pragma once

// Messages as text, so that tests compare whole ones.

#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <string>

namespace gpuperf::otlp::testing {

template <typename Message>
Message parse_bytes(const std::string& bytes) {
  Message message;
  EXPECT_TRUE(message.ParseFromString(bytes));
  return message;
}

// Whether `message` is what `text` says in protobuf's text format, all of it.
template <typename Message>
::testing::AssertionResult is_message(const Message& message, const std::string& text) {
  Message expected;
  if (!google::protobuf::TextFormat::ParseFromString(text, &expected)) {
    return ::testing::AssertionFailure() << "the expected text is no message";
  }
  if (google::protobuf::util::MessageDifferencer::Equals(expected, message)) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << "is:\n" << message.DebugString();
}

}  // namespace gpuperf::otlp::testing
