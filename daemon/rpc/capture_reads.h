#pragma once

// What Observe answers about captures. The slow ones, which read a capture's events, are run in the
// RenderQueue.

#include "daemon/base/result.h"
#include "daemon/model/snapshot.h"
#include "daemon/rpc/fetch_stream.h"
#include "daemon/store/capture_store.h"
#include "gpuperf/v1/observe.pb.h"

namespace gpuperf {

struct CaptureSources {
  const SnapshotBoard& board;
  const CaptureStore* store = nullptr;  // null = none are stored: UNAVAILABLE
};

// Quick.
Status get_capture(const CaptureSources& sources, uint64_t id, v1::GetCaptureResponse& response);
// Why a request cannot be answered, before anything is read.
Status check_fetch(const v1::FetchCaptureRequest& request);

// Slow.
Result<RenderedCapture> render_capture(const CaptureSources& sources,
                                       const v1::FetchCaptureRequest& request);
Result<v1::SummariseCaptureResponse> summarise_capture(const CaptureSources& sources,
                                                       const v1::SummariseCaptureRequest& request);
Result<v1::ExplainCaptureResponse> explain_stored_capture(const CaptureSources& sources,
                                                          const v1::ExplainCaptureRequest& request);
Result<v1::DiffCapturesResponse> diff_stored_captures(const CaptureSources& sources,
                                                      const v1::DiffCapturesRequest& request);

}  // namespace gpuperf
