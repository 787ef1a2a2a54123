#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "daemon/base/result.h"
#include "daemon/web/visitor.h"
#include "gpuperf/v1/control.grpc.pb.h"
#include "gpuperf/v1/observe.grpc.pb.h"

namespace gpuperf {

// The API as the page may use it: within the process, but through its front door.
struct ApiStubs {
  explicit ApiStubs(const std::shared_ptr<grpc::Channel>& channel)
      : observe(v1::Observe::NewStub(channel)), control(v1::Control::NewStub(channel)) {}
  std::unique_ptr<v1::Observe::Stub> observe;
  std::unique_ptr<v1::Control::Stub> control;
};

// One question of the page: a method of gpuperf.v1, asked and answered as the JSON form of its
// messages, with the field names of the .proto. Waits for the answer, 10 s at most.
struct ApiCall {
  std::string_view path;  // below /api/v1/
  Access access;          // kRead is asked by GET, kChange by POST
  Result<std::string> (*ask)(const ApiStubs& stubs, const std::string& request_json);
};
std::span<const ApiCall> list_api_calls();

// A capture in one of its forms.
struct FetchedView {
  std::string bytes;
  std::string media_type;
};
// Waits for it, kViewTimeout at most. RESOURCE_EXHAUSTED: more than kMaxViewBytes, or too many
// wait.
Result<FetchedView> fetch_view(const ApiStubs& stubs, const v1::FetchCaptureRequest& request);
inline constexpr std::chrono::seconds kViewTimeout{60};
inline constexpr size_t kMaxViewBytes = size_t{64} << 20;

}  // namespace gpuperf
