#include "daemon/probe/discovery/file_watch.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace gpuperf {

Result<FileWatch> FileWatch::open() {
  Fd inotify(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!inotify.valid()) return errno_status(errno, "file watch: inotify_init1");
  return FileWatch(std::move(inotify));
}

Result<int> FileWatch::add(int fd) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  const int id = inotify_add_watch(inotify_.get(), path.c_str(), IN_MODIFY);
  if (id < 0) return errno_status(errno, "file watch: inotify_add_watch");
  return id;
}

void FileWatch::remove(int id) {
  (void)inotify_rm_watch(inotify_.get(), id);  // gone already when the file is
}

bool FileWatch::drain(const std::function<void(int)>& on_written) {
  alignas(inotify_event) char buffer[4096];
  bool complete = true;
  for (ssize_t length; (length = ::read(inotify_.get(), buffer, sizeof buffer)) > 0;) {
    for (ssize_t at = 0; at < length;) {
      inotify_event event;
      std::memcpy(&event, buffer + at, sizeof event);
      at += static_cast<ssize_t>(sizeof event + event.len);
      if ((event.mask & IN_Q_OVERFLOW) != 0) complete = false;
      if ((event.mask & IN_MODIFY) != 0) on_written(event.wd);
    }
  }
  return complete;
}

}  // namespace gpuperf
