#pragma once

// What the daemon says to injected processes, as bytes of the contract.

#include <cstdint>

#include "daemon/base/result.h"
#include "daemon/model/session.h"
#include "injector/session_abi.h"

namespace gpuperf {

// The front of an answer. `version`: the one both speak; `sequence`: counted by connection from 0.
struct SessionAnswer {
  uint16_t version = 0;
  uint32_t sequence = 0;
};

// Whether it can be asked for: what is out of range and why.
Status check_session_order(const SessionOrder& order);

// `kind`: GPUPERF_MESSAGE_WELCOME or GPUPERF_MESSAGE_CONTROL. The order must have been checked.
gpuperf_control make_session_control(uint16_t kind, const SessionAnswer& answer,
                                     uint64_t session_id, const SessionOrder& order,
                                     uint32_t flush_interval_ms);

gpuperf_refuse make_session_refusal(const SessionAnswer& answer, gpuperf_session_refusal reason);

}  // namespace gpuperf
