#pragma once

// Lists of the daemon that come in pages, read to their end or to --limit.

#include <fmt/format.h>
#include <google/protobuf/repeated_ptr_field.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "client/connection.h"

namespace gpuperf::client {

// One rpc that lists. `action` completes "cannot …" in an error.
template <typename Request, typename Response, typename Row>
struct ListCall {
  google::protobuf::RepeatedPtrField<Row>* (Response::*rows)();
  const char* action;
  uint32_t page_rows;  // asked for at a time
};

inline constexpr ListCall<v1::ListFunctionsRequest, v1::ListFunctionsResponse, v1::FunctionStats>
    kListFunctions = {.rows = &v1::ListFunctionsResponse::mutable_functions,
                      .action = "list functions",
                      .page_rows = 1000};

inline constexpr ListCall<v1::ListProbesRequest, v1::ListProbesResponse, v1::Probe> kListProbes = {
    .rows = &v1::ListProbesResponse::mutable_probes, .action = "list probes", .page_rows = 1000};

inline constexpr ListCall<v1::ListSessionsRequest, v1::ListSessionsResponse, v1::Session>
    kListSessions = {.rows = &v1::ListSessionsResponse::mutable_sessions,
                     .action = "list sessions",
                     .page_rows = 1000};

inline constexpr ListCall<v1::ListProcessesRequest, v1::ListProcessesResponse, v1::Process>
    kListProcesses = {.rows = &v1::ListProcessesResponse::mutable_processes,
                      .action = "list processes",
                      .page_rows = 1000};

inline constexpr ListCall<v1::ListCapturesRequest, v1::ListCapturesResponse, v1::Capture>
    kListCaptures = {.rows = &v1::ListCapturesResponse::mutable_captures,
                     .action = "list captures",
                     .page_rows = 1000};

// Each may have thousands of stacks.
inline constexpr ListCall<v1::ListMemoryRequest, v1::ListMemoryResponse, v1::ProcessMemory>
    kListMemory = {.rows = &v1::ListMemoryResponse::mutable_processes,
                   .action = "list GPU memory",
                   .page_rows = 100};

inline constexpr ListCall<v1::ListOutOfMemoryRequest, v1::ListOutOfMemoryResponse, v1::OutOfMemory>
    kListOutOfMemory = {.rows = &v1::ListOutOfMemoryResponse::mutable_incidents,
                        .action = "list failed allocations",
                        .page_rows = 100};

inline constexpr ListCall<v1::ListNcclRequest, v1::ListNcclResponse, v1::NcclCommunicator>
    kListNccl = {.rows = &v1::ListNcclResponse::mutable_communicators,
                 .action = "list communicators of NCCL",
                 .page_rows = 100};

// A slow call with a stack of 127 long C++ names is about 100 kB.
inline constexpr ListCall<v1::ListSlowCallsRequest, v1::ListSlowCallsResponse, v1::SlowCall>
    kListSlowCalls = {.rows = &v1::ListSlowCallsResponse::mutable_slow_calls,
                      .action = "list slow calls",
                      .page_rows = 100};

template <typename Response>
using PageReader = std::type_identity_t<std::function<void(const Response&)>>;

// At most `limit` rows; 0 = all. The request's page is filled in here. `on_page` sees every answer.
template <typename Request, typename Response, typename Row>
Result<std::vector<Row>> read_pages(Connection& connection,
                                    const ListCall<Request, Response, Row>& list, Request request,
                                    uint64_t limit, const PageReader<Response>& on_page = nullptr) {
  std::vector<Row> rows;
  std::string token;
  do {
    const uint64_t missing = limit == 0 ? list.page_rows : limit - rows.size();
    request.mutable_page()->set_limit(
        static_cast<uint32_t>(std::min<uint64_t>(missing, list.page_rows)));
    request.mutable_page()->set_page_token(token);
    Response response;
    RETURN_IF_ERROR(connection.call(list.action, request, &response));
    if (on_page) on_page(response);
    for (Row& row : *(response.*list.rows)()) {
      if (limit == 0 || rows.size() < limit) rows.push_back(std::move(row));
    }
    // Following the same page for ever would fill the memory of this machine.
    if (!token.empty() && response.next_page_token() == token) {
      return absl::InternalError(
          fmt::format("cannot {}: gpuperfd at {} repeats a page; this is a bug of the daemon",
                      list.action, connection.address().text));
    }
    token = response.next_page_token();
  } while (!token.empty() && (limit == 0 || rows.size() < limit));
  return rows;
}

}  // namespace gpuperf::client
