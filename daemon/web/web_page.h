#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "daemon/base/clock.h"
#include "daemon/base/mutex.h"
#include "daemon/base/result.h"
#include "daemon/web/api_calls.h"
#include "daemon/web/view_links.h"
#include "daemon/web/visitor.h"

namespace gpuperf {

// The page for people: its files, its questions to the API, and forms of captures, on the port of
// the metrics.
//
// Thread: the server's, several at once; `set_api` on any. Must outlive the server.
// Owns the files of its tokens. Bounds: those of HttpListener, a request body of 64 KiB, kViews
// forms of captures made or sent at once, so that scrapes always find a thread.
// Not here: any answer of its own; everything comes from the API.
class WebPage {
 public:
  struct Options {
    std::string folder;             // of the files page.token and page-admin.token
    std::string group = "gpuperf";  // may read, where that group exists
  };
  static constexpr int kViews = 2;

  // The clock must outlive it.
  static Result<std::unique_ptr<WebPage>> make(const Options& options, const Clock& clock);

  void add_routes(httplib::Server& server);
  // Whom it asks from now on: for reading, and for changing. Null = nobody: it answers 503.
  void set_api(std::shared_ptr<const ApiStubs> read, std::shared_ptr<const ApiStubs> change);

  const PageTokens& tokens() const { return tokens_; }

 private:
  WebPage(PageTokens tokens, const Clock& clock) : tokens_(std::move(tokens)), links_(clock) {}

  using Answer = Result<std::string>;
  std::shared_ptr<const ApiStubs> find_api(Access access) const;
  // Null = refused, and answered.
  bool admit(const httplib::Request& request, httplib::Response& response, Access access) const;
  void answer_file(const httplib::Request& request, httplib::Response& response) const;
  void answer_question(const httplib::Request& request, httplib::Response& response,
                       const ApiCall& call) const;
  void answer_link(const httplib::Request& request, httplib::Response& response);
  void answer_view(const httplib::Request& request, httplib::Response& response);

  const PageTokens tokens_;
  ViewLinks links_;
  std::atomic<int> views_ = 0;
  mutable Mutex mutex_;
  std::shared_ptr<const ApiStubs> read_api_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const ApiStubs> change_api_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gpuperf
