#include "daemon/resolve/dwarf_worker.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "daemon/resolve/dwarf_message.h"
#include "tests/unit/files.h"
#include "tests/unit/resolve/sample_library.h"

namespace gpuperf {
namespace {

using std::chrono::milliseconds;

class DwarfWorkerTest : public testing::Test {
 protected:
  Fd open(const std::string& name) const {
    return Fd(::open((sample_.folder() / name).c_str(), O_RDONLY | O_CLOEXEC));
  }
  // The library whose table of lines has `rows` more rows, in one byte each.
  Fd make_line_bomb(size_t rows) const {
    sample_.run("objcopy --dump-section .debug_line=line full.so copy.so");
    std::string lines = sample_.read("line");
    lines += std::string(rows, '\xf0') + std::string("\0\1\1", 3);
    const auto unit_bytes = static_cast<uint32_t>(lines.size() - sizeof(uint32_t));
    std::memcpy(lines.data(), &unit_bytes, sizeof unit_bytes);
    std::ofstream(sample_.folder() / "line", std::ios::binary) << lines;
    sample_.run("objcopy --update-section .debug_line=line full.so bomb.so");
    return open("bomb.so");
  }
  uint64_t get_vaddr() const { return sample_.outer().file_offset_bytes; }
  std::string find_symbol(DwarfWorker& worker, const Fd& file, uint64_t id) const {
    const uint64_t vaddr = get_vaddr();
    const auto frames = worker.find_frames({.id = id, .fd = file.get()}, {&vaddr, 1});
    if (!frames) return "cannot tell now";
    return frames->at(0).empty() ? "" : frames->at(0).back().symbol;
  }
  static constexpr const char* kOuter = "_ZN6sample5outerERNS_5ShapeE";

  const SampleLibrary sample_;
};

TEST_F(DwarfWorkerTest, AnswersForEveryAddressHoweverMany) {
  DwarfWorker worker({});
  const Fd file = open("full.so");
  std::vector<uint64_t> vaddrs(3 * kMaxRequestAddresses + 1, get_vaddr());
  vaddrs.back() = 1;

  const auto frames = worker.find_frames({.id = 1, .fd = file.get()}, vaddrs);

  ASSERT_TRUE(frames.has_value());
  ASSERT_EQ(frames->size(), vaddrs.size());
  EXPECT_EQ(frames->front().back().symbol, kOuter);
  EXPECT_EQ(frames->front().back().begin_vaddr, get_vaddr());
  EXPECT_EQ(frames->at(vaddrs.size() - 2), frames->front());
  EXPECT_TRUE(frames->back().empty());
}

TEST_F(DwarfWorkerTest, HasNoAnswersForFilesThatAreNone) {
  DwarfWorker worker({});
  std::ofstream(sample_.folder() / "text") << "no ELF file";

  EXPECT_EQ(find_symbol(worker, open("text"), 1), "");
  EXPECT_EQ(find_symbol(worker, open("stripped.so"), 2), "");
  EXPECT_EQ(find_symbol(worker, open("full.so"), 3), kOuter);
}

TEST_F(DwarfWorkerTest, RunsAsNobodyWithoutFilesOrFurtherRights) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root has rights to give up";
  DwarfWorker worker({});
  const Fd secret(::open("/etc/passwd", O_RDONLY));  // inherited by a plain fork
  (void)find_symbol(worker, open("full.so"), 1);
  const std::string folder = "/proc/" + std::to_string(worker.pid());

  const std::string status = read_file(folder + "/status");

  EXPECT_NE(status.find("Name:\tgpuperf-dwarf\n"), std::string::npos);
  EXPECT_NE(status.find("Uid:\t65534\t65534\t65534\t65534\n"), std::string::npos);
  EXPECT_NE(status.find("CapPrm:\t0000000000000000\n"), std::string::npos);
  EXPECT_NE(status.find("NoNewPrivs:\t1\n"), std::string::npos);
  EXPECT_NE(status.find("Seccomp:\t2\n"), std::string::npos);
  for (const auto& entry : std::filesystem::directory_iterator(folder + "/fd")) {
    EXPECT_NE(std::filesystem::read_symlink(entry.path()), "/etc/passwd");
  }
}

// As in a service with few capabilities, whether its user is root or not.
TEST_F(DwarfWorkerTest, HasNoCapabilityWhereItMayNotChangeItsUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root has rights to give up";
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct all[_LINUX_CAPABILITY_U32S_3] = {};
  ASSERT_EQ(::syscall(SYS_capget, &header, all), 0);
  __user_cap_data_struct few[_LINUX_CAPABILITY_U32S_3] = {all[0], all[1]};
  few[0].effective &= ~(1U << CAP_SETUID | 1U << CAP_SETGID);
  ASSERT_EQ(::syscall(SYS_capset, &header, few), 0);
  DwarfWorker worker({});
  const Fd file = open("full.so");
  const std::string found = find_symbol(worker, file, 1);
  ASSERT_EQ(::syscall(SYS_capset, &header, all), 0);

  const std::string status = read_file("/proc/" + std::to_string(worker.pid()) + "/status");

  EXPECT_EQ(found, kOuter);
  for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapAmb"}) {
    EXPECT_NE(status.find(std::string(set) + ":\t0000000000000000\n"), std::string::npos) << status;
  }
}

