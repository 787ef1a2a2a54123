#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "daemon/base/result.h"
#include "daemon/rpc/answer_budget.h"
#include "daemon/rpc/grpc_status.h"

namespace gpuperf {

// One call answered once, now or later: by whoever works on it or by its cancellation, whichever is
// first. Its answer counts in the budget until gRPC has sent it.
//
// Thread: any. Lifetime: owns itself until gRPC says OnDone; whoever works on it holds it too, and
// may come after that. The budget must outlive the server.
template <typename Answer>
class DeferredCall final : public grpc::ServerUnaryReactor {
 public:
  using Write = std::function<void(const Answer& answer)>;

  // `write` puts the answer into `response`; `cancelled` is said where the call is given up.
  static std::shared_ptr<DeferredCall> make(const char* cancelled, AnswerBudget& budget,
                                            google::protobuf::Message& response, Write write) {
    std::shared_ptr<DeferredCall> call(
        new DeferredCall(cancelled, budget, response, std::move(write)));
    call->self_ = call;
    return call;
  }

  void answer(const Result<Answer>& result) {
    // gRPC keeps the response until Finish, and only the first to answer touches it.
    if (answered_.exchange(true)) return;
    Status status = result.status();
    if (status.ok()) {
      write_(*result);
      status = budget_.hold(response_, hold_);
    }
    Finish(to_grpc_status(shorten(status)));
  }
  // Nobody waits for an answer any more.
  bool is_answered() const { return answered_; }

  void OnCancel() override { answer(absl::CancelledError(cancelled_)); }
  void OnDone() override {
    const std::shared_ptr<DeferredCall> last = std::move(self_);  // may destroy this on return
    hold_.reset();  // who still works on it may take long
  }

 private:
  // A status travels in the trailers, of which clients take 8 KiB; a byte of it may need three
  // there.
  static constexpr size_t kLongestMessageBytes = 2000;

  DeferredCall(const char* cancelled, AnswerBudget& budget, google::protobuf::Message& response,
               Write write)
      : cancelled_(cancelled), budget_(budget), response_(response), write_(std::move(write)) {}

  // The errors of a configuration may be many: whole lines of them, as far as they go.
  static Status shorten(const Status& status) {
    if (status.message().size() <= kLongestMessageBytes) return status;
    std::string message(status.message().substr(0, kLongestMessageBytes));
    message.resize(std::min(message.size(), message.rfind('\n')));  // npos: one very long line
    return {status.code(), message + "\n… and more; all of them: gpuperfctl config check FILE"};
  }

  const char* const cancelled_;
  AnswerBudget& budget_;
  google::protobuf::Message& response_;  // gRPC's, until Finish
  const Write write_;
  AnswerBudget::Hold hold_;  // of whoever answers, then of OnDone
  std::atomic<bool> answered_ = false;
  std::shared_ptr<DeferredCall> self_;  // reset in OnDone
};

}  // namespace gpuperf
