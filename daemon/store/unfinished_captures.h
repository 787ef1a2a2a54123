#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/model/capture_order.h"

namespace gpuperf {

// Captures that were acknowledged and are not stored yet, for the next start: what they hold is
// lost with the daemon, and the next one says so of each.
struct UnfinishedCaptures {
  uint64_t last_id = 0;              // highest given to a capture, stored or not
  std::vector<CaptureRow> captures;  // of each: id, name, trigger, target, start and requester
};

// In place of the file that was there. Thread: any.
Status write_unfinished_captures(const std::string& path, const UnfinishedCaptures& unfinished);
// Those captures as failed, with the reason. NotFound; InvalidArgument: it is damaged.
Result<UnfinishedCaptures> read_unfinished_captures(const std::string& path);

}  // namespace gpuperf
