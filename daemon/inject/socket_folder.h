#pragma once

#include <optional>
#include <string>
#include <utility>

#include "daemon/base/result.h"
#include "daemon/base/unix_socket.h"

namespace gpuperf {

// A folder with a second name of the ingest socket and nothing else, for containers to mount:
// beside the socket itself lies that of the API, which obeys root, a container's too.
//
// Owns that name, which it removes at its end. The folder stays: running containers have it
// mounted, and find the next daemon's socket in it.
class SocketFolder {
 public:
  // In the folder of `socket`, as ingest/ingest.sock. The socket must be there.
  static Result<SocketFolder> make(const std::string& socket);
  ~SocketFolder();
  SocketFolder(SocketFolder&& other) noexcept;
  SocketFolder& operator=(SocketFolder&&) = delete;

  const std::string& path() const { return path_; }
  std::string socket() const { return path_ + "/ingest.sock"; }

 private:
  SocketFolder(std::string path, FileId file) : path_(std::move(path)), file_(file) {}

  std::string path_;
  std::optional<FileId> file_;  // of the socket; empty = moved from
};

}  // namespace gpuperf
