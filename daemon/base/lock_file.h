#pragma once

#include <string>
#include <string_view>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"

namespace gpuperf {

// Keeps a second instance out: an exclusive lock on a file that holds the owner's pid and start.
//
// The kernel drops the lock with the process, so nothing is left to clean after a kill -9. An owner
// that was killed and that the kernel does not let end, or a lock without its owner, keeps nobody
// out: the file is replaced, and what it listened on is free. Only the owner's user can open it
// (0600), because opening is enough to lock it. Destroying it removes the file.
class LockFile {
 public:
  // kAlreadyExists, naming the owner, while another process holds it. `setting`: what gives this
  // one a file of its own, for the error.
  static Result<LockFile> acquire(const std::string& path, std::string_view setting);
  LockFile(LockFile&&) = default;
  LockFile& operator=(LockFile&&) = delete;
  ~LockFile();

 private:
  static Result<LockFile> acquire_file(const std::string& path, std::string_view setting);
  LockFile(std::string path, Fd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  std::string path_;
  Fd fd_;
};

}  // namespace gpuperf
