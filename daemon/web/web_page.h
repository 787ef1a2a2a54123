#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/mutex.h"
#include "daemon/base/result.h"
#include "daemon/export/http_message.h"
#include "daemon/model/drops.h"
#include "daemon/web/api_calls.h"
#include "daemon/web/page_threads.h"
#include "daemon/web/view_links.h"
#include "daemon/web/visitor.h"

namespace gpuperf {

// The page for people: its files, its questions to the API, and forms of captures, on the port of
// the metrics.
//
// Thread: the server's, which also checks who asks, and PageThreads, which wait for the API;
// `set_api` on any. Must outlive the server.
// Owns the files of its tokens. Bounds: those of HttpListener and PageThreads, and kViews forms of
// captures made or sent at once; beyond them 429, which counts DropCause::kHttpBusy.
// Not here: any answer of its own; everything comes from the API.
class WebPage {
 public:
  struct Options {
    std::string folder;             // of the files page.token and page-admin.token
    std::string group = "gpuperf";  // may read, where that group exists
  };
  static constexpr int kViews = 2;

  // The clock and the counters must outlive it.
  static Result<std::unique_ptr<WebPage>> make(const Options& options, const Clock& clock,
                                               DropCounters& drops);

  std::vector<HttpRoute> list_routes();
  // Whom it asks from now on: for reading, and for changing. Null = nobody: it answers 503.
  void set_api(std::shared_ptr<const ApiStubs> read, std::shared_ptr<const ApiStubs> change);

  const PageTokens& tokens() const { return tokens_; }

 private:
  WebPage(PageTokens tokens, const Clock& clock, DropCounters& drops)
      : tokens_(std::move(tokens)), links_(clock), drops_(drops), threads_(drops) {}

  using Api = std::shared_ptr<const ApiStubs>;
  Api find_api(Access access) const;
  // nullopt = the request may go on.
  std::optional<HttpResponse> find_refusal(const HttpRequest& request, Access access) const;
  // What the token may do, so that the page shows nothing that cannot work.
  HttpResponse answer_access(const HttpRequest& request) const;
  HttpResponse answer_file(const HttpRequest& request) const;
  void take_question(const ApiCall& call, HttpRequest request, const HttpReply& reply);
  HttpResponse answer_question(const ApiCall& call, const HttpRequest& request) const;
  void take_link(HttpRequest request, const HttpReply& reply);
  HttpResponse answer_link(const HttpRequest& request);
  void take_view(const HttpRequest& request, const HttpReply& reply);
  HttpResponse answer_view(const v1::FetchCaptureRequest& wanted,
                           std::shared_ptr<const void> place) const;

  const PageTokens tokens_;
  ViewLinks links_;
  DropCounters& drops_;
  std::atomic<int> views_ = 0;
  mutable Mutex mutex_;
  Api read_api_ ABSL_GUARDED_BY(mutex_);
  Api change_api_ ABSL_GUARDED_BY(mutex_);
  PageThreads threads_;  // last: they use all of the above
};

}  // namespace gpuperf
