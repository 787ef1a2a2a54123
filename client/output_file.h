#pragma once

#include <string>
#include <string_view>

#include "client/status.h"

namespace gpuperf::client {

// A file that a command writes: whole under its name, or not there.
//
// Thread: one. Owns the descriptor; what was not committed is removed. A path that exists and is no
// regular file (a pipe, /dev/null) is written to as it is.
class OutputFile {
 public:
  static Result<OutputFile> make(const std::string& path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  Status write(std::string_view bytes);
  Status commit();

 private:
  OutputFile(std::string path, std::string unfinished, int fd);

  std::string path_;
  std::string unfinished_;  // empty = written to as it is, or committed
  int fd_;
};

// Before work is begun for it: whether the file could be made.
Status check_writable(const std::string& path);

}  // namespace gpuperf::client
