#pragma once

#include "daemon/attach/attach_block.h"
#include "daemon/attach/attach_message.h"
#include "daemon/base/fd.h"

namespace gpuperf {

// What the attach worker does for one request, in one process. Thread: the worker's only one.
class AttachSequence {
 public:
  struct Answer {
    AttachReply reply;
    Fd connection;
  };

  AttachSequence(const ProcFiles& files, const AttachRequest& request)
      : files_(files), request_(request) {}
  // `library`: of an attach.
  Answer answer(const Fd& library);

 private:
  void look();
  void attach(const Fd& library);
  void detach();
  void adopt();
  bool is_attached();  // else refused
  bool read_target();
  // Against another daemon's worker in the same process, until this one is done.
  bool lock_process();
  void refuse(AttachRefusal why, std::string_view text);
  void refuse(const Status& status);
  // Why the library cannot enter; what is known from the block.
  Refused find_refusal_to_enter();
  bool find_pidfd();

  const ProcFiles& files_;
  const AttachRequest request_;
  CodeFiles code_files_;
  AttachTarget target_;
  std::optional<AttachBlock> block_;
  uint32_t flags_ = 0;
  Fd lock_;
  Fd pidfd_;
  Answer answer_;
};

}  // namespace gpuperf
