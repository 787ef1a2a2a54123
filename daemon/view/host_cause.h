#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "daemon/model/call_role.h"
#include "daemon/view/host_time.h"
#include "daemon/view/places.h"
#include "daemon/view/time_groups.h"

namespace gpuperf {

// Why a thread did not launch, at each moment.
//
// Thread: one. Borrows the capture and the table.
class HostCauses {
 public:
  // A synchronising call, or a copy call.
  struct Sync {
    uint32_t function = kNoIndex;  // kNoIndex = known by CUPTI alone
    uint32_t path = kNoIndex;
  };

  HostCauses(const Capture& capture, PathTable& table);

  // Every piece of [begin_ns, end_ns), in order and without holes.
  void for_each(uint32_t thread, uint64_t begin_ns, uint64_t end_ns,
                const std::function<void(const TimePiece&)>& visit);
  // The call in which the thread waited for the GPU at that time, if it did.
  std::optional<Sync> find_sync(uint32_t thread, uint64_t at_ns) const;
  uint32_t find_launch_path(const CaptureLaunch& launch) const { return table_.find_path(launch); }

 private:
  struct Role {
    CallRole role = CallRole::kOther;
    uint32_t function = kNoIndex;  // what the call is called by
  };

  Role find_role(uint32_t call) const;
  uint32_t get_function(const NestedCall& call) const;
  void explain_in_call(const HostPiece& piece, TimePiece& explained) const;
  void explain_outside(const HostPiece& piece, TimePiece& explained);
  void explain_wait(const HostPiece& piece, const CaptureThreadTime& time, TimePiece& explained);
  bool does_nothing(uint32_t thread, const HostPiece& piece) const;

  const Capture& capture_;
  PathTable& table_;
  HostTime host_;
  Places places_;
  std::vector<CallRole> roles_;      // by function
  std::vector<uint32_t> same_name_;  // by function: the first of its name
};

}  // namespace gpuperf
