#pragma once

#include <cstdint>
#include <map>

#include "daemon/app/part.h"
#include "daemon/model/function.h"
#include "daemon/model/snapshot.h"

namespace gpuperf {

class KernelPart;

// Stacks that rows of a part show by the id of their RawStack: each is asked for once, and kept for
// as long as it is wanted.
// Thread: loop only. Must outlive the loop.
class NamedStacks {
 public:
  NamedStacks(Core& core, KernelPart& kernel) : core_(core), kernel_(kernel) {}

  // Ids, and whose they are. Has those named that are new, and forgets all others.
  void keep(const std::map<uint64_t, ProcessKey>& wanted);
  // Adds those that are named.
  void fill(Snapshot& snapshot) const;

 private:
  Core& core_;
  KernelPart& kernel_;
  std::map<uint64_t, StackPtr> stacks_;  // null = being named
};

}  // namespace gpuperf
