// gpuperfctl requests [list]: how long clients wait for tokens, and for which steps.

#include <CLI/CLI.hpp>

#include <memory>
#include <string>

#include "client/list_view.h"
#include "client/request_text.h"

namespace gpuperf::client {
namespace {

constexpr ListCall<v1::ListRequestProcessesRequest, v1::ListRequestProcessesResponse,
                   v1::RequestProcess>
    kListRequestProcesses = {.rows = &v1::ListRequestProcessesResponse::mutable_processes,
                             .action = "list processes with requests",
                             .page_rows = 1000};

constexpr ListCall<v1::ListRequestsRequest, v1::ListRequestsResponse, v1::Request> kListRequests = {
    .rows = &v1::ListRequestsResponse::mutable_requests,
    .action = "list requests",
    .page_rows = 1000};

constexpr const char* kNoRequest =
    "\nNo request was seen. They are if the configuration has \"requests\": { \"enabled\": true }, "
    "of processes\nwith steps and others of their sessions that serve HTTP/1: docs/steps.md\n";

Result<std::string> draw_request_processes(Connection& connection, const View& view,
                                           const Options& options) {
  return draw_list(connection, view, options, kListRequestProcesses,
                   v1::ListRequestProcessesRequest(), &render_request_processes,
                   "\nNo process with requests matches. Without filters: gpuperfctl requests\n",
                   kNoRequest);
}

Result<std::string> draw_requests(Connection& connection, const View& view, const Options& options,
                                  bool slow_only) {
  v1::ListRequestsRequest request;
  request.set_slow_only(slow_only);
  return draw_list(
      connection, view, options, kListRequests, request, &render_requests,
      "\nNo request matches. Without filters: gpuperfctl requests list\n",
      slow_only ? "\nNo slow request yet. All: gpuperfctl requests list\n" : kNoRequest);
}

void declare_requests_list(CLI::App& requests, Invocation& invocation) {
  Options& options = invocation.options;
  CLI::App& app =
      *requests.add_subcommand("list", "List the requests that were kept, newest first");
  const auto slow_only = std::make_shared<bool>(false);
  app.add_flag("--slow", *slow_only, "Only slow requests, longest wait first");
  add_process_flags(app, options);
  add_time_flags(app, options);
  add_sort_flag(app, options, list_sort_fields(*v1::Request::descriptor()));
  add_limit_flag(app, options);
  add_watch_flag(app, options);
  app.callback([&requests, &invocation, slow_only] {
    refuse_list_flags(requests);
    invocation.run = [&invocation, slow_only]() -> Status {
      RETURN_IF_ERROR(check_sort_field(*v1::Request::descriptor(), invocation.options.sort));
      return run_view(invocation, [&](Connection& connection, const View& view) {
        return draw_requests(connection, view, invocation.options, *slow_only);
      });
    };
  });
}

}  // namespace

void declare_requests(CLI::App& app, Invocation& invocation) {
  Options& options = invocation.options;
  add_process_flags(app, options);
  add_sort_flag(app, options, list_sort_fields(*v1::RequestProcess::descriptor()));
  add_limit_flag(app, options);
  add_watch_flag(app, options);
  declare_requests_list(app, invocation);
  app.callback([&invocation] {
    if (invocation.run) return;  // a subcommand's callback came first
    invocation.run = [&invocation]() -> Status {
      RETURN_IF_ERROR(check_sort_field(*v1::RequestProcess::descriptor(), invocation.options.sort));
      return run_view(invocation, [&](Connection& connection, const View& view) {
        return draw_request_processes(connection, view, invocation.options);
      });
    };
  });
}

}  // namespace gpuperf::client
