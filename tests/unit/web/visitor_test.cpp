#include "daemon/web/visitor.h"

#include <gtest/gtest.h>

namespace gpuperf {
namespace {

HttpRequest make_request(const std::string& peer, const std::string& host) {
  return {.header_lines = "Host: " + host + "\r\n", .peer_address = peer};
}

TEST(VisitorTest, ComesFromThisHost) {
  for (const char* peer : {"127.0.0.1", "127.8.0.1", "::1", "::ffff:127.0.0.1"}) {
    EXPECT_FALSE(check_visitor(make_request(peer, "127.0.0.1:9465"))) << peer;
  }
  for (const char* peer : {"", "10.0.0.7", "::ffff:10.0.0.7", "fe80::1", "localhost.example"}) {
    const auto refusal = check_visitor(make_request(peer, "127.0.0.1:9465"));
    ASSERT_TRUE(refusal) << peer;
    EXPECT_EQ(refusal->status, 403) << peer;
  }
}

TEST(VisitorTest, UsesANameOfThisHost) {
  for (const char* host :
       {"127.0.0.1", "127.0.0.1:9465", "localhost", "localhost:8080", "[::1]", "[::1]:9465"}) {
    EXPECT_FALSE(check_visitor(make_request("127.0.0.1", host))) << host;
  }
  for (const char* host : {"", "example.com", "localhost.example.com", "127.0.0.1.example.com:80",
                           "10.0.0.7:9465", "[::2]:9465", "localhost@example.com"}) {
    const auto refusal = check_visitor(make_request("127.0.0.1", host));
    ASSERT_TRUE(refusal) << host;
    EXPECT_EQ(refusal->status, 421) << host;
  }
}

}  // namespace
}  // namespace gpuperf
