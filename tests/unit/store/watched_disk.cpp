#include "tests/unit/store/watched_disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <utility>
#include <vector>

#include "tests/unit/files.h"
#include "tests/unit/store/failing_step.h"

namespace gpuperf::testing {
namespace {

namespace fs = std::filesystem;

using Names = std::map<std::string, ino_t>;  // of the folder's files

struct File {
  std::string bytes;
  bool is_synced = false;
};

struct Disk {
  explicit Disk(std::string its_folder) : folder(std::move(its_folder)) {}

  const std::string folder;
  FailingStep failing;
  int error = 0;
  bool is_in_step = false;
  std::function<void()> then;
  std::vector<Names> names;  // synced, and after each change since
  std::map<ino_t, File> files;
  std::vector<Fd> gone;  // files without a name, whose number no other may get before a sync
};
Disk* disk = nullptr;  // files are written while the program exits, too

std::string get_path(int fd) {
  std::error_code error;
  return fs::read_symlink("/proc/self/fd/" + std::to_string(fd), error).string();
}
bool is_inside(const std::string& path) { return path.starts_with(disk->folder + "/"); }

Names list_names() {
  Names names;
  for (const auto& entry : fs::directory_iterator(disk->folder)) {
    struct stat status {};
    if (stat(entry.path().c_str(), &status) != 0) continue;
    names[entry.path().filename()] = status.st_ino;
    disk->files.try_emplace(status.st_ino);
  }
  return names;
}

void note_names() {
  const Names names = list_names();
  if (names != disk->names.back()) disk->names.push_back(names);
}

// `act` in the watched folder, then `note`.
template <typename Act, typename Note>
auto pass(Act act, Note note) {
  disk->is_in_step = true;  // what is read and written below is the test's
  const auto result = act();
  const int error = errno;
  note();
  note_names();
  if (disk->then) disk->then();
  disk->is_in_step = false;
  errno = error;
  return result;
}

// Likewise, unless it is to fail.
template <typename Act, typename Note>
auto step(Act act, Note note) {
  if (!disk->failing.is_now()) return pass(act, note);
  errno = disk->error;
  return decltype(act())(-1);
}

bool is_watched(int fd) {
  if (disk == nullptr || disk->is_in_step) return false;
  const std::string path = get_path(fd);
  return path == disk->folder || is_inside(path);
}
bool is_watched(const char* path) {
  return disk != nullptr && !disk->is_in_step && is_inside(path);
}

void note_file(int fd, bool is_synced) {
  struct stat status {};
  if (fstat(fd, &status) == 0) disk->files[status.st_ino] = {read_file(get_path(fd)), is_synced};
}

void keep_number_of(const char* path) {
  disk->gone.emplace_back(open(path, O_PATH | O_CLOEXEC));  // none where there is no such file
}

void sync_names() {
  disk->names = {list_names()};
  disk->gone.clear();
  std::erase_if(disk->files, [](const auto& file) {
    return std::ranges::none_of(disk->names.back(),
                                [&](const auto& name) { return name.second == file.first; });
  });
}

// Some of what was written and not synced.
std::string choose_part(const std::string& bytes, std::mt19937& random) {
  std::string part = bytes.substr(0, random() % (bytes.size() + 1));
  if (random() % 2 == 0) part.resize(bytes.size());  // its length is there, its end is not
  return part;
}

}  // namespace

WatchedDisk::WatchedDisk(std::string folder) {
  disk = new Disk(std::move(folder));
  disk->names = {list_names()};
}

WatchedDisk::~WatchedDisk() { delete std::exchange(disk, nullptr); }

void WatchedDisk::fail(uint64_t nth, int error, bool for_ever) {
  disk->error = error;
  disk->failing.fail(nth, for_ever);
}

void WatchedDisk::heal() { disk->failing.heal(); }

bool WatchedDisk::has_failed() const { return disk->failing.has_failed(); }

void WatchedDisk::after_each_step(std::function<void()> then) { disk->then = std::move(then); }

void WatchedDisk::lose_power(const std::string& folder, std::mt19937& random) const {
  fs::remove_all(folder);
  fs::create_directories(folder);
  for (const auto& [name, inode] : disk->names[random() % disk->names.size()]) {
    const File& file = disk->files.at(inode);
    std::ofstream(folder + "/" + name, std::ios::binary)
        << (file.is_synced ? file.bytes : choose_part(file.bytes, random));
  }
}

}  // namespace gpuperf::testing

// In place of libc's, for the whole program; files elsewhere are left to the kernel.

using gpuperf::testing::disk;
using gpuperf::testing::get_path;
using gpuperf::testing::is_watched;
using gpuperf::testing::keep_number_of;
using gpuperf::testing::note_file;
using gpuperf::testing::pass;
using gpuperf::testing::step;
using gpuperf::testing::sync_names;

extern "C" ssize_t write(int fd, const void* bytes, size_t size) {
  if (!is_watched(fd)) return syscall(SYS_write, fd, bytes, size);
  const ssize_t written =
      step([&] { return syscall(SYS_write, fd, bytes, size); }, [fd] { note_file(fd, false); });
  if (written < 0) {
    const int error = errno;
    (void)syscall(SYS_write, fd, bytes, size / 2);
    errno = error;
  }
  return written;
}

extern "C" int fsync(int fd) {
  if (!is_watched(fd)) return static_cast<int>(syscall(SYS_fsync, fd));
  const auto note = [fd] {
    if (get_path(fd) == disk->folder) return sync_names();
    note_file(fd, true);
  };
  return static_cast<int>(step([fd] { return syscall(SYS_fsync, fd); }, note));
}

extern "C" int rename(const char* from, const char* to) noexcept {
  if (!is_watched(to)) return static_cast<int>(syscall(SYS_rename, from, to));
  keep_number_of(to);
  return static_cast<int>(step([=] { return syscall(SYS_rename, from, to); }, [] {}));
}

extern "C" int unlink(const char* path) noexcept {
  if (!is_watched(path)) return static_cast<int>(syscall(SYS_unlink, path));
  keep_number_of(path);
  return static_cast<int>(pass([=] { return syscall(SYS_unlink, path); }, [] {}));
}
