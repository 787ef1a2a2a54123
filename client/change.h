#pragma once

// What the commands that change the daemon share: asking it, and saying what came of it.

#include <string_view>

#include "client/view.h"
#include "gpuperf/v1/control.pb.h"

namespace gpuperf::client {

// Prints the change, or the errors of what was asked for, one a line on standard error. `called` is
// how the call to `action` ended.
Status show_change(const Invocation& invocation, std::string_view action, const Status& called,
                   const v1::ProbeChange& change);

// Connects, asks, and shows.
template <typename Response, typename Request>
Status run_change(const Invocation& invocation, std::string_view action, const Request& request) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, connect_to_change(invocation));
  Response response;
  const Status called = connection->call(action, request, &response);
  return show_change(invocation, action, called, response.change());
}

}  // namespace gpuperf::client
