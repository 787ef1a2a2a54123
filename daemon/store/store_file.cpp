#include "daemon/store/store_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <span>
#include <system_error>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/fd.h"
#include "daemon/base/log.h"
#include "daemon/store/folders.h"

namespace gpuperf {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kFileMode = 0640;
constexpr int64_t kNsPerUnixSecond = 1'000'000'000;
constexpr const char* kAdvice = "; let gpuperfd write there, or give the store another path";
// What SQLite keeps beside the file.
constexpr const char* kCompanions[] = {"-wal", "-shm", "-journal"};

Status add_advice(const Status& status) {
  if (status.ok()) return status;
  return {status.code(), std::string(status.message()) + kAdvice};
}

Status make_error(int error_number, const std::string& what) {
  return add_advice(errno_status(error_number, what));
}

std::string get_aside_path(const std::string& path, int64_t unix_seconds) {
  return path + ".corrupt-" + std::to_string(unix_seconds);
}

// When each damaged store that is kept was moved aside, in unix seconds, oldest first.
std::vector<int64_t> find_set_aside(const std::string& path) {
  const std::string prefix = path + ".corrupt-";
  std::vector<int64_t> found;
  std::error_code error;  // an unreadable folder has none that could be removed
  for (const auto& entry : fs::directory_iterator(fs::path(path).parent_path(), error)) {
    const std::string name = entry.path().string();
    if (!name.starts_with(prefix)) continue;
    int64_t unix_seconds = 0;
    const char* end = name.data() + name.size();
    const auto parsed = std::from_chars(name.data() + prefix.size(), end, unix_seconds);
    if (parsed.ec == std::errc() && parsed.ptr == end) found.push_back(unix_seconds);
  }
  std::ranges::sort(found);
  return found;
}

// All but the newest that may stay beside one more.
void remove_oldest(const std::string& path, std::span<const int64_t> found) {
  for (size_t i = 0; i + kMaxSetAside <= found.size(); ++i) {
    const std::string oldest = get_aside_path(path, found[i]);
    log_warn("damaged slow-call store removed", {{"path", oldest}});
    std::error_code error;  // what cannot be removed stays
    fs::remove(oldest, error);
    for (const char* companion : kCompanions) fs::remove(oldest + companion, error);
  }
}

}  // namespace

Status prepare_store_file(const std::string& path) {
  RETURN_IF_ERROR(add_advice(make_folders(fs::path(path).parent_path())));
  // O_NONBLOCK: somebody may have put a FIFO there.
  constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  Fd fd(open(path.c_str(), kFlags | O_CREAT | O_EXCL, kFileMode));
  if (fd.valid()) {
    // The umask may have taken the group's right away.
    if (fchmod(fd.get(), kFileMode) != 0) return make_error(errno, path + ": set mode");
    return absl::OkStatus();
  }
  if (errno != EEXIST) return make_error(errno, path + ": make file");
  fd = Fd(open(path.c_str(), kFlags));
  if (!fd.valid()) return make_error(errno, path + ": open");
  struct stat file {};
  if (fstat(fd.get(), &file) != 0) return make_error(errno, path + ": open");
  if (!S_ISREG(file.st_mode)) {
    return absl::FailedPreconditionError(path + ": open: not a regular file; give the store " +
                                         "another path");
  }
  return absl::OkStatus();
}

Status set_aside_store(const std::string& path, const Status& damage) {
  const std::vector<int64_t> found = find_set_aside(path);
  remove_oldest(path, found);
  int64_t unix_seconds = SystemClock().unix_ns() / kNsPerUnixSecond;
  if (!found.empty()) unix_seconds = std::max(unix_seconds, found.back() + 1);
  const std::string aside = get_aside_path(path, unix_seconds);
  // The file first: a log without its file is dropped by SQLite, a file without its log is found
  // damaged again.
  if (std::rename(path.c_str(), aside.c_str()) != 0 && errno != ENOENT) {
    return make_error(errno, path + ": move a damaged store aside");
  }
  for (const char* companion : kCompanions) {
    if (std::rename((path + companion).c_str(), (aside + companion).c_str()) != 0 &&
        errno != ENOENT) {
      return make_error(errno, path + companion + ": move a damaged store aside");
    }
  }
  log_warn("damaged slow-call store moved aside, a new one is created",
           {{"path", path}, {"kept_as", aside}, {"damage", std::string(damage.message())}});
  return absl::OkStatus();
}

}  // namespace gpuperf
