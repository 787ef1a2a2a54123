#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "client/status.h"

namespace gpuperf::client {

// A gpuperfd of our own that probes nothing and has one capture to show: a decode on an H200, which
// comes with gpuperfctl. Its folder and the process end with it.
//
// Thread: one, before any other is started: it forks.
class DemoDaemon {
 public:
  static constexpr int kCaptureId = 2;  // its own, within the file

  // Starts it; it may not answer yet.
  static Result<std::unique_ptr<DemoDaemon>> start();
  ~DemoDaemon();
  DemoDaemon(const DemoDaemon&) = delete;
  DemoDaemon& operator=(const DemoDaemon&) = delete;

  std::string get_address() const { return "unix:" + folder_ + "/api.sock"; }
  // The last line of its log, where it has ended by itself; empty = it runs.
  std::string find_end();

 private:
  DemoDaemon(std::string folder, pid_t pid) : folder_(std::move(folder)), pid_(pid) {}

  // Set once in the constructor.
  const std::string folder_;
  // Main thread only.
  pid_t pid_;  // -1 = it has ended
};

}  // namespace gpuperf::client
