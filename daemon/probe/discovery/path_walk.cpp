#include "daemon/probe/discovery/path_walk.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <utility>

namespace gpuperf {
namespace {

constexpr size_t kMaxSteps = 256;  // names on the way; links to links end there
constexpr mode_t kRead = 04;
constexpr mode_t kPass = 01;

// By mode alone: lists of rights (ACLs) only narrow or widen it for users that nobody else's
// process counts for.
bool may(const ProcessStatus* user, const struct stat& file, mode_t wanted) {
  if (user == nullptr || user->uid == 0) return true;
  unsigned shift = 0;
  if (file.st_uid == user->uid) {
    shift = 6;
  } else if (std::ranges::find(user->groups, file.st_gid) != user->groups.end()) {
    shift = 3;
  }
  return (file.st_mode >> shift & wanted) == wanted;
}

}  // namespace

Result<Fd> PathWalk::find(std::string_view path) {
  put_in_front(path);
  for (size_t steps = 0; !names_.empty(); ++steps) {
    if (steps == kMaxSteps) return absl::FailedPreconditionError("too many names or links");
    const std::string name = std::move(names_.back());
    names_.pop_back();
    if (name == "..") {
      if (!folders_.empty()) folders_.pop_back();
      continue;
    }
    ASSIGN_OR_RETURN(Fd found, step(name));
    if (found.valid()) return found;
  }
  return errno_status(EISDIR, "a folder");
}

// The names of `path` before those that are still to be walked.
void PathWalk::put_in_front(std::string_view path) {
  if (path.starts_with('/')) folders_.clear();
  std::vector<std::string> names;
  while (!path.empty()) {
    const std::string_view name = path.substr(0, path.find('/'));
    path.remove_prefix(std::min(name.size() + 1, path.size()));
    if (!name.empty() && name != ".") names.emplace_back(name);
  }
  names_.insert(names_.end(), names.rbegin(), names.rend());
}

// The file, or nothing where `name` is on the way to it.
Result<Fd> PathWalk::step(const std::string& name) {
  struct stat passed {};
  if (::fstat(folder(), &passed) != 0) return errno_status(errno, "fstat");
  if (!may(user_, passed, kPass)) return errno_status(EACCES, name);
  Fd found(::openat(folder(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (!found.valid() || ::fstat(found.get(), &status) != 0) return errno_status(errno, name);
  if (S_ISLNK(status.st_mode)) {
    RETURN_IF_ERROR(follow(found.get(), status));
    return Fd();
  }
  if (!names_.empty()) {
    if (!S_ISDIR(status.st_mode)) return errno_status(ENOTDIR, name);
    folders_.push_back(std::move(found));
    return Fd();
  }
  if (!may(user_, status, kRead)) return errno_status(EACCES, name);
  return found;
}

Status PathWalk::follow(int link, const struct stat& status) {
  if (links_ == Links::kRefused) return errno_status(ELOOP, "a link");
  if (user_ != nullptr && status.st_uid != 0 && status.st_uid != user_->uid) {
    return errno_status(EACCES, "a link that another user made");
  }
  std::array<char, PATH_MAX> target;
  const ssize_t length = ::readlinkat(link, "", target.data(), target.size());
  if (length < 0) return errno_status(errno, "read a link");
  put_in_front({target.data(), static_cast<size_t>(length)});
  return absl::OkStatus();
}

}  // namespace gpuperf
