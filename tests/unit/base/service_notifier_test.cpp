#include "daemon/base/service_notifier.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "daemon/base/fd.h"
#include "tests/unit/files.h"
#include "tests/unit/matchers.h"

namespace gpuperf {
namespace {

// Is the service manager.
class ServiceNotifierTest : public testing::Test {
 protected:
  ServiceNotifierTest() : socket_(socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    const std::string path = folder_ / "notify";
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    std::memcpy(address.sun_path, path.c_str(), path.size());
    EXPECT_EQ(bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    setenv("NOTIFY_SOCKET", path.c_str(), 1);
  }
  ~ServiceNotifierTest() override {
    for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) unsetenv(name);
  }

  std::vector<std::string> take_messages() const {
    std::vector<std::string> messages;
    char message[4096];
    for (ssize_t length = 0; (length = recv(socket_.get(), message, sizeof message, 0)) >= 0;) {
      messages.emplace_back(message, static_cast<size_t>(length));
    }
    return messages;
  }

  const TempFolder folder_;
  Fd socket_;
  ServiceNotifier notifier_;
};

TEST_F(ServiceNotifierTest, TellsEachStateOfTheDaemon) {
  notifier_.tell_ready();
  notifier_.tell_alive();
  notifier_.tell_stopping();

  EXPECT_THAT(take_messages(), ElementsAre("READY=1", "WATCHDOG=1", "STOPPING=1"));
}

TEST_F(ServiceNotifierTest, TellsWhenAReloadBegan) {
  notifier_.tell_reloading();

  EXPECT_THAT(take_messages(),
              ElementsAre(testing::MatchesRegex("RELOADING=1\nMONOTONIC_USEC=[1-9][0-9]*")));
}

TEST_F(ServiceNotifierTest, TellsAStatusOnceWhileItStaysTheSame) {
  notifier_.tell_status("1 probe");
  notifier_.tell_status("1 probe");
  notifier_.tell_status("2 probes");
  notifier_.tell_status("1 probe");

  EXPECT_THAT(take_messages(), ElementsAre("STATUS=1 probe", "STATUS=2 probes", "STATUS=1 probe"));
}

TEST_F(ServiceNotifierTest, MakesOneLineOfAStatus) {
  notifier_.tell_status("bad\nREADY=1\x1b[2J");

  EXPECT_THAT(take_messages(), ElementsAre("STATUS=bad READY=1 [2J"));
}

TEST_F(ServiceNotifierTest, CutsALongStatusBetweenCharacters) {
  notifier_.tell_status(std::string(499, 'x') + "\u00e9 and more");

  EXPECT_THAT(take_messages(), ElementsAre("STATUS=" + std::string(499, 'x')));
}

TEST_F(ServiceNotifierTest, IsAwaitedTwiceInTheTimeThatTheServiceManagerWaits) {
  EXPECT_EQ(ServiceNotifier::find_alive_period(), std::nullopt);

  setenv("WATCHDOG_USEC", "30000000", 1);

  EXPECT_EQ(ServiceNotifier::find_alive_period(), std::chrono::seconds(15));
  setenv("WATCHDOG_PID", "1", 1);  // meant for another process
  EXPECT_EQ(ServiceNotifier::find_alive_period(), std::nullopt);
}

TEST_F(ServiceNotifierTest, SaysNothingWhereNobodyListens) {
  unsetenv("NOTIFY_SOCKET");

  notifier_.tell_ready();
  notifier_.tell_status("1 probe");

  EXPECT_THAT(take_messages(), IsEmpty());
}

}  // namespace
}  // namespace gpuperf
