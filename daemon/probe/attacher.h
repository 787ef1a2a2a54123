#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"
#include "daemon/probe/programs.h"

struct bpf_link;

namespace gpuperf {

// One place to probe in one file.
struct ProbePoint {
  uint32_t function_id = 0;
  uint64_t offset_bytes = 0;  // in the file
  bool timed = true;          // entry and return; false = entry only
};

// What became of a ProbePoint.
struct ProbeOutcome {
  ProbePoint point;
  Status status;
};

// A file to probe, open for reading.
struct ProbedFile {
  int id = 0;  // the caller's own; detach takes it
  int fd = -1;
  std::string name;  // for messages
};

// Puts probes into files and takes them out again.
//
// Thread: one. Owns the links; destroying it removes every probe. `programs` must outlive it.
// A file's probes go in as few links, at most kLinkPoints each; a point the kernel refuses does not
// keep the others out. Probes act on the file, hence on every process that maps it, now or later.
// Never puts a return probe where `timed` is false: an exception passing through one kills the
// workload.
class Attacher {
 public:
  // Each registration holds locks of every process that maps the file; 256 points at a time keep
  // that short (docs/decisions/0002).
  static constexpr size_t kLinkPoints = 256;

  explicit Attacher(const Programs& programs) : programs_(programs) {}
  ~Attacher();
  Attacher(const Attacher&) = delete;
  Attacher& operator=(const Attacher&) = delete;

  // One outcome per point, in order.
  std::vector<ProbeOutcome> attach(const ProbedFile& file, std::span<const ProbePoint> points);
  // Removes every probe of the file; its descriptor may be closed by then.
  void detach(int file_id);
  void detach_all();

 private:
  struct Batch;
  void attach_slice(const Batch& batch, std::span<ProbeOutcome*> slice);
  Status attach_multi(const Batch& batch, std::span<ProbeOutcome*> slice);
  Status link_multi(const Batch& batch, const char* program, uint32_t attach_type, uint32_t flags,
                    std::span<ProbeOutcome*> slice);
  Status attach_perf(const Batch& batch, const ProbePoint& point);

  const Programs& programs_;
  std::multimap<int, Fd> multi_links_;        // by file id
  std::multimap<int, bpf_link*> perf_links_;  // by file id
};

}  // namespace gpuperf
