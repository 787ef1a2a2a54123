#include "daemon/export/http.h"

#include <httplib.h>
#include <sys/socket.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/work_watch.h"
#include "daemon/export/prometheus.h"
#include "tests/unit/export/http_client.h"
#include "tests/unit/export/snapshot_builder.h"
#include "tests/unit/matchers.h"

namespace gpuperf {
namespace {

using testing::HttpClient;
using testing::SnapshotBuilder;
using testing::wait_for;

// Descriptor of this process that listens on `port`, -1 without one.
int find_listening_fd(uint16_t port) {
  for (int fd = 3; fd < 1024; ++fd) {
    int listening = 0;
    socklen_t length = sizeof listening;
    sockaddr_in address{};
    socklen_t address_length = sizeof address;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) == 0 && listening == 1 &&
        getsockname(fd, reinterpret_cast<sockaddr*>(&address), &address_length) == 0 &&
        address.sin_family == AF_INET && ntohs(address.sin_port) == port) {
      return fd;
    }
  }
  return -1;
}

class HttpTest : public ::testing::Test {
 protected:
  void start(std::string_view listen = "127.0.0.1:0") {
    auto started = start_server(listen);
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = std::move(started).value();
    client_ = std::make_unique<httplib::Client>(server_->address().host, server_->address().port);
  }
  Result<std::unique_ptr<HttpServer>> start_server(std::string_view listen) {
    return HttpServer::start(listen, {.metrics = metrics_, .board = board_, .drops = drops_});
  }
  httplib::Response get(const std::string& path) {
    const httplib::Result result = client_->Get(path);
    return result ? *result : httplib::Response();
  }

  SnapshotBoard board_;
  DropCounters drops_;
  PrometheusMetrics metrics_{board_, drops_, 100, 100};
  std::unique_ptr<HttpServer> server_;
  std::unique_ptr<httplib::Client> client_;
};

