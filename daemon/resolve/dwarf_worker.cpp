#include "daemon/resolve/dwarf_worker.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <utility>

#include "daemon/resolve/dwarf_message.h"

namespace gpuperf {
namespace {

constexpr size_t kMaxFailedFiles = 4'096;

WorkerPool::Options make_pool_options(const DwarfWorker::Options& options) {
  return {.role = "dwarf",
          .arguments = {std::to_string(options.memory_bytes), std::to_string(options.idle.count())},
          .max_reply_bytes = kMaxReplyBytes};
}

}  // namespace

DwarfWorker::DwarfWorker(Options options)
    : options_(options), pool_(make_pool_options(options)), failed_(kMaxFailedFiles) {}

std::optional<DwarfWorker::Frames> DwarfWorker::find_frames(const File& file,
                                                            std::span<const uint64_t> vaddrs) {
  const std::array<int, 2> both{file.fd, file.alternate_fd};
  const bool has_alternate = file.alternate_fd >= 0;
  const auto fds = std::span(both).first(has_alternate ? 2 : 1);
  Frames frames;
  frames.reserve(vaddrs.size());
  while (frames.size() < vaddrs.size() && failed_.find(file.id) == nullptr) {
    const TimePoint began = std::chrono::steady_clock::now();
    if (began < retry_at_) return std::nullopt;
    auto rest = vaddrs.subspan(frames.size());
    rest = rest.first(std::min(rest.size(), kMaxRequestAddresses));
    const DwarfRequest request{
        .file_id = file.id, .has_alternate = has_alternate, .vaddrs = {rest.begin(), rest.end()}};
    const Result<WorkerMessage> reply = pool_.ask(encode(request), fds, options_.timeout);
    if (absl::IsUnavailable(reply.status())) return std::nullopt;
    std::optional<Frames> some = reply.ok() ? decode_reply(reply->bytes) : std::nullopt;
    if (!some || some->empty() || some->size() > rest.size()) {
      pool_.end_idle();
      on_failure(file.id, began);
      break;
    }
    std::ranges::move(*some, std::back_inserter(frames));
  }
  frames.resize(vaddrs.size());
  return frames;
}

void DwarfWorker::on_failure(uint64_t file_id, TimePoint began) {
  (void)failed_.put(file_id, true, 1);
  const TimePoint now = std::chrono::steady_clock::now();
  retry_at_ = now + options_.pause_factor * (now - began);
}

pid_t DwarfWorker::pid() const {
  const std::vector<pid_t> pids = pool_.list_idle();
  return pids.empty() ? 0 : pids.front();
}

}  // namespace gpuperf
