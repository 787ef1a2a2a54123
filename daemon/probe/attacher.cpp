#include "daemon/probe/attacher.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/bpf.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <thread>
#include <utility>

#include "daemon/probe/kernel_abi.h"

namespace gpuperf {

namespace {

// Closing a perf link waits about 110 ms for the kernel, and threads wait side by side.
void close_perf_links(const std::vector<bpf_link*>& links) {
  std::vector<std::thread> closers;
  constexpr size_t kThreads = 16;
  for (size_t first = 0; first < std::min(kThreads, links.size()); ++first) {
    closers.emplace_back([&links, first] {
      for (size_t i = first; i < links.size(); i += kThreads) {
        (void)bpf_link__destroy(links[i]);  // the descriptor is closed whatever it answers
      }
    });
  }
  for (std::thread& closer : closers) closer.join();
}

}  // namespace

struct Attacher::Batch {
  const ProbedFile& file;
  std::string path;  // /proc/self/fd/N: the very file that was opened and read
  bool timed = true;
};

Attacher::~Attacher() { detach_all(); }

void Attacher::detach(int file_id) {
  multi_links_.erase(file_id);
  const auto [first, last] = perf_links_.equal_range(file_id);
  std::vector<bpf_link*> links;
  for (auto entry = first; entry != last; ++entry) links.push_back(entry->second);
  perf_links_.erase(first, last);
  close_perf_links(links);
}

void Attacher::detach_all() {
  multi_links_.clear();
  std::vector<bpf_link*> links;
  for (const auto& [file_id, link] : std::exchange(perf_links_, {})) links.push_back(link);
  close_perf_links(links);
}

std::vector<ProbeOutcome> Attacher::attach(const ProbedFile& file,
                                           std::span<const ProbePoint> points) {
  std::vector<ProbeOutcome> outcomes;
  for (const ProbePoint& point : points) outcomes.push_back({point, absl::OkStatus()});
  for (const bool timed : {true, false}) {
    const Batch batch{file, "/proc/self/fd/" + std::to_string(file.fd), timed};
    std::vector<ProbeOutcome*> chosen;
    for (ProbeOutcome& outcome : outcomes) {
      if (outcome.point.timed == timed) chosen.push_back(&outcome);
    }
    const std::span all(chosen);
    for (size_t first = 0; first < all.size(); first += kLinkPoints) {
      attach_slice(batch, all.subspan(first, std::min(kLinkPoints, all.size() - first)));
    }
  }
  return outcomes;
}

// The kernel takes a link whole or not at all; halving finds the points it refuses.
void Attacher::attach_slice(const Batch& batch, std::span<ProbeOutcome*> slice) {
  if (programs_.mechanism() == Mechanism::kPerf) {
    for (ProbeOutcome* outcome : slice) outcome->status = attach_perf(batch, outcome->point);
    return;
  }
  const Status status = attach_multi(batch, slice);
  if (status.ok()) return;
  if (slice.size() > 1 && !absl::IsPermissionDenied(status)) {
    attach_slice(batch, slice.first(slice.size() / 2));
    attach_slice(batch, slice.subspan(slice.size() / 2));
    return;
  }
  for (ProbeOutcome* outcome : slice) outcome->status = status;
}

Status Attacher::attach_multi(const Batch& batch, std::span<ProbeOutcome*> slice) {
  if (!batch.timed) return link_multi(batch, "probe_count", kAttachUprobeMulti, 0, slice);
  if (programs_.mechanism() == Mechanism::kSession) {
    return link_multi(batch, "probe_session", kAttachUprobeSession, 0, slice);
  }
  // Return first: an entry without its return would stay in flight for ever.
  RETURN_IF_ERROR(link_multi(batch, "probe_return", kAttachUprobeMulti, kUprobeMultiReturn, slice));
  const auto returns = std::prev(multi_links_.upper_bound(batch.file.id));  // the one just made
  Status entry = link_multi(batch, "probe_entry", kAttachUprobeMulti, 0, slice);
  if (!entry.ok()) multi_links_.erase(returns);
  return entry;
}

Status Attacher::link_multi(const Batch& batch, const char* program, uint32_t attach_type,
                            uint32_t flags, std::span<ProbeOutcome*> slice) {
  std::vector<uint64_t> offsets;
  std::vector<uint64_t> cookies;
  for (const ProbeOutcome* outcome : slice) {
    offsets.push_back(outcome->point.offset_bytes);
    cookies.push_back(outcome->point.function_id);
  }
  UprobeMultiLinkAttr attr;
  attr.prog_fd = static_cast<uint32_t>(programs_.program_fd(program));
  attr.attach_type = attach_type;
  attr.path = reinterpret_cast<uint64_t>(batch.path.c_str());
  attr.offsets = reinterpret_cast<uint64_t>(offsets.data());
  attr.cookies = reinterpret_cast<uint64_t>(cookies.data());
  attr.cnt = static_cast<uint32_t>(offsets.size());
  attr.multi_flags = flags;
  const long fd = syscall(SYS_bpf, BPF_LINK_CREATE, &attr, sizeof attr);
  if (fd < 0) return errno_status(errno, batch.file.name + ": attach " + program);
  multi_links_.emplace(batch.file.id, Fd(static_cast<int>(fd)));
  return absl::OkStatus();
}

Status Attacher::attach_perf(const Batch& batch, const ProbePoint& point) {
  const auto attach = [&](const char* program, bool at_return) -> Status {
    LIBBPF_OPTS(bpf_uprobe_opts, options, .bpf_cookie = point.function_id, .retprobe = at_return);
    bpf_link* link = bpf_program__attach_uprobe_opts(
        programs_.program(program), -1, batch.path.c_str(), point.offset_bytes, &options);
    if (link == nullptr) return errno_status(errno, batch.file.name + ": attach " + program);
    perf_links_.emplace(batch.file.id, link);
    return absl::OkStatus();
  };
  if (!batch.timed) return attach("probe_count", false);
  RETURN_IF_ERROR(attach("probe_return", true));
  return attach("probe_entry", false);
}

}  // namespace gpuperf
