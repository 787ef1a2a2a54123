#include "daemon/attach/attach_message.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>

namespace gpuperf {
namespace {

std::string make_reply(const std::function<void(AttachReply&)>& change) {
  AttachReply reply{.state = AttachState::kAttached};
  change(reply);
  return std::string(reinterpret_cast<const char*>(&reply), sizeof reply);
}

TEST(AttachMessageTest, ReadsAReply) {
  const auto reply = decode_attach_reply(make_reply([](auto& made) { made.took_ns = 7; }));

  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->state, AttachState::kAttached);
  EXPECT_EQ(reply->took_ns, 7u);
}

TEST(AttachMessageTest, RefusesStatesRefusalsAndLengthsThatThereAreNot) {
  const auto state = [](auto& made) { made.state = AttachState{kAttachStates}; };
  const auto refusal = [](auto& made) { made.refusal = AttachRefusal{kAttachRefusals}; };
  const std::string whole = make_reply([](auto&) {});

  EXPECT_FALSE(decode_attach_reply(make_reply(state)));
  EXPECT_FALSE(decode_attach_reply(make_reply(refusal)));
  EXPECT_FALSE(decode_attach_reply(whole.substr(1)));
  EXPECT_FALSE(decode_attach_reply(whole + "x"));
}

TEST(AttachMessageTest, EndsTexts) {
  const auto reply = decode_attach_reply(make_reply([](auto& made) {
    std::memset(made.comm, 'c', sizeof made.comm);
    std::memset(made.text, 't', sizeof made.text);
  }));

  ASSERT_TRUE(reply);
  EXPECT_EQ(std::strlen(reply->comm), sizeof reply->comm - 1);
  EXPECT_EQ(std::strlen(reply->text), sizeof reply->text - 1);
}

}  // namespace
}  // namespace gpuperf
