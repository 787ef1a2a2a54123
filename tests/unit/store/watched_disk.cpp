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
#include <vector>

#include "tests/unit/files.h"

namespace gpuperf::testing {
namespace {

namespace fs = std::filesystem;

using Names = std::map<std::string, ino_t>;  // of the folder's files

struct Disk {
  std::string folder;
  uint64_t steps_left = 0;  // until one fails; 0 = none does
  int error = 0;
  bool for_ever = false;
  bool has_failed = false;
  bool is_in_step = false;
  std::function<void()> then;
  std::vector<Names> names;               // synced, and after each change since
  std::map<ino_t, std::string> synced;    // what a file held when it was synced
  std::map<ino_t, std::string> unsynced;  // what it holds since
  std::vector<Fd> gone;  // files without a name, whose number no other may get before a sync
};
Disk* disk = nullptr;

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
    if (!disk->synced.contains(status.st_ino)) disk->unsynced.try_emplace(status.st_ino);
  }
  return names;
}

void note_names() {
  const Names names = list_names();
  if (names != disk->names.back()) disk->names.push_back(names);
}

bool is_to_fail_now() {
  if (disk->has_failed && disk->for_ever) return true;
  if (disk->steps_left == 0 || --disk->steps_left != 0) return false;
  disk->has_failed = true;
  return true;
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
  if (!is_to_fail_now()) return pass(act, note);
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

ino_t get_inode(int fd) {
  struct stat status {};
  return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

void keep_number_of(const char* path) {
  disk->gone.emplace_back(open(path, O_PATH | O_CLOEXEC));  // none where there is no such file
}

void sync_names() {
  disk->names = {list_names()};
  disk->gone.clear();
  std::erase_if(disk->synced, [](const auto& file) {
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
  static Disk the_disk;
  the_disk = {.folder = std::move(folder)};
  disk = &the_disk;
  disk->names = {list_names()};
}

WatchedDisk::~WatchedDisk() { disk = nullptr; }

void WatchedDisk::fail(uint64_t nth, int error, bool for_ever) {
  disk->steps_left = nth;
  disk->error = error;
  disk->for_ever = for_ever;
  disk->has_failed = false;
}

void WatchedDisk::heal() {
  disk->steps_left = 0;
  disk->for_ever = false;
}

bool WatchedDisk::has_failed() const { return disk->has_failed; }

void WatchedDisk::after_each_step(std::function<void()> then) { disk->then = std::move(then); }

void WatchedDisk::lose_power(const std::string& folder, std::mt19937& random) const {
  fs::remove_all(folder);
  fs::create_directories(folder);
  for (const auto& [name, inode] : disk->names[random() % disk->names.size()]) {
    const auto synced = disk->synced.find(inode);
    const auto unsynced = disk->unsynced.find(inode);
    const std::string bytes =
        unsynced == disk->unsynced.end() ? synced->second : choose_part(unsynced->second, random);
    std::ofstream(folder + "/" + name, std::ios::binary) << bytes;
  }
}

}  // namespace gpuperf::testing

// In place of libc's, for the whole program; files elsewhere are left to the kernel.

using gpuperf::testing::disk;
using gpuperf::testing::get_inode;
using gpuperf::testing::get_path;
using gpuperf::testing::is_watched;
using gpuperf::testing::keep_number_of;
using gpuperf::testing::pass;
using gpuperf::testing::step;

extern "C" ssize_t write(int fd, const void* bytes, size_t size) {
  if (!is_watched(fd)) return syscall(SYS_write, fd, bytes, size);
  const auto note = [fd] {
    disk->synced.erase(get_inode(fd));
    disk->unsynced[get_inode(fd)] = gpuperf::read_file(get_path(fd));
  };
  const ssize_t written = step([&] { return syscall(SYS_write, fd, bytes, size); }, note);
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
    if (get_path(fd) == disk->folder) return gpuperf::testing::sync_names();
    disk->unsynced.erase(get_inode(fd));
    disk->synced[get_inode(fd)] = gpuperf::read_file(get_path(fd));
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
