#pragma once

#include <cstdint>
#include <memory>

#include "daemon/app/part.h"
#include "daemon/app/self_observation.h"
#include "daemon/base/heap_trim.h"

namespace gpuperf {

// The whole daemon: starts the parts in order, runs the loop until SIGTERM or SIGINT, stops them in
// reverse; publishes what they fill in.
//
// Thread: the one that calls run() is the loop, which owns all changing state. Without what probes
// need (privilege, BTF, kernel) it runs all the same, serves, and says what is missing; a lock held
// or an address taken by somebody else ends the start.
class Daemon final {
 public:
  Daemon(DaemonOptions options, Config config);
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  // Returns when stopped; an error says which part did not start and why.
  Status run();

 private:
  struct Parts;

  Status start_loop();
  Status run_parts();
  Status run_loop();
  void apply_settings();
  void look_at_memory();
  void publish_if_changed();
  void publish();

  Core core_;
  HeapTrim heap_;
  SelfObservation self_;
  int64_t next_publish_ns_ = 0;  // at the latest
  const std::unique_ptr<Parts> parts_;
};

}  // namespace gpuperf
