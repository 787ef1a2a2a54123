#include "daemon/base/listen_address.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include "daemon/base/fd.h"
#include "tests/unit/matchers.h"

namespace gpuperf {
namespace {

TEST(ListenAddressTest, ReadsAndWritesTheSameText) {
  const struct {
    std::string_view text;
    HostPort address;
  } cases[] = {
      {"127.0.0.1:9465", {"127.0.0.1", 9465}},
      {"localhost:0", {"localhost", 0}},
      {"[::1]:65535", {"::1", 65535}},
  };
  for (const auto& [text, address] : cases) {
    const Result<HostPort> parsed = parse_host_port(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, address);
    EXPECT_EQ(format_host_port(address), text);
  }
}

TEST(ListenAddressTest, SaysWhatIsWrongWithAText) {
  const struct {
    std::string_view text;
    std::string_view why;
  } cases[] = {
      {"", "no port"},          {"127.0.0.1", "no port"},    {":9465", "no host"},
      {"[]:1", "no host"},      {"[::1:1", "no \"]\""},      {"::1:9465", "needs brackets"},
      {"h:", "not a number"},   {"h:65536", "not a number"}, {"h:-1", "not a number"},
      {"h:1x", "not a number"},
  };
  for (const auto& [text, why] : cases) {
    const Result<HostPort> parsed = parse_host_port(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(std::string(why)));
  }
}

TEST(ListenAddressTest, KnowsLoopbackAddresses) {
  for (const char* host : {"127.0.0.1", "127.255.0.9", "::1", "localhost"}) {
    EXPECT_TRUE(is_loopback({host, 1})) << host;
  }
  for (const char* host :
       {"0.0.0.0", "::", "10.0.0.1", "128.0.0.1", "example.org", "2001:db8::1"}) {
    EXPECT_FALSE(is_loopback({host, 1})) << host;
  }
}

TEST(ListenAddressTest, SaysThatAnotherProgramListens) {
  const Fd taken(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  ASSERT_EQ(bind(taken.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(taken.get(), 1), 0);
  socklen_t length = sizeof address;
  ASSERT_EQ(getsockname(taken.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);

  const Status status = check_listenable({"127.0.0.1", ntohs(address.sin_port)});

  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()), HasSubstr("address in use"));
}

TEST(ListenAddressTest, SaysThatAnAddressIsNotOfThisHost) {
  // 192.0.2.0/24 is reserved for documentation: no host has it.
  const Status status = check_listenable({"192.0.2.1", 0});

  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("192.0.2.1:0: listen: no interface"));
}

TEST(ListenAddressTest, AcceptsAFreeAddress) {
  EXPECT_TRUE(check_listenable({"127.0.0.1", 0}).ok());
}

}  // namespace
}  // namespace gpuperf