TEST_F(HttpTest, ServesMetrics) {
  board_.publish(SnapshotBuilder().build());
  start();

  const httplib::Response response = get("/metrics");

  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.get_header_value("Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(response.body, render_metrics_text(metrics_));
}

TEST_F(HttpTest, ServesOpenMetricsToWhoAcceptsThem) {
  board_.publish(SnapshotBuilder().build());
  start();
  const char* const kAccept =
      "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";

  for (const char* encoding : {"identity", "gzip"}) {
    const httplib::Result result =
        client_->Get("/metrics", {{"Accept", kAccept}, {"Accept-Encoding", encoding}});

    ASSERT_TRUE(result);
    EXPECT_EQ(result->get_header_value("Content-Type"),
              "application/openmetrics-text; version=1.0.0; charset=utf-8");
    EXPECT_EQ(result->body, render_metrics_text(metrics_, MetricsFormat::kOpenMetrics));
    EXPECT_TRUE(result->body.ends_with("\n# EOF\n"));
  }
}

TEST_F(HttpTest, CompressesMetricsForWhoAcceptsThat) {
  board_.publish(SnapshotBuilder().build());
  start();

  const httplib::Result result = client_->Get("/metrics", {{"Accept-Encoding", "gzip"}});

  ASSERT_TRUE(result);
  EXPECT_EQ(result->get_header_value("Content-Encoding"), "gzip");
  EXPECT_EQ(result->body, render_metrics_text(metrics_));  // as the client unpacks it
}

TEST_F(HttpTest, CompressesMoreThanItsBuffersHold) {
  class Large final : public prometheus::Collectable {
   public:
    std::vector<prometheus::MetricFamily> Collect() const override {
      prometheus::MetricFamily family{"name", std::string(300'000, 'h'), {}, {}};
      return std::vector<prometheus::MetricFamily>(10, family);
    }
  } large;
  auto server = HttpServer::start("127.0.0.1:0", {large, board_, drops_});
  ASSERT_TRUE(server.ok()) << server.status();
  httplib::Client client((*server)->address().host, (*server)->address().port);

  const httplib::Result result = client.Get("/metrics", {{"Accept-Encoding", "gzip"}});

  ASSERT_TRUE(result);
  EXPECT_EQ(result->body, render_metrics_text(large));
  EXPECT_LT(std::stoi(result->get_header_value("Content-Length")), 100'000);
}

TEST_F(HttpTest, AnswersHeadWithoutABody) {
  start();

  for (const char* path : {"/metrics", "/healthz", "/"}) {
    const httplib::Result result = client_->Head(path);
    ASSERT_TRUE(result) << path;
    EXPECT_EQ(result->status, 200) << path;
    EXPECT_EQ(result->body, "") << path;
    EXPECT_NE(result->get_header_value("Content-Length"), "0") << path;
  }
}

TEST_F(HttpTest, ServesAnIndexOfItsPaths) {
  start();

  const httplib::Response response = get("/");

  EXPECT_EQ(response.status, 200);
  EXPECT_THAT(response.body, HasSubstr("/metrics"));
}

TEST_F(HttpTest, NamesItsPathsWhenAskedForAnother) {
  start();

  const httplib::Response response = get("/metricz");
  const httplib::Result posted = client_->Post("/metrics", "x=1", "text/plain");

  EXPECT_EQ(response.status, 404);
  EXPECT_EQ(response.body,
            "not found: gpuperfd serves /metrics, /healthz and /readyz (GET, HEAD)\n");
  ASSERT_TRUE(posted);
  EXPECT_EQ(posted->status, 404);
}

TEST_F(HttpTest, IsHealthyAndNotReadyBeforeTheFirstSnapshot) {
  start();

  EXPECT_EQ(get("/healthz").status, 200);
  const httplib::Response ready = get("/readyz");
  EXPECT_EQ(ready.status, 503);
  EXPECT_EQ(ready.body, "starting: nothing has been read yet\n");
}

TEST_F(HttpTest, SaysWhyItIsNotReady) {
  SnapshotBuilder builder;
  builder.probes() = {.mechanism = "none",
                      .problems = {{"probes", "load: not permitted", "run as root"},
                                   {"discovery", "no /proc", ""}}};
  board_.publish(builder.build());
  start();

  const httplib::Response ready = get("/readyz");

  EXPECT_EQ(ready.status, 503);
  EXPECT_EQ(ready.body, "probes: load: not permitted (run as root)\ndiscovery: no /proc\n");
}

TEST_F(HttpTest, IsReadyOnceProbesCanBeAttached) {
  SnapshotBuilder builder;
  builder.probes().problems = {{"probes", "libfoo.so: no such symbol", ""}};
  board_.publish(builder.build());
  start();

  EXPECT_EQ(get("/readyz").status, 200);
}

TEST_F(HttpTest, IsNotReadyWhileAThreadHangs) {
  board_.publish(SnapshotBuilder().build());
  start();
  std::optional<Work> work(std::in_place, "resolve", std::chrono::seconds(0));

  const httplib::Response hanging = get("/readyz");
  work.reset();

  EXPECT_EQ(hanging.status, 503);
  EXPECT_EQ(hanging.body, "thread resolve: at one piece of work for 0 s\n");
  EXPECT_EQ(get("/readyz").status, 200);
}

TEST_F(HttpTest, ListensOnIpv6) {
  if (!check_listenable({"::1", 0}).ok()) GTEST_SKIP() << "this host has no IPv6 loopback";
  start("[::1]:0");

  EXPECT_EQ(get("/healthz").body, "ok\n");
}

TEST_F(HttpTest, RefusesAnAddressInUseAndNamesIt) {
  start();
  const std::string address = format_host_port(server_->address());

  const auto second = start_server(address);

  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr("metrics.listen: " + address + ": listen: address in use"));
}

TEST_F(HttpTest, RefusesAnAddressItCannotRead) {
  const auto server = start_server("9465");

  ASSERT_FALSE(server.ok());
  EXPECT_THAT(std::string(server.status().message()),
              HasSubstr("metrics.listen: address \"9465\""));
}

TEST_F(HttpTest, FreesItsPortWhenStopped) {
  start();
  const HostPort address = server_->address();

  server_->stop();
  server_->stop();

  EXPECT_TRUE(check_listenable(address).ok());
}

TEST_F(HttpTest, CanBeStoppedAtOnce) {
  for (int i = 0; i < 200; ++i) {
    auto server = start_server("127.0.0.1:0");
    ASSERT_TRUE(server.ok()) << server.status();
    (*server)->stop();
  }
}

TEST_F(HttpTest, StopsAtOnceWhileClientsSayNothing) {
  start();
  std::vector<HttpClient> silent;
  for (int i = 0; i < 48; ++i) silent.emplace_back(server_->address());
  const auto begin = std::chrono::steady_clock::now();

  server_->stop();

  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  for (HttpClient& client : silent) EXPECT_EQ(client.take_all(), "");
}

TEST_F(HttpTest, ServesWhile500ClientsSayNothing) {
  start();
  std::vector<HttpClient> silent;
  for (int i = 0; i < 500; ++i) silent.emplace_back(server_->address());

  EXPECT_EQ(get("/healthz").status, 200);
}

TEST_F(HttpTest, SurvivesNonsense) {
  start();
  for (const std::string& text :
       {std::string("\0\0\0\0\r\n\r\n", 8), std::string("GET\r\n\r\n"), std::string(20'000, 'a')}) {
    HttpClient client(server_->address());
    (void)client.send(text);
    (void)shutdown(client.fd(), SHUT_WR);
    (void)client.take_all();
  }

  EXPECT_EQ(get("/healthz").status, 200);
}

TEST_F(HttpTest, ListensAgainAfterAcceptingFailed) {
  start();
  ASSERT_EQ(get("/healthz").status, 200);
  const int listening_fd = find_listening_fd(server_->address().port);
  ASSERT_GE(listening_fd, 0);

  ASSERT_EQ(shutdown(listening_fd, SHUT_RDWR), 0);  // accept fails from here on

  EXPECT_TRUE(wait_for([&] { return get("/healthz").status == 200; }));
}

}  // namespace
}  // namespace gpuperf
