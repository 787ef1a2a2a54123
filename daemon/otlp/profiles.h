#pragma once

#include <string_view>
#include <vector>

#include "daemon/model/capture.h"
#include "daemon/otlp/attributes.h"
#include "daemon/otlp/request.h"

namespace gpuperf::otlp {

// ExportProfilesServiceRequests of what happened in a capture: of each process a profile of its GPU
// time by who launched the work, of the CPU time in launches and probed calls, and of the time that
// it was blocked in them; none of what there is nothing of. Values are nanoseconds, samples of GPU
// time are told apart by stream, and all add up to the capture's records.
//
// A request is closed when it has grown to `max_bytes`; a profile that does not fit goes on in the
// next one. Requests count profiles, as receivers do.
std::vector<Request> make_profile_requests(const Capture& capture, const Origin& origin,
                                           std::string_view host_id,
                                           size_t max_bytes = kRequestBytes);

}  // namespace gpuperf::otlp
