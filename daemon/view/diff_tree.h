#pragma once

#include <vector>

#include "daemon/model/capture.h"
#include "daemon/view/diff.h"
#include "daemon/view/frame_tree.h"

namespace gpuperf {

// Both captures in one tree, times by the scale.
FrameTree make_diff_tree(const Capture& before, const Capture& after, const ViewOptions& options,
                         DiffScale scale);

}  // namespace gpuperf