TEST_F(DwarfWorkerTest, GetsNoMoreMemoryThanItMayHave) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "memory is not limited under the address sanitizer";
#endif
  DwarfWorker worker(
      {.memory_bytes = size_t{64} << 20, .timeout = milliseconds(60'000), .pause_factor = 0});
  const Fd bomb = make_line_bomb(size_t{8} << 20);  // 800 MB as libdw keeps it
  const uint64_t vaddr = get_vaddr();

  const auto frames = worker.find_frames({.id = 1, .fd = bomb.get()}, {&vaddr, 1});

  // libdw does without lines, or the worker dies of it: both will do.
  ASSERT_TRUE(frames.has_value());
  for (const SourceFrame& frame : frames->at(0)) EXPECT_EQ(frame.line, 0u);
  EXPECT_EQ(find_symbol(worker, open("full.so"), 2), kOuter);
}

TEST_F(DwarfWorkerTest, GivesUpOnAFileThatTakesTooLongAndDoesNotTryItAgain) {
  DwarfWorker worker({.timeout = milliseconds(30), .pause_factor = 0});
  const Fd bomb = make_line_bomb(size_t{4} << 20);  // 2 s

  EXPECT_EQ(find_symbol(worker, bomb, 1), "");
  EXPECT_EQ(worker.pid(), 0);
  EXPECT_EQ(find_symbol(worker, bomb, 1), "");
  EXPECT_EQ(worker.pid(), 0);
}

TEST_F(DwarfWorkerTest, PausesAfterAFailure) {
  DwarfWorker worker({.timeout = milliseconds(30), .pause_factor = 100'000});
  (void)find_symbol(worker, make_line_bomb(size_t{4} << 20), 1);

  EXPECT_EQ(find_symbol(worker, open("full.so"), 2), "cannot tell now");
}

TEST_F(DwarfWorkerTest, StartsAnotherForOneThatDiedWhileNotAsked) {
  DwarfWorker worker({});
  ASSERT_EQ(find_symbol(worker, open("full.so"), 1), kOuter);
  const pid_t first = worker.pid();
  ASSERT_EQ(::kill(first, SIGKILL), 0);
  while (read_file("/proc/" + std::to_string(first) + "/stat").find(") Z ") == std::string::npos) {
    std::this_thread::yield();
  }

  EXPECT_EQ(find_symbol(worker, open("full.so"), 1), kOuter);
  EXPECT_NE(worker.pid(), first);
}

TEST_F(DwarfWorkerTest, LetsAnIdleOneEndSoThatNoFileStaysOpen) {
  DwarfWorker worker({.idle = milliseconds(50)});
  ASSERT_EQ(find_symbol(worker, open("full.so"), 1), kOuter);
  const std::string stat = "/proc/" + std::to_string(worker.pid()) + "/stat";
  while (read_file(stat).find(") Z ") == std::string::npos) std::this_thread::yield();

  EXPECT_EQ(find_symbol(worker, open("full.so"), 1), kOuter);
}

TEST_F(DwarfWorkerTest, LeavesNoProcessBehind) {
  pid_t pid = 0;
  {
    DwarfWorker worker({});
    (void)find_symbol(worker, open("full.so"), 1);
    pid = worker.pid();
    ASSERT_GT(pid, 0);
  }

  EXPECT_EQ(::kill(pid, 0), -1);
}

TEST(DwarfMessageTest, BringsFramesAcross) {
  const std::vector<SourceFrame> frames = {{"a", "/a.h", 7, 0}, {"", "", 0, 0x1000}};
  ReplyWriter writer;
  ASSERT_TRUE(writer.add(frames));
  ASSERT_TRUE(writer.add({}));

  const auto decoded = decode_reply(writer.bytes());

  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(*decoded, (std::vector<std::vector<SourceFrame>>{frames, {}}));
}

TEST(DwarfMessageTest, RefusesWhatIsCutOrTooLong) {
  const std::vector<SourceFrame> frames = {{"symbol", "/file", 7, 9}};
  ReplyWriter writer;
  ASSERT_TRUE(writer.add(frames));
  const std::string good = writer.bytes();

  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(decode_reply(std::string_view(good).substr(0, length)).has_value()) << length;
  }
  EXPECT_FALSE(decode_reply(good + "x").has_value());
  for (size_t i = 0; i + 4 <= good.size(); ++i) {
    std::string bad = good;
    std::memset(&bad[i], 0xff, 4);
    (void)decode_reply(bad);  // no crash, no large allocation
  }
}

TEST(DwarfMessageTest, EndsAReplyBeforeTheFrameThatHasNoRoom) {
  const std::string text(DwarfReader::kMaxTextBytes, 'x');
  const std::vector<SourceFrame> largest(DwarfReader::kMaxDepth, SourceFrame{text, text, 1, 2});
  ReplyWriter writer;

  EXPECT_TRUE(writer.add(largest));
  EXPECT_FALSE(writer.add(largest));

  const auto decoded = decode_reply(writer.bytes());
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->size(), 1u);
}

TEST(DwarfMessageTest, BringsRequestsAcross) {
  const DwarfRequest request{.file_id = 7, .has_alternate = true, .vaddrs = {1, UINT64_MAX}};
  const std::string bytes = encode(request);

  EXPECT_EQ(decode_request(bytes), request);
  EXPECT_EQ(decode_request(bytes.substr(1)), std::nullopt);
  EXPECT_EQ(decode_request(bytes + "x"), std::nullopt);
}

}  // namespace
}  // namespace gpuperf
