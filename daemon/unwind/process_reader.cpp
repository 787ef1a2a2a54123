#include "daemon/unwind/process_reader.h"

#include <algorithm>
#include <cstdint>
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
// Above the longest text of mappings that anybody asks for.
constexpr size_t kMaxReplyBytes = (size_t{64} << 20) + 4096;

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
    const Result<WorkerMessage> reply = owner_.workers_.ask(
        encode(request), {}, std::chrono::ceil<std::chrono::milliseconds>(left_));
    const auto took = steady_clock::now() - began;
    if (reply.ok()) left_ -= took;
    if (absl::IsDeadlineExceeded(reply.status()) || left_ <= steady_clock::duration::zero()) {
      owner_.on_late(*uid_, ProcessReader::Kind::kMemory);
      is_over_ = true;
    }
    if (!reply.ok()) return std::nullopt;
    owner_.on_answered(*uid_, took - owner_.options_.free_wait);
    return decode_memory_reply(request, reply->bytes);
  }

  bool may_begin() {
    if (uid_) return true;
    const Result<uint32_t> uid = owner_.begin(pid_, ProcessReader::Kind::kMemory, owner_.workers_);
    is_over_ = !uid.ok();
    if (uid.ok()) uid_ = *uid;
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
      workers_(
          {.role = "memory", .arguments = {options_.proc_root}, .max_reply_bytes = kMaxReplyBytes}),
      takers_({.role = "files",
               .arguments = {options_.proc_root},
               .max_reply_bytes = sizeof(uint32_t)}),
      users_(kMaxUsers) {}

ReadMemory ProcessReader::make_reader(uint32_t pid) {
  return
      [reading = std::make_shared<MemoryReading>(*this, pid)](
          uint64_t address, std::span<std::byte> bytes) { return reading->read(address, bytes); };
}

ProcFiles ProcessReader::make_files() {
  return {
      options_.proc_root,
      {.read_maps = [this](uint32_t pid, size_t max_bytes) { return read_maps(pid, max_bytes); },
       .read_environment = [this](uint32_t pid,
                                  size_t max_bytes) { return read_environment(pid, max_bytes); },
       .take_mapped = [this](uint32_t pid,
                             const std::string& range) { return take_mapped(pid, range); }}};
}

void ProcessReader::reap() {
  workers_.reap();
  takers_.reap();
}

Result<uint32_t> ProcessReader::begin(uint32_t pid, Kind kind, WorkerPool& workers) {
  const std::optional<uint32_t> uid = find_user(options_.proc_root, pid);
  if (!uid) return absl::NotFoundError("pid " + std::to_string(pid) + ": gone");
  if (!may_read_user(*uid)) {
    options_.on_late(kind);
    return absl::UnavailableError("pid " + std::to_string(pid) + ": not read for a while, " +
                                  "because reads of its user's processes took too long");
  }
  RETURN_IF_ERROR(workers.prepare());
  return *uid;
}

// The reply without its error.
Result<WorkerMessage> ProcessReader::ask_for_file(uint32_t pid, WorkerPool& workers,
                                                  const std::string& request) {
  ASSIGN_OR_RETURN(const uint32_t uid, begin(pid, Kind::kFile, workers));
  const auto began = steady_clock::now();
  Result<WorkerMessage> reply = workers.ask(request, {}, options_.file_timeout);
  if (absl::IsDeadlineExceeded(reply.status())) on_late(uid, Kind::kFile);
  if (!reply.ok()) return reply.status();
  on_answered(uid, steady_clock::now() - began - options_.free_file_wait);
  uint32_t error = 0;
  if (reply->bytes.size() < sizeof error) return absl::DataLossError("memory worker: no reply");
  std::memcpy(&error, reply->bytes.data(), sizeof error);
  if (error != 0) return errno_status(static_cast<int>(error), "pid " + std::to_string(pid));
  return reply;
}

Result<BoundedText> ProcessReader::read_maps(uint32_t pid, size_t max_bytes) {
  ASSIGN_OR_RETURN(
      WorkerMessage reply,
      ask_for_file(pid, workers_, encode(MapsRequest{.pid = pid, .max_bytes = max_bytes + 1})));
  reply.bytes.erase(0, sizeof(uint32_t));
  BoundedText maps{.text = std::move(reply.bytes)};
  maps.truncated = maps.text.size() > max_bytes;
  if (maps.truncated) maps.text.resize(max_bytes);
  return maps;
}

// From the memory itself: opening the file takes rights that the worker does not have.
Result<BoundedText> ProcessReader::read_environment(uint32_t pid, size_t max_bytes) {
  ASSIGN_OR_RETURN(const EnvironmentPlace place, read_environment_place(options_.proc_root, pid));
  BoundedText environment;
  if (place.end <= place.begin) return environment;
  environment.truncated = place.end - place.begin > max_bytes;
  environment.text.resize(environment.truncated ? max_bytes : place.end - place.begin);
  if (make_reader(pid)(place.begin, std::as_writable_bytes(std::span(environment.text)))) {
    return environment;
  }
  return absl::UnavailableError("pid " + std::to_string(pid) + ": environment not read");
}

Result<Fd> ProcessReader::take_mapped(uint32_t pid, const std::string& range) {
  ASSIGN_OR_RETURN(WorkerMessage reply,
                   ask_for_file(pid, takers_, std::to_string(pid) + "/map_files/" + range));
  if (reply.fds[0].valid()) return std::move(reply.fds[0]);
  return absl::DataLossError("pid " + std::to_string(pid) + ": worker sent no descriptor");
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

void ProcessReader::on_answered(uint32_t uid, Duration charged) {
  const auto charged_us = std::chrono::duration_cast<std::chrono::microseconds>(charged).count();
  const MutexLock lock(mutex_);
  User& user = find_or_add(uid);
  if (charged_us > 0) {
    user.waiting.take(static_cast<uint64_t>(charged_us), to_ns(steady_clock::now()));
  }
}

void ProcessReader::on_late(uint32_t uid, Kind kind) {
  options_.on_late(kind);
  const MutexLock lock(mutex_);
  User& user = find_or_add(uid);
  const TimePoint now = steady_clock::now();
  if (now > user.retry_at + options_.max_pause) user.pause = Duration::zero();
  user.pause = std::clamp<Duration>(2 * user.pause, options_.min_pause, options_.max_pause);
  user.retry_at = now + user.pause;
  strangers_retry_at_ = now + options_.strangers_pause;
}

}  // namespace gpuperf
