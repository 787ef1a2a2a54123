// Names in processes that run: files replaced, mount namespaces, the vDSO.

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "daemon/base/proc_text.h"
#include "daemon/resolve/frame_finder.h"
#include "tests/unit/resolve/print_frames.h"
#include "tests/unit/resolve/sample_library.h"

namespace gpuperf {
namespace {

namespace fs = std::filesystem;

// A child that prepares its view of the file system, maps a file and waits.
class MappingProcess {
 public:
  // `prepare` runs in the child; false fails it.
  MappingProcess(const fs::path& file, const std::function<bool()>& prepare) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("pipe");
    pid_ = ::fork();
    if (pid_ == 0) {
      uint64_t base = 0;
      if (prepare()) {
        const int fd = ::open(file.c_str(), O_RDONLY);
        void* const mapped = ::mmap(nullptr, kBytes, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
        if (mapped != MAP_FAILED) base = reinterpret_cast<uint64_t>(mapped);
      }
      (void)::write(ends[1], &base, sizeof base);
      while (true) ::pause();
    }
    (void)::read(ends[0], &base_, sizeof base_);
    ::close(ends[0]);
    ::close(ends[1]);
  }
  ~MappingProcess() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  MappingProcess(const MappingProcess&) = delete;
  MappingProcess& operator=(const MappingProcess&) = delete;

  uint64_t base() const { return base_; }  // 0 = preparing failed
  ProcessKey key() const {
    const auto ticks = read_start_ticks("/proc", static_cast<uint32_t>(pid_));
    return {.pid = static_cast<uint32_t>(pid_), .start_boot_ns = ticks.value() * 10'000'000};
  }

 private:
  static constexpr size_t kBytes = 0x4000;
  pid_t pid_ = 0;
  uint64_t base_ = 0;
};

class RealProcessTest : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "mounts and looks through mappings: needs root";
  }
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder() / name, std::ios::binary) << bytes;
  }
  fs::path folder() const { return sample_.folder(); }

  FrameGroup find_outer(const MappingProcess& process) {
    const CodeAddress code{process.base() + sample_.outer().file_offset_bytes, true};
    return finder_.find_frames(process.key(), {&code, 1}).at(0);
  }

  SampleLibrary sample_;
  SystemClock clock_;
  FrameFinder finder_{{}, clock_};
};

TEST_F(RealProcessTest, ReadsAReplacedLibraryThroughTheMappingThatIsHeld) {
  write("a.so", sample_.linked());
  const MappingProcess process(folder() / "a.so", [] { return true; });
  ASSERT_NE(process.base(), 0u);
  fs::remove(folder() / "a.so");
  write("a.so", SampleLibrary("-gdwarf-4").stripped());

  // From full.debug beside it, by its name, its checksum and the build id of the library held.
  const FrameGroup group = find_outer(process);

  EXPECT_EQ(group.back().symbol, "sample::outer(sample::Shape&)");
  EXPECT_EQ(group.back().module, folder() / "a.so");
  EXPECT_EQ(group.back().file, sample_.source_path());
}

TEST_F(RealProcessTest, ReadsADeletedLibraryThroughTheMappingThatIsHeld) {
  write("a.so", sample_.full());
  const MappingProcess process(folder() / "a.so", [] { return true; });
  ASSERT_NE(process.base(), 0u);
  fs::remove(folder() / "a.so");

  EXPECT_EQ(find_outer(process).back().symbol, "sample::outer(sample::Shape&)");
  EXPECT_EQ(find_outer(process).back().file, sample_.source_path());
}

// A tmpfs that only the process sees holds the library and its debug file.
TEST_F(RealProcessTest, LooksForFilesInTheMountNamespaceOfTheProcess) {
  const std::string library = sample_.stripped();
  const std::string debug = sample_.debug();
  const fs::path debug_path = sample_.build_id_path();
  const auto prepare = [&] {
    if (::unshare(CLONE_NEWNS) != 0) return false;
    if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
    if (::mount("tmpfs", "/usr/lib/debug", "tmpfs", 0, nullptr) != 0 &&
        ::mount("tmpfs", "/usr/lib", "tmpfs", 0, nullptr) != 0) {
      return false;
    }
    if (::mount("tmpfs", folder().c_str(), "tmpfs", 0, nullptr) != 0) return false;
    write("inside.so", library);
    fs::create_directories(debug_path.parent_path());
    std::ofstream(debug_path, std::ios::binary) << debug;
    return true;
  };
  const MappingProcess process(folder() / "inside.so", prepare);
  if (process.base() == 0) GTEST_SKIP() << "no mount namespaces here";
  ASSERT_FALSE(fs::exists(folder() / "inside.so"));
  ASSERT_FALSE(fs::exists(debug_path));

  const FrameGroup group = find_outer(process);

  EXPECT_EQ(group.back().symbol, "sample::outer(sample::Shape&)");
  EXPECT_EQ(group.back().file, sample_.source_path());
}

TEST_F(RealProcessTest, NamesTheFunctionsOfTheVdso) {
  void* const vdso = ::dlopen("linux-vdso.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (vdso == nullptr) GTEST_SKIP() << "this process has no vDSO";
  const auto address = reinterpret_cast<uint64_t>(::dlsym(vdso, "__vdso_clock_gettime"));
  if (address == 0) GTEST_SKIP() << "this vDSO has no clock_gettime";
  const CodeAddress code{address + 1};
  // Forked from this process, so it has the vDSO at the same address.
  const MappingProcess process("/proc/self/exe", [] { return true; });

  const StackFrame frame = finder_.find_frames(process.key(), {&code, 1}).at(0).at(0);

  EXPECT_TRUE(frame.symbol == "__vdso_clock_gettime" || frame.symbol == "clock_gettime")
      << frame.symbol;
  EXPECT_EQ(frame.module, "[vdso]");
  EXPECT_EQ(frame.offset_bytes, 1u);
}

}  // namespace
}  // namespace gpuperf
