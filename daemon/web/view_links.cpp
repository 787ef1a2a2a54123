#include "daemon/web/view_links.h"

#include <utility>

#include "daemon/web/secret.h"

namespace gpuperf {

Result<std::string> ViewLinks::add(v1::FetchCaptureRequest request) {
  ASSIGN_OR_RETURN(std::string secret, make_secret());
  const int64_t until_mono_ns = clock_.mono_ns() + std::chrono::nanoseconds(kLifetime).count();
  const MutexLock lock(mutex_);
  links_.push_back({secret, std::move(request), until_mono_ns});
  if (links_.size() > kMaxLinks) links_.pop_front();
  return secret;
}

std::optional<v1::FetchCaptureRequest> ViewLinks::find(const std::string& secret) {
  const MutexLock lock(mutex_);
  while (!links_.empty() && links_.front().until_mono_ns <= clock_.mono_ns()) links_.pop_front();
  for (const Link& link : links_) {
    if (is_same_secret(link.secret, secret)) return link.request;
  }
  return std::nullopt;
}

}  // namespace gpuperf
