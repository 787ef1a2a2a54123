#pragma once

// The page on a real HTTP server, in front of a real API.

#include <httplib.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "daemon/export/http.h"
#include "daemon/export/prometheus.h"
#include "daemon/web/web_page.h"
#include "tests/unit/rpc/fake_control_port.h"
#include "tests/unit/rpc/rpc_fixture.h"

namespace gpuperf::testing {

class PageFixture : public RpcFixture {
 protected:
  ~PageFixture() override {
    if (http_ != nullptr) http_->stop();
    if (page_ != nullptr) page_->set_api(nullptr, nullptr);
  }

  void start_page() {
    control_port_ = &port_;
    start();
    std::filesystem::create_directory(folder_ / "run");
    auto page = WebPage::make({.folder = folder_ / "run"}, clock_, drops_);
    ASSERT_TRUE(page.ok()) << page.status();
    page_ = *std::move(page);
    page_->set_api(open(Caller::kOther), open(Caller::kRoot));
    auto http = HttpServer::start(
        "127.0.0.1:0",
        {.metrics = metrics_, .board = board_, .drops = drops_, .page = page_->list_routes()});
    ASSERT_TRUE(http.ok()) << http.status();
    http_ = *std::move(http);
    client_ = std::make_unique<httplib::Client>(http_->address().host, http_->address().port);
  }
  std::shared_ptr<ApiStubs> open(Caller caller) {
    return std::make_shared<ApiStubs>(server_->open_channel(caller));
  }

  static std::string read_token(const SecretFile& file) {
    std::string token;
    std::ifstream(file.path()) >> token;
    return token;
  }
  httplib::Headers reader() const { return bearer(read_token(page_->tokens().read)); }
  httplib::Headers admin() const { return bearer(read_token(page_->tokens().change)); }
  static httplib::Headers bearer(const std::string& token) {
    return {{"Authorization", "Bearer " + token}};
  }
  httplib::Response get(const std::string& path, const httplib::Headers& headers = {}) {
    const httplib::Result result = client_->Get(path, headers);
    return result ? *result : httplib::Response();
  }
  httplib::Response post(const std::string& path, const std::string& body,
                         const httplib::Headers& headers = {}) {
    const httplib::Result result = client_->Post(path, headers, body, "application/json");
    return result ? *result : httplib::Response();
  }

  FakeControlPort port_;
  PrometheusMetrics metrics_{board_, drops_, 100, 100};
  std::unique_ptr<WebPage> page_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<httplib::Client> client_;
};

}  // namespace gpuperf::testing
