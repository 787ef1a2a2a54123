#pragma once

#include <sys/stat.h>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/process_status.h"
#include "daemon/base/result.h"

namespace gpuperf {

// Takes (O_PATH) the file that a path names, one name at a time, so that neither a link nor ".."
// leads out of the root it begins at. Not openat2(2), which a systemd service with
// RestrictSUIDSGID= does not have.
//
// With a user, each step asks what that user may do: folders on the way must let him pass and the
// file must let him read, by owner, groups and mode, and links count only where root or he made
// them.
class PathWalk {
 public:
  enum class Links { kFollowed, kRefused };

  // `root`: a folder, open while the walk lasts. `user`: nullptr = what this process may.
  explicit PathWalk(int root, const ProcessStatus* user = nullptr, Links links = Links::kFollowed)
      : root_(root), user_(user), links_(links) {}

  // Once.
  Result<Fd> find(std::string_view path);

 private:
  int folder() const { return folders_.empty() ? root_ : folders_.back().get(); }
  void put_in_front(std::string_view path);
  Result<Fd> step(const std::string& name);
  Status follow(int link, const struct stat& status);

  const int root_;
  const ProcessStatus* const user_;
  const Links links_;
  std::vector<Fd> folders_;         // from below the root to where the walk is
  std::vector<std::string> names_;  // still to be walked, the last one first
};

}  // namespace gpuperf
