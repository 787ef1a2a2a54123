#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "daemon/base/result.h"
#include "daemon/model/snapshot.h"
#include "daemon/store/slow_call_store.h"
#include "gpuperf/v1/observe.pb.h"

namespace gpuperf {

// Where slow calls are found: those in memory, and those on disk beside them.
struct SlowCallSources {
  std::shared_ptr<const Snapshot> snapshot;
  SlowCallStore* store = nullptr;  // null = none
};

// One page of the list, in the order asked for, each call once. A page begins behind the last row
// of the one before; calls that arrived after the first page are in none. INVALID_ARGUMENT: unknown
// sort field, bad token. Where the store cannot be read the calls in memory are all there is:
// status says why. Waits for the disk.
Status list_slow_calls(const SlowCallSources& sources, const v1::ListSlowCallsRequest& request,
                       v1::ListSlowCallsResponse& response);

// What the store keeps of a call; parsed by the functions here.
StoredCall make_stored_call(const SlowCall& call);

// NOT_FOUND: never existed or no longer kept.
Status get_slow_call(const SlowCallSources& sources, uint64_t id, v1::SlowCall& found);

}  // namespace gpuperf
