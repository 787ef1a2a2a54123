#pragma once

#include "daemon/model/display_text.h"
#include "daemon/model/function.h"

namespace gpuperf {

// The fields of an owner that several messages have, under the same names; valid UTF-8.

template <typename Message>
void set_container(const Owner& owner, Message& message) {
  message.set_container(to_valid_utf8(owner.container));
  message.set_pod(to_valid_utf8(owner.pod));
  message.set_namespace_(to_valid_utf8(owner.pod_namespace));
}

template <typename Message>
void set_owner(const Owner& owner, Message& message) {
  set_container(owner, message);
  message.set_slurm_job(to_valid_utf8(owner.slurm_job));
  message.set_slurm_rank(to_valid_utf8(owner.slurm_rank));
}

}  // namespace gpuperf
