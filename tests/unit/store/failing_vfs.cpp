#include "tests/unit/store/failing_vfs.h"

#include <sqlite3.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/unit/files.h"
#include "tests/unit/store/failing_step.h"
#include "tests/unit/store/store_fixture.h"

namespace gpuperf::testing {
namespace {

// SQLite's calls carry no context of ours but through these.
sqlite3_vfs* real_vfs = nullptr;
sqlite3_vfs vfs{};
sqlite3_io_methods methods{};
FailingStep failing;
std::atomic<int> write_code = SQLITE_IOERR_WRITE;
std::atomic<uint64_t> synced = 0;

// A write, or where there are no bytes a change of the file's size to `offset`.
struct Change {
  size_t offset;
  std::string bytes;
};

struct Unsynced {
  std::string synced;  // the file as it was then
  std::vector<Change> changes;
};

constexpr size_t kSectorBytes = 512;
bool watches_syncs = false;
std::map<std::string, Unsynced> unsynced;  // by path

void note_change(const char* path, Change change) {
  if (!watches_syncs || path == nullptr) return;
  auto [entry, is_new] = unsynced.try_emplace(path);
  if (is_new) entry->second.synced = read_file(path);
  entry->second.changes.push_back(std::move(change));
}

void apply(const Change& change, std::mt19937& random, std::string& file) {
  if (change.bytes.empty()) {
    if (random() % 2 == 0) file.resize(change.offset);
    return;
  }
  const uint32_t kept_of_4 = random() % 5;  // none, all, or something in between
  for (size_t at = 0; at < change.bytes.size(); at += kSectorBytes) {
    if (random() % 4 >= kept_of_4) continue;
    const std::string sector = change.bytes.substr(at, kSectorBytes);
    file.resize(std::max(file.size(), change.offset + at + sector.size()));
    file.replace(change.offset + at, sector.size(), sector);
  }
}

// What SQLite allocates for a file of ours: this, and the real one right after it.
struct File {
  sqlite3_file base;
  const char* path;  // SQLite keeps it until the file is closed; null: a temporary one
  bool is_log;
};

const char* get_path(sqlite3_file* file) { return reinterpret_cast<File*>(file)->path; }

sqlite3_file* real(sqlite3_file* file) {
  return reinterpret_cast<sqlite3_file*>(reinterpret_cast<File*>(file) + 1);
}

int close_file(sqlite3_file* file) {
  return real(file)->pMethods == nullptr ? SQLITE_OK : real(file)->pMethods->xClose(real(file));
}
int read_some(sqlite3_file* file, void* to, int count, sqlite3_int64 offset) {
  return real(file)->pMethods->xRead(real(file), to, count, offset);
}
int write_some(sqlite3_file* file, const void* from, int count, sqlite3_int64 offset) {
  if (failing.is_now()) {
    // As a full disk does: half of it is there.
    if (count > 1) (void)real(file)->pMethods->xWrite(real(file), from, count / 2, offset);
    return write_code;
  }
  note_change(get_path(file), {static_cast<size_t>(offset),
                               {static_cast<const char*>(from), static_cast<size_t>(count)}});
  return real(file)->pMethods->xWrite(real(file), from, count, offset);
}
int truncate_file(sqlite3_file* file, sqlite3_int64 size) {
  if (failing.is_now()) return SQLITE_IOERR_TRUNCATE;
  note_change(get_path(file), {static_cast<size_t>(size), {}});
  return real(file)->pMethods->xTruncate(real(file), size);
}
int sync_file(sqlite3_file* file, int flags) {
  if (failing.is_now()) return SQLITE_IOERR_FSYNC;
  if (reinterpret_cast<File*>(file)->is_log) ++synced;
  if (watches_syncs && get_path(file) != nullptr) unsynced.erase(get_path(file));
  return real(file)->pMethods->xSync(real(file), flags);
}
int get_file_size(sqlite3_file* file, sqlite3_int64* size) {
  return real(file)->pMethods->xFileSize(real(file), size);
}
int lock_file(sqlite3_file* file, int kind) {
  return real(file)->pMethods->xLock(real(file), kind);
}
int unlock_file(sqlite3_file* file, int kind) {
  return real(file)->pMethods->xUnlock(real(file), kind);
}
int check_lock(sqlite3_file* file, int* held) {
  return real(file)->pMethods->xCheckReservedLock(real(file), held);
}
int control_file(sqlite3_file* file, int operation, void* argument) {
  return real(file)->pMethods->xFileControl(real(file), operation, argument);
}
int get_sector_size(sqlite3_file* file) { return real(file)->pMethods->xSectorSize(real(file)); }
int get_traits(sqlite3_file* file) {
  return real(file)->pMethods->xDeviceCharacteristics(real(file));
}
int map_shared(sqlite3_file* file, int page, int page_size, int extend, void volatile** at) {
  if (extend != 0 && failing.is_now()) return SQLITE_IOERR_SHMSIZE;
  return real(file)->pMethods->xShmMap(real(file), page, page_size, extend, at);
}
int lock_shared(sqlite3_file* file, int offset, int count, int flags) {
  return real(file)->pMethods->xShmLock(real(file), offset, count, flags);
}
void order_shared(sqlite3_file* file) { real(file)->pMethods->xShmBarrier(real(file)); }
int unmap_shared(sqlite3_file* file, int remove) {
  return real(file)->pMethods->xShmUnmap(real(file), remove);
}

int open_file(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* out_flags) {
  file->pMethods = nullptr;
  if (failing.is_now()) return SQLITE_CANTOPEN;
  real(file)->pMethods = nullptr;
  const int code = real_vfs->xOpen(real_vfs, name, real(file), flags, out_flags);
  if (real(file)->pMethods == nullptr) return code;
  reinterpret_cast<File*>(file)->path = name;
  reinterpret_cast<File*>(file)->is_log = (flags & SQLITE_OPEN_WAL) != 0;
  file->pMethods = &methods;
  return code;
}
int remove_file(sqlite3_vfs*, const char* name, int sync_folder) {
  if (failing.is_now()) return SQLITE_IOERR_DELETE;
  unsynced.erase(name);
  return real_vfs->xDelete(real_vfs, name, sync_folder);
}

}  // namespace

FailingVfs::FailingVfs() {
  real_vfs = sqlite3_vfs_find("unix");
  methods = {.iVersion = 2,
             .xClose = close_file,
             .xRead = read_some,
             .xWrite = write_some,
             .xTruncate = truncate_file,
             .xSync = sync_file,
             .xFileSize = get_file_size,
             .xLock = lock_file,
             .xUnlock = unlock_file,
             .xCheckReservedLock = check_lock,
             .xFileControl = control_file,
             .xSectorSize = get_sector_size,
             .xDeviceCharacteristics = get_traits,
             .xShmMap = map_shared,
             .xShmLock = lock_shared,
             .xShmBarrier = order_shared,
             .xShmUnmap = unmap_shared};
  vfs = *real_vfs;  // whatever else it does is not about a file's contents
  vfs.szOsFile = static_cast<int>(sizeof(File)) + real_vfs->szOsFile;
  vfs.zName = "failing";
  vfs.pNext = nullptr;
  vfs.xOpen = open_file;
  vfs.xDelete = remove_file;
  synced = 0;
  unsynced.clear();
  heal();
  (void)sqlite3_vfs_register(&vfs, 1);  // fails only without memory
}

FailingVfs::~FailingVfs() {
  heal();
  watches_syncs = false;
  (void)sqlite3_vfs_unregister(&vfs);
  (void)sqlite3_vfs_register(real_vfs, 1);
}

void FailingVfs::fail(uint64_t nth, int code, bool for_ever) {
  write_code = code;
  failing.fail(nth, for_ever);
}

void FailingVfs::heal() { failing.heal(); }

void FailingVfs::watch_syncs() {
  watches_syncs = true;
  unsynced.clear();
}

void FailingVfs::lose_power(std::mt19937& random) {
  watches_syncs = false;
  for (const auto& [path, state] : unsynced) {
    std::string file = state.synced;
    for (const Change& change : state.changes) apply(change, random, file);
    testing::write_file(path, file);
  }
  unsynced.clear();
}

bool FailingVfs::has_failed() const { return failing.has_failed(); }
uint64_t FailingVfs::log_syncs() const { return synced; }

}  // namespace gpuperf::testing
