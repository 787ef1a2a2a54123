#pragma once

#include <memory>

#include "daemon/model/snapshot.h"

namespace gpuperf {

// Takes slow calls out of the daemon as they happen. Called on the loop; must not block: what
// cannot be taken at once is dropped and counted by the exporter.
class Exporter {
 public:
  virtual ~Exporter() = default;
  virtual void on_slow_call(const std::shared_ptr<const SlowCall>& call) = 0;
};

}  // namespace gpuperf
