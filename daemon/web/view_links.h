#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <string>

#include "daemon/base/clock.h"
#include "daemon/base/mutex.h"
#include "daemon/base/result.h"
#include "gpuperf/v1/observe.pb.h"

namespace gpuperf {

// Addresses of forms of captures that open without a token: a browser sends none when it opens a
// document or a frame. Whoever has such an address can read that one form for kLifetime.
//
// Thread: any. The clock must outlive it. Bounds: kMaxLinks; the oldest leaves.
class ViewLinks {
 public:
  static constexpr std::chrono::minutes kLifetime{10};
  static constexpr size_t kMaxLinks = 64;

  explicit ViewLinks(const Clock& clock) : clock_(clock) {}

  // The secret part of the address.
  Result<std::string> add(v1::FetchCaptureRequest request);
  std::optional<v1::FetchCaptureRequest> find(const std::string& secret);

 private:
  struct Link {
    std::string secret;
    v1::FetchCaptureRequest request;
    int64_t until_mono_ns = 0;
  };
  const Clock& clock_;
  Mutex mutex_;
  std::deque<Link> links_ ABSL_GUARDED_BY(mutex_);  // oldest first
};

}  // namespace gpuperf
