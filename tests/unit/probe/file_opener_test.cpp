#include "daemon/probe/discovery/file_opener.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "daemon/probe/discovery/process_maps.h"
#include "tests/unit/probe/fake_proc.h"

namespace gpuperf {
namespace {

namespace fs = std::filesystem;
using absl::StatusCode;

std::string read_all(const Fd& fd) {
  char bytes[64];
  const ssize_t count = ::pread(fd.get(), bytes, sizeof bytes, 0);
  return std::string(bytes, static_cast<size_t>(std::max<ssize_t>(count, 0)));
}

class FileOpenerTest : public testing::Test {
 protected:
  FileOpenerTest() { fake_.add_process(7, "/app"); }

  // The only mapping of pid 7.
  MapEntry get_mapping() { return read_executable_maps(fake_.proc(), 7).value().entries.at(0); }
  Result<OpenedFile> open() { return open_mapped_file(fake_.proc(), 7, get_mapping()); }

  FakeProc fake_;
};

TEST_F(FileOpenerTest, OpensByThePathUnderTheProcessesRoot) {
  const fs::path real = fake_.add_file(7, "/lib/a b.so", "content");
  fake_.map(7, real, "/lib/a b.so");

  const auto opened = open();

  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(read_all(opened->fd), "content");
  struct stat expected {};
  ASSERT_EQ(::stat(real.c_str(), &expected), 0);
  EXPECT_EQ(opened->identity.inode, expected.st_ino);
  EXPECT_EQ(opened->identity.size_bytes, 7u);
  EXPECT_EQ(opened->identity.changed_unix_ns,
            expected.st_ctim.tv_sec * 1'000'000'000 + expected.st_ctim.tv_nsec);
  EXPECT_EQ(::fcntl(opened->fd.get(), F_GETFL) & O_ACCMODE, O_RDONLY);
  EXPECT_TRUE(::fcntl(opened->fd.get(), F_GETFD) & FD_CLOEXEC);
}

TEST_F(FileOpenerTest, OpensByTheMappingRatherThanByAPath) {
  const fs::path real = fake_.add_file(7, "/kept/a.so", "content");
  const std::string range = fake_.map(7, real, "/lib/a.so");
  fs::create_symlink(real, fake_.directory(7) / "map_files" / range);

  EXPECT_EQ(read_all(open().value().fd), "content");
}

TEST_F(FileOpenerTest, DoesNotTakeAnotherFileForTheMappedOneByALink) {
  const fs::path real = fake_.add_file(7, "/lib/a.so", "mapped");
  fake_.map(7, real, "/lib/a.so");
  fs::rename(real, fake_.root(7) / "kept");
  fake_.add_file(7, "/other", "not mapped");
  fs::create_symlink("/other", real);

  EXPECT_EQ(open().status().code(), StatusCode::kNotFound);
}

TEST_F(FileOpenerTest, FollowsNoLinkInANameThatAProcessLeft) {
  const fs::path real = fake_.add_file(7, "/lib/a.so", "content");
  const fs::path link = fake_.root(7) / "link.so";
  fs::create_symlink(real, link);

  EXPECT_EQ(read_all(open_once_mapped_file(real).value().fd), "content");
  EXPECT_FALSE(open_once_mapped_file(link).ok());
  EXPECT_TRUE(open_named_file(link).ok());
}

TEST_F(FileOpenerTest, FollowsAbsoluteLinksAsTheProcessDoes) {
  const fs::path real = fake_.add_file(7, "/opt/real.so", "inside");
  fs::create_directories(fake_.root(7) / "lib");
  fs::create_symlink("/opt/real.so", fake_.root(7) / "lib/link.so");
  fake_.map(7, real, "/lib/link.so");

  const auto opened = open();

  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(read_all(opened->fd), "inside");
}

TEST_F(FileOpenerTest, OpensAReplacedFileByItsMapping) {
  const fs::path real = fake_.add_file(7, "/lib/a.so", "old");
  const std::string range = fake_.map(7, real, "/lib/a.so");
  fs::rename(real, fake_.root(7) / "kept");
  fs::create_symlink(fake_.root(7) / "kept", fake_.directory(7) / "map_files" / range);
  fake_.add_file(7, "/lib/a.so", "new");

  const auto opened = open();

  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(read_all(opened->fd), "old");
}

TEST_F(FileOpenerTest, RefusesARangeThatMapsAnotherFileByNow) {
  const fs::path real = fake_.add_file(7, "/lib/a.so", "old");
  const std::string range = fake_.map(7, real, "/lib/a.so");
  fs::rename(real, fake_.root(7) / "kept");
  const fs::path other = fake_.add_file(7, "/lib/b.so", "other");
  fs::create_symlink(other, fake_.directory(7) / "map_files" / range);

  const auto opened = open();

  EXPECT_EQ(opened.status().message(), "/lib/a.so in pid 7: the mapping is now of another file");
}

TEST_F(FileOpenerTest, OpensByTheHostsPathWhenTheProcessIsGone) {
  const fs::path real = fake_.add_file(7, "/lib/a.so", "content");
  fake_.map(7, real, real.string());
  const MapEntry mapping = get_mapping();
  fake_.remove_process(7);

  const auto opened = open_mapped_file(fake_.proc(), 7, mapping);

  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(read_all(opened->fd), "content");
}

TEST_F(FileOpenerTest, SaysWhatItTriedWhenTheFileCannotBeFound) {
  const fs::path real = fake_.add_file(7, "/lib/a.so", "content");
  const std::string range = fake_.map(7, real, "/lib/a.so");
  fs::remove(real);

  const Status status = open().status();

  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "/lib/a.so in pid 7: open by mapping and by path: " + fake_.proc() +
                                  "/7/map_files/" + range + ": open: No such file or directory");
}

TEST_F(FileOpenerTest, NeitherWaitsForAFifoNorTouchesADevice) {
  const fs::path fifo = fake_.root(7) / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  fake_.map(7, fifo, "/fifo");

  EXPECT_EQ(open().status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(open_named_file(fifo).status().message(), fifo.string() + ": not a regular file");
  EXPECT_EQ(open_named_file("/dev/zero").status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(open_named_file("/tmp").status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(FileOpenerTest, RefusesMemoryWithoutAFile) {
  const MapEntry vdso{.start_address = 1, .end_address = 2, .path = "[vdso]"};

  EXPECT_EQ(open_mapped_file(fake_.proc(), 7, vdso).status().code(),
            StatusCode::kFailedPrecondition);
}

TEST_F(FileOpenerTest, EndsAtALoopOfLinks) {
  const fs::path real = fake_.add_file(7, "/kept", "content");
  fake_.map(7, real, "/lib/a.so");
  fs::create_directories(fake_.root(7) / "lib");
  fs::create_symlink("/lib/a.so", fake_.root(7) / "lib/a.so");

  EXPECT_EQ(open().status().code(), StatusCode::kNotFound);
}

TEST_F(FileOpenerTest, GivesARewrittenFileAnotherIdentity) {
  const fs::path real = fake_.add_file(7, "/lib/a.so", "content");
  fake_.map(7, real, "/lib/a.so");
  const FileIdentity before = open().value().identity;

  std::ofstream(real) << "longer content";

  EXPECT_NE(open().value().identity, before);
}

// The real kernel: this process maps a file and deletes it.
TEST(FileOpenerRealTest, OpensADeletedFileThatIsStillMapped) {
  char path[] = "/tmp/gpuperf-mapped-XXXXXX";
  const Fd fd(::mkstemp(path));
  ASSERT_EQ(::write(fd.get(), "content", 7), 7);
  void* const memory = ::mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd.get(), 0);
  ASSERT_NE(memory, MAP_FAILED) << "is /tmp mounted noexec?";
  ASSERT_EQ(::unlink(path), 0);
  const auto pid = static_cast<uint32_t>(::getpid());
  const ProcessMaps maps = read_executable_maps("/proc", pid).value();
  const auto mapping = std::ranges::find_if(maps.entries, [&](const MapEntry& entry) {
    return entry.start_address == reinterpret_cast<uint64_t>(memory);
  });
  ASSERT_NE(mapping, maps.entries.end());

  const auto opened = open_mapped_file("/proc", pid, *mapping);

  ::munmap(memory, 4096);
  EXPECT_TRUE(mapping->deleted);
  EXPECT_EQ(mapping->path, path);
  if (absl::IsPermissionDenied(opened.status())) {
    GTEST_SKIP() << "opening by mapping needs CAP_CHECKPOINT_RESTORE: " << opened.status();
  }
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(read_all(opened->fd), "content");
}

// Runs in a child with mounts of its own; the exit code says what failed.
int compare_overlays(const fs::path& base) {
  if (::unshare(CLONE_NEWNS) != 0) return 77;
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return 77;
  if (::mount("tmpfs", base.c_str(), "tmpfs", 0, nullptr) != 0) return 77;
  for (const char* name : {"lower", "up1", "work1", "at1", "up2", "work2", "at2"}) {
    fs::create_directory(base / name);
  }
  std::ofstream(base / "lower/lib.so") << "shared layer";
  for (const std::string n : {"1", "2"}) {
    const std::string options = "lowerdir=" + (base / "lower").string() +
                                ",upperdir=" + (base / ("up" + n)).string() +
                                ",workdir=" + (base / ("work" + n)).string();
    const fs::path at = base / ("at" + n);
    if (::mount("overlay", at.c_str(), "overlay", 0, options.c_str()) != 0) return 77;
  }
  struct stat one {
  }, two{};
  if (::stat((base / "at1/lib.so").c_str(), &one) != 0) return 1;
  if (::stat((base / "at2/lib.so").c_str(), &two) != 0) return 1;
  if (one.st_dev == two.st_dev) return 2;  // then this test shows nothing
  const auto first = open_named_file(base / "at1/lib.so");
  const auto second = open_named_file(base / "at2/lib.so");
  if (!first.ok() || !second.ok()) return 3;
  if (first->identity != second->identity) return 4;
  std::ofstream(base / "at2/lib.so", std::ios::app) << ", changed in one";
  const auto copied = open_named_file(base / "at2/lib.so");
  if (!copied.ok() || copied->identity == first->identity) return 5;
  return 0;
}

TEST(FileOpenerRealTest, TakesOneLayerSeenThroughTwoOverlaysForOneFile) {
  const FakeProc directory;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(compare_overlays(fs::path(directory.proc())));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));

  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "overlay mounts need CAP_SYS_ADMIN and overlayfs";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace gpuperf
