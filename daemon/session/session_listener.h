#pragma once

#include <optional>
#include <string>
#include <utility>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"
#include "daemon/base/unix_socket.h"

namespace gpuperf {

// The socket that injected processes connect to, open to every user of the host.
//
// Owns the socket and its file, which it removes at its end unless another stands there by then.
class SessionListener {
 public:
  // Removes the file that a killed daemon left behind; ALREADY_EXISTS: somebody answers there.
  static Result<SessionListener> open(const std::string& path);
  ~SessionListener();
  SessionListener(SessionListener&& other) noexcept = default;
  SessionListener& operator=(SessionListener&&) = delete;

  // A connection that waits, which does not block; RESOURCE_EXHAUSTED: no descriptor is left;
  // NOT_FOUND: none waits.
  Result<Fd> accept();
  int fd() const { return listening_.get(); }

 private:
  SessionListener(Fd listening, std::string path, std::optional<FileId> file)
      : listening_(std::move(listening)), path_(std::move(path)), file_(file) {}

  Fd listening_;
  std::string path_;
  std::optional<FileId> file_;
};

}  // namespace gpuperf
