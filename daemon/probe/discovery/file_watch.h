#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"

namespace gpuperf {

// Hears when a watched file's content is written or truncated, through inotify.
//
// Why: the kernel keeps a probe at its offset whatever the file holds there by now, and would put
// the breakpoint into the middle of some other instruction of every process that maps it from then
// on. Thread: one. Bounds: the kernel's fs.inotify.max_user_watches. Writes through a shared
// mapping are not told by the kernel; renaming a new file over the old one is no write and needs no
// notice.
class FileWatch {
 public:
  static Result<FileWatch> open();

  int descriptor() const { return inotify_.get(); }
  // Watches the file behind an open descriptor, which may be closed then. The id is the same for
  // the same file.
  Result<int> add(int fd);
  // No more notices of this id, except those already on their way.
  void remove(int id);
  // Calls back with the id of each file written since, perhaps several times. False: the kernel
  // lost some, so any may have been written.
  bool drain(const std::function<void(int id)>& on_written);

 private:
  explicit FileWatch(Fd inotify) : inotify_(std::move(inotify)) {}
  Fd inotify_;
};

}  // namespace gpuperf
