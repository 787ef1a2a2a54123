#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"
#include "daemon/probe/attach/programs.h"

struct bpf_link;

namespace gpuperf {

// A file to probe, open for reading.
struct ProbedFile {
  int id = 0;  // the caller's own; detach takes it
  int fd = -1;
  std::string name;  // for messages
};

// Where in a file a program is to run.
struct ProbePlace {
  uint64_t offset_bytes = 0;
  uint64_t semaphore_offset_bytes = 0;  // of a USDT probe; 0 = has none
  uint64_t cookie = 0;
};

// One kernel object that holds probes. Move-only; destroying it takes them out, which waits 30 to
// 110 ms for the kernel.
class ProbeLink {
 public:
  explicit ProbeLink(Fd fd) : fd_(std::move(fd)) {}
  explicit ProbeLink(bpf_link* perf) : perf_(perf) {}
  ProbeLink(ProbeLink&& other) noexcept
      : fd_(std::move(other.fd_)), perf_(std::exchange(other.perf_, nullptr)) {}
  ProbeLink& operator=(ProbeLink&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(perf_, other.perf_);
    return *this;
  }
  ~ProbeLink() { close(); }

  void close();

 private:
  Fd fd_;                     // multi and session
  bpf_link* perf_ = nullptr;  // perf
};
using ProbeLinks = std::vector<ProbeLink>;

// Has a program run at these places of the file: by one link, or by one for each where `programs`
// are loaded for perf events. `probe_session` runs at the returns as well, `probe_return` only
// there. Errors: the kernel's; links made until then are in `links`.
Status add_probe_links(const Programs& programs, const ProbedFile& file, const char* program,
                       std::span<const ProbePlace> places, ProbeLinks& links);

// Side by side: one waits for the kernel as long as the next.
void close_links(std::vector<ProbeLinks> closing);

}  // namespace gpuperf
