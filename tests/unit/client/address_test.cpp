#include "client/address.h"
#include "tests/unit/matchers.h"

namespace gpuperf::client {
namespace {

TEST(AddressTest, ReadsSocketPathsInEveryForm) {
  EXPECT_EQ(parse_address("unix:/run/x.sock")->unix_path, "/run/x.sock");
  EXPECT_EQ(parse_address("unix:///run/x.sock")->unix_path, "/run/x.sock");
  EXPECT_EQ(parse_address("/run/x.sock")->unix_path, "/run/x.sock");
  EXPECT_EQ(parse_address("unix:x.sock")->unix_path, "x.sock");
}

TEST(AddressTest, EscapesPathsForGrpc) {
  EXPECT_EQ(parse_address("/tmp/a b%?#.sock")->grpc_target, "unix:/tmp/a%20b%25%3F%23.sock");
}

TEST(AddressTest, ReadsHostAndPort) {
  for (const char* text : {"127.0.0.1:9466", "[::1]:9466", "gpu-17.example:1"}) {
    const auto address = parse_address(text);
    ASSERT_TRUE(address.ok()) << text;
    EXPECT_EQ(address->grpc_target, text);
    EXPECT_EQ(address->unix_path, "");
  }
}

TEST(AddressTest, RefusesEverythingElse) {
  for (const char* text : {"", "unix:", "gpu-17", "host:", "host:0", "host:65536", "host:http",
                           ":9466", "http://host:9466"}) {
    const auto address = parse_address(text);
    EXPECT_EQ(address.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(address.status().message()),
                HasSubstr("write unix:/path/to/api.sock or host:port"));
  }
}

TEST(AddressTest, RefusesPathsThatNoSocketCanHave) {
  EXPECT_TRUE(parse_address("/" + std::string(106, 'x')).ok());
  EXPECT_FALSE(parse_address("/" + std::string(107, 'x')).ok());
}

}  // namespace
}  // namespace gpuperf::client
