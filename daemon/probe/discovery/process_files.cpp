#include "daemon/probe/discovery/process_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <utility>
#include <vector>

#include "daemon/base/proc_text.h"

namespace gpuperf {
namespace {

constexpr size_t kMaxSteps = 256;  // names on the way; links to links end there
constexpr mode_t kRead = 04;
constexpr mode_t kPass = 01;

// By mode alone: lists of rights (ACLs) only narrow or widen it for users that nobody else's
// process counts for.
bool may(const ProcessStatus& process, const struct stat& file, mode_t wanted) {
  if (process.uid == 0) return true;
  unsigned shift = 0;
  if (file.st_uid == process.uid) {
    shift = 6;
  } else if (std::ranges::find(process.groups, file.st_gid) != process.groups.end()) {
    shift = 3;
  }
  return (file.st_mode >> shift & wanted) == wanted;
}

// One walk from a root to a file.
class Walk {
 public:
  Walk(int root, const ProcessStatus& process) : root_(root), process_(process) {}

  // Not opened yet (O_PATH).
  Result<Fd> find(std::string_view path) {
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

 private:
  int folder() const { return folders_.empty() ? root_ : folders_.back().get(); }

  // The names of `path` before those that are still to be walked.
  void put_in_front(std::string_view path) {
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
  Result<Fd> step(const std::string& name) {
    struct stat passed {};
    if (::fstat(folder(), &passed) != 0) return errno_status(errno, "fstat");
    if (!may(process_, passed, kPass)) return errno_status(EACCES, name);
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
    if (!may(process_, status, kRead)) return errno_status(EACCES, name);
    return found;
  }

  Status follow(int link, const struct stat& status) {
    if (status.st_uid != 0 && status.st_uid != process_.uid) {
      return errno_status(EACCES, "a link that another user made");
    }
    std::array<char, PATH_MAX> target;
    const ssize_t length = ::readlinkat(link, "", target.data(), target.size());
    if (length < 0) return errno_status(errno, "read a link");
    put_in_front({target.data(), static_cast<size_t>(length)});
    return absl::OkStatus();
  }

  const int root_;
  const ProcessStatus& process_;
  std::vector<Fd> folders_;         // from below the root to where the walk is
  std::vector<std::string> names_;  // still to be walked, the last one first
};

Result<OpenedFile> open_below(int root, const ProcessStatus& process, std::string_view path) {
  const std::string name = std::string(path) + " as user " + std::to_string(process.uid);
  const Result<Fd> taken = Walk(root, process).find(path);
  if (!taken.ok()) {
    return Status(taken.status().code(), name + ": " + std::string(taken.status().message()));
  }
  return open_taken(*taken, name);
}

}  // namespace

// All through one descriptor of the process's folder, which is of no other process ever.
Result<ProcessFiles> ProcessFiles::open(std::string_view proc_root, uint32_t pid) {
  const std::string path = get_proc_path(proc_root, pid, "");
  const Fd folder(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return errno_status(errno, path + ": open");
  ASSIGN_OR_RETURN(ProcessStatus process,
                   read_process_status("/proc/self/fd/" + std::to_string(folder.get())));
  Fd root(::openat(folder.get(), "root", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root.valid()) return errno_status(errno, path + "root: open");
  return ProcessFiles(std::move(root), std::move(process));
}

Result<OpenedFile> ProcessFiles::open_file(std::string_view path) const {
  return open_below(root_.get(), process_, path);
}

Result<OpenedFile> open_host_file(const ProcessStatus& process, const std::string& host_root,
                                  std::string_view path) {
  const Fd root(::open((host_root + "/").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root.valid()) return errno_status(errno, host_root + "/: open");
  return open_below(root.get(), process, path);
}

}  // namespace gpuperf
