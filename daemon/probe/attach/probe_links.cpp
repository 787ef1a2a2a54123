#include "daemon/probe/attach/probe_links.h"

#include <bpf/libbpf.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <string_view>
#include <thread>

#include "daemon/probe/attach/kernel_abi.h"
#include "daemon/probe/attach/multi_link.h"

namespace gpuperf {
namespace {

// Closing a link waits for the kernel, 30 to 110 ms, and threads wait side by side: so that a
// thousand links close within 2 s.
constexpr size_t kClosingThreads = 64;

Status add_multi_link(const Programs& programs, const ProbedFile& file, const char* program,
                      std::span<const ProbePlace> places, ProbeLinks& links) {
  std::vector<uint64_t> offsets, semaphores, cookies;
  bool any_semaphore = false;
  for (const ProbePlace& place : places) {
    offsets.push_back(place.offset_bytes);
    semaphores.push_back(place.semaphore_offset_bytes);
    cookies.push_back(place.cookie);
    any_semaphore = any_semaphore || place.semaphore_offset_bytes != 0;
  }
  if (!any_semaphore) semaphores.clear();
  const std::string_view name(program);
  ASSIGN_OR_RETURN(Fd link,
                   create_multi_link({.program_fd = programs.program_fd(program),
                                      .file_fd = file.fd,
                                      .attach_type = name == "probe_session" ? kAttachUprobeSession
                                                                             : kAttachUprobeMulti,
                                      .flags = name == "probe_return" ? kUprobeMultiReturn : 0,
                                      .offsets = offsets,
                                      .cookies = cookies,
                                      .semaphores = semaphores},
                                     file.name + ": attach " + program));
  links.emplace_back(std::move(link));
  return absl::OkStatus();
}

Status add_perf_links(const Programs& programs, const ProbedFile& file, const char* program,
                      std::span<const ProbePlace> places, ProbeLinks& links) {
  // The very file that was opened and read.
  const std::string path = "/proc/self/fd/" + std::to_string(file.fd);
  for (const ProbePlace& place : places) {
    LIBBPF_OPTS(bpf_uprobe_opts, options, .ref_ctr_offset = place.semaphore_offset_bytes,
                .bpf_cookie = place.cookie,
                .retprobe = std::string_view(program) == "probe_return");
    bpf_link* link = bpf_program__attach_uprobe_opts(programs.program(program), -1, path.c_str(),
                                                     place.offset_bytes, &options);
    if (link == nullptr) return errno_status(errno, file.name + ": attach " + program);
    links.emplace_back(link);
  }
  return absl::OkStatus();
}

}  // namespace

void ProbeLink::close() {
  fd_.reset();
  // The descriptor is closed whatever it answers.
  if (perf_ != nullptr) (void)bpf_link__destroy(std::exchange(perf_, nullptr));
}

Status add_probe_links(const Programs& programs, const ProbedFile& file, const char* program,
                       std::span<const ProbePlace> places, ProbeLinks& links) {
  return programs.mechanism() == Mechanism::kPerf
             ? add_perf_links(programs, file, program, places, links)
             : add_multi_link(programs, file, program, places, links);
}

void close_links(std::vector<ProbeLinks> closing) {
  std::vector<ProbeLink*> links;
  for (ProbeLinks& group : closing) {
    for (ProbeLink& link : group) links.push_back(&link);
  }
  std::atomic<size_t> next = 0;
  const auto close_some = [&] {
    for (size_t i = next++; i < links.size(); i = next++) links[i]->close();
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < std::min(kClosingThreads, links.size()); ++i) {
    others.emplace_back(close_some);
  }
  close_some();
  for (std::thread& other : others) other.join();
}

}  // namespace gpuperf
