#pragma once

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>

namespace gpuperf {

// A message from its text form; fails the test where that is wrong.
template <typename Message>
Message parse_text(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message)) << text;
  return message;
}

template <typename Message>
void expect_message(const Message& actual, const std::string& expected) {
  EXPECT_EQ(actual.DebugString(), parse_text<Message>(expected).DebugString());
}

}  // namespace gpuperf
