#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <optional>
#include <string>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"

namespace gpuperf {

// Makes `path` free to listen on: makes the folder (0755) if only that is missing, and removes the
// socket of a daemon that was killed. ALREADY_EXISTS: somebody answers there, and who, or it is no
// socket. Nothing is removed then. `type` is that of the sockets: SOCK_STREAM, SOCK_SEQPACKET.
Status prepare_unix_socket(const std::string& path, int type = SOCK_STREAM);

// A socket that listens at `path`, made free before; only its owner may use it (0600). Accepting
// from it does not block.
Result<Fd> listen_on_unix_socket(const std::string& path, int type = SOCK_STREAM);

// Lets the group `group` use the socket, 0660, where that group exists. Without it the mode stays
// as it is. The socket must have been made with 0600: it is never open to more than it will be.
Status open_socket_to_group(const std::string& path, const std::string& group);

// Which file a path names now.
struct FileId {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const FileId&) const = default;
};
std::optional<FileId> find_file_id(const std::string& path);

}  // namespace gpuperf
