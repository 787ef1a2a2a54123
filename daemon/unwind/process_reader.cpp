#include "daemon/unwind/process_reader.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "daemon/base/process_status.h"

namespace gpuperf {
namespace {

using std::chrono::steady_clock;

// Of a page: what a process can hold back is held back page by page.
constexpr uint64_t kWholeBytes = 4096;
// Kept by one reader: 256 KiB.
constexpr size_t kMaxPages = 64;
constexpr size_t kMaxUsers = 1'024;

uint64_t get_page(uint64_t address) { return address / kWholeBytes * kWholeBytes; }

int64_t to_ns(steady_clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

std::optional<uint32_t> find_user(const std::string& proc_root, uint32_t pid) {
  const auto status = read_process_status(proc_root + "/" + std::to_string(pid));
  return status.ok() ? std::optional(status->uid) : std::nullopt;
}

}  // namespace

// What one reader has read, and may still read.
class MemoryReading {
 public:
  MemoryReading(ProcessReader& owner, uint32_t pid)
      : owner_(owner), pid_(pid), left_(owner.options_.timeout) {}

  bool read(uint64_t address, std::span<std::byte> to) {
    if (to.empty()) return true;
    if (address > UINT64_MAX - to.size()) return false;
    if (to.size() > kWholeBytes) return read_range(address, to);
    const uint64_t first = get_page(address);
    const uint64_t last = get_page(address + to.size() - 1);
    if (!fetch(first, last)) return false;
    for (size_t done = 0; done < to.size();) {
      const std::optional<std::string>& page = pages_.at(get_page(address + done));
      if (!page) return false;
      const size_t offset = (address + done) % kWholeBytes;
      const size_t count = std::min(to.size() - done, page->size() - offset);
      std::memcpy(to.data() + done, page->data() + offset, count);
      done += count;
    }
    return true;
  }

 private:
  // So that both are in `pages_`, readable or not.
  bool fetch(uint64_t first, uint64_t last) {
    MemoryRequest request{.pid = pid_};
    for (uint64_t page = first; page <= last; page += kWholeBytes) {
      if (!pages_.contains(page)) request.ranges.push_back({page, kWholeBytes});
    }
    if (request.ranges.empty()) return true;
    if (pages_.size() + request.ranges.size() > kMaxPages) {
      pages_.clear();
      return fetch(first, last);
    }
    std::optional<MemoryReply> reply = ask(request);
    if (!reply) return false;
    for (size_t i = 0; i < reply->size(); ++i) {
      pages_[request.ranges[i].address] = std::move((*reply)[i]);
    }
    return true;
  }

  bool read_range(uint64_t address, std::span<std::byte> to) {
    const auto reply = ask({.pid = pid_, .ranges = {{address, to.size()}}});
    if (!reply || !reply->front()) return false;
    std::memcpy(to.data(), reply->front()->data(), to.size());
    return true;
  }

  std::optional<MemoryReply> ask(const MemoryRequest& request) {
    if (is_over_ || !may_begin()) return std::nullopt;
    const auto began = steady_clock::now();
    const Result<std::string> bytes = owner_.workers_.ask(
        encode(request), {}, std::chrono::ceil<std::chrono::milliseconds>(left_));
    const auto took = steady_clock::now() - began;
    if (bytes.ok()) left_ -= took;
    if (absl::IsDeadlineExceeded(bytes.status()) || left_ <= steady_clock::duration::zero()) {
      owner_.on_late(*uid_, owner_.options_.timeout);
      is_over_ = true;
    }
    if (!bytes.ok()) return std::nullopt;
    owner_.on_answered(*uid_, took);
    return decode_memory_reply(request, *bytes);
  }

  bool may_begin() {
    if (uid_) return true;
    uid_ = find_user(owner_.options_.proc_root, pid_);
    is_over_ = !uid_ || !owner_.may_read_user(*uid_);
    if (is_over_ && uid_) owner_.options_.on_late();
    if (!is_over_) is_over_ = !owner_.workers_.prepare().ok();
    return !is_over_;
  }

  ProcessReader& owner_;
  const uint32_t pid_;
  steady_clock::duration left_;
  std::optional<uint32_t> uid_;
  bool is_over_ = false;
  std::map<uint64_t, std::optional<std::string>> pages_;  // by address; empty = cannot be read
};

ProcessReader::ProcessReader(Options options)
    : options_(std::move(options)),
      workers_({.role = "memory", .max_reply_bytes = kMaxMemoryRanges + kMaxMemoryBytes}),
      users_(kMaxUsers) {}

ReadMemory ProcessReader::make_reader(uint32_t pid) {
  return
      [reading = std::make_shared<MemoryReading>(*this, pid)](
          uint64_t address, std::span<std::byte> bytes) { return reading->read(address, bytes); };
}

bool ProcessReader::may_read(uint32_t pid) {
  const std::optional<uint32_t> uid = find_user(options_.proc_root, pid);
  return uid && may_read_user(*uid);
}

bool ProcessReader::may_read_user(uint32_t uid) {
  const MutexLock lock(mutex_);
  const User* const user = users_.find(uid);
  const TimePoint now = steady_clock::now();
  if (user == nullptr) return now >= strangers_retry_at_;
  return now >= user->retry_at && to_ns(now) >= user->waiting.ready_mono_ns();
}

ProcessReader::User& ProcessReader::find_or_add(uint32_t uid) {
  if (users_.find(uid) == nullptr) {
    (void)users_.put(uid, {.waiting = TokenBucket(options_.waiting_us_per_second)}, 1);
  }
  return *users_.find(uid);
}

void ProcessReader::on_answered(uint32_t uid, Duration took) {
  const auto charged =
      std::chrono::duration_cast<std::chrono::microseconds>(took - options_.free_wait);
  const MutexLock lock(mutex_);
  User& user = find_or_add(uid);
  if (charged.count() > 0) {
    user.waiting.take(static_cast<uint64_t>(charged.count()), to_ns(steady_clock::now()));
  }
}

void ProcessReader::on_late(uint32_t uid, Duration took) {
  options_.on_late();
  const MutexLock lock(mutex_);
  User& user = find_or_add(uid);
  const TimePoint now = steady_clock::now();
  if (now > user.retry_at + options_.max_pause) user.pause = Duration::zero();
  user.pause = std::clamp<Duration>(2 * user.pause, options_.min_pause, options_.max_pause);
  user.retry_at = now + user.pause;
  strangers_retry_at_ = now + options_.stranger_factor * took;
}

}  // namespace gpuperf
