#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "daemon/model/function.h"

namespace gpuperf {

class KernelPart;

// Tells the kernel side in which sessions, setsid(2), requests are served: those of processes that
// make steps, for the server before an engine is mostly a process of its own.
// Thread: loop only.
class RequestSessions {
 public:
  explicit RequestSessions(KernelPart& kernel) : kernel_(kernel) {}

  // The sessions of `running`, the processes that make steps; empty where requests are not
  // followed. Reads a file of /proc for each that is new.
  const std::map<ProcessKey, uint32_t>& keep(const std::vector<ProcessKey>& running);

 private:
  KernelPart& kernel_;
  std::map<ProcessKey, uint32_t> sessions_;
};

}  // namespace gpuperf
