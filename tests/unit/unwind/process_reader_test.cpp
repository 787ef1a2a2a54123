#include "daemon/unwind/process_reader.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "daemon/probe/discovery/file_opener.h"
#include "daemon/probe/discovery/process_maps.h"
#include "daemon/unwind/memory_message.h"
#include "tests/unit/files.h"
#include "tests/unit/unwind/commanded_child.h"

namespace gpuperf {
namespace {

using std::chrono::milliseconds;

uint32_t own_pid() { return static_cast<uint32_t>(::getpid()); }
uint64_t to_address(const void* place) { return reinterpret_cast<uint64_t>(place); }

void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path) << text;
}

class ProcessReadingTest : public testing::Test {
 protected:
  ProcessReader::Options make_options(milliseconds timeout) {
    return {.timeout = timeout, .on_late = [this](ProcessReader::Kind) { ++late_; }};
  }
  size_t late_ = 0;
};

TEST_F(ProcessReadingTest, ReadsValuesAcrossPagesAndLongRanges) {
  ProcessReader memory(make_options(milliseconds(5'000)));
  const ReadMemory read = memory.make_reader(own_pid());
  std::vector<char> own(size_t{1} << 20);
  for (size_t i = 0; i < own.size(); ++i) own[i] = static_cast<char>(i % 251);

  std::vector<char> whole(own.size());
  EXPECT_TRUE(read(to_address(own.data()), std::as_writable_bytes(std::span(whole))));
  EXPECT_EQ(whole, own);
  const uint64_t page_end = (to_address(own.data()) | 4095) + 1;
  std::vector<char> across(16);
  EXPECT_TRUE(read(page_end - 8, std::as_writable_bytes(std::span(across))));
  EXPECT_EQ(std::memcmp(across.data(), reinterpret_cast<const char*>(page_end - 8), 16), 0);
  EXPECT_EQ(late_, 0u);
}

TEST_F(ProcessReadingTest, ReadsManyPagesOneByOne) {
  ProcessReader memory(make_options(milliseconds(5'000)));
  const ReadMemory read = memory.make_reader(own_pid());
  const std::vector<uint64_t> own(size_t{1} << 17, 7);

  for (size_t i = 0; i < own.size(); i += 512) {
    EXPECT_EQ(read_value<uint64_t>(read, to_address(&own[i])), 7u);
  }
}

TEST_F(ProcessReadingTest, ReadsNothingOfWhatIsNotMappedOrGone) {
  ProcessReader memory(make_options(milliseconds(5'000)));
  void* const hole = ::mmap(nullptr, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(hole, MAP_FAILED);
  ASSERT_EQ(::munmap(static_cast<char*>(hole) + 4096, 4096), 0);
  const ReadMemory read = memory.make_reader(own_pid());

  EXPECT_EQ(read_value<uint64_t>(read, to_address(hole)), 0u);
  EXPECT_FALSE(read_value<uint64_t>(read, to_address(hole) + 4092).has_value());
  EXPECT_FALSE(read_value<uint64_t>(read, UINT64_MAX - 2).has_value());
  EXPECT_FALSE(read_value<uint64_t>(memory.make_reader(4'194'305), to_address(hole)).has_value());
  EXPECT_EQ(late_, 0u);
  ::munmap(hole, 4096);
}

TEST_F(ProcessReadingTest, LeavesAUserAloneWhoseProcessTookTooLong) {
  ProcessReader memory(make_options(milliseconds(0)));
  const uint64_t own = 7;
  ASSERT_TRUE(memory.may_read(own_pid()));

  (void)read_value<uint64_t>(memory.make_reader(own_pid()), to_address(&own));

  EXPECT_EQ(late_, 1u);
  EXPECT_FALSE(memory.may_read(own_pid()));
  EXPECT_FALSE(read_value<uint64_t>(memory.make_reader(own_pid()), to_address(&own)).has_value());
  EXPECT_EQ(late_, 2u);
}

TEST_F(ProcessReadingTest, LeavesAUserAloneWhoseReadsTookTheirTime) {
  ProcessReader::Options options = make_options(milliseconds(5'000));
  options.free_wait = std::chrono::microseconds(0);
  options.waiting_us_per_second = 1;
  ProcessReader memory(options);
  const uint64_t own = 7;

  EXPECT_EQ(read_value<uint64_t>(memory.make_reader(own_pid()), to_address(&own)), 7u);

  EXPECT_FALSE(memory.may_read(own_pid()));
}

TEST_F(ProcessReadingTest, ReadsFilesOfAProcessAsTheyAre) {
  ProcessReader reader(make_options(milliseconds(5'000)));
  const ProcFiles direct;
  const ProcFiles files = reader.make_files();
  CommandedChild child;

  EXPECT_EQ(files.read_maps(child.pid(), size_t{1} << 20)->text,
            direct.read_maps(child.pid(), size_t{1} << 20)->text);
  EXPECT_TRUE(files.read_maps(child.pid(), 100)->truncated);
  EXPECT_EQ(files.read_maps(child.pid(), 100)->text.size(), 100u);
  EXPECT_EQ(files.read_environment(child.pid(), size_t{1} << 20)->text,
            direct.read_environment(child.pid(), size_t{1} << 20)->text);
  EXPECT_EQ(files.read_environment(child.pid(), 3)->text,
            direct.read_environment(child.pid(), 3)->text);
  EXPECT_TRUE(absl::IsNotFound(files.read_maps(4'194'305, 100).status()));
  EXPECT_EQ(late_, 0u);
}

TEST_F(ProcessReadingTest, TakesMappedFiles) {
  ProcessReader reader(make_options(milliseconds(5'000)));
  const std::vector<MapEntry> entries = read_executable_maps(ProcFiles(), own_pid())->entries;
  const auto own = std::ranges::find_if(
      entries, [](const MapEntry& entry) { return entry.path.ends_with("/unit_test"); });
  ASSERT_NE(own, entries.end());

  const auto opened = open_mapped_file(reader.make_files(), own_pid(), *own);
  const auto taken = reader.make_files().take_mapped(own_pid(), "1000-2000");

  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->identity.inode, own->file.inode);
  EXPECT_TRUE(absl::IsNotFound(taken.status())) << taken.status();
  EXPECT_EQ(late_, 0u);
}

// Opening a pipe that nobody writes to takes for ever, as reading maps does of a process that holds
// its lock.
TEST_F(ProcessReadingTest, GivesUpAFileThatIsNotRead) {
  const TempFolder folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0755));
  for (const char* pid : {"7", "8", "9"}) {
    std::filesystem::create_directories(folder.path() / pid);
    const bool is_other = *pid == '9';
    write_text(folder.path() / pid / "status",
               std::string("Name:\tx\nUid:\t") + (is_other ? "1001" : "1000") + "\nGid:\t1000\n");
  }
  ASSERT_EQ(::mkfifo((folder.path() / "7/maps").c_str(), 0644), 0);
  write_text(folder.path() / "8/maps", "of the same user\n");
  write_text(folder.path() / "9/maps", "of another\n");
  ProcessReader::Options options = make_options(milliseconds(5'000));
  options.proc_root = folder.path().string();
  options.file_timeout = milliseconds(500);
  ProcessReader reader(options);
  const ProcFiles files = reader.make_files();
  ASSERT_EQ(files.read_maps(9, 100)->text, "of another\n");

  EXPECT_TRUE(absl::IsDeadlineExceeded(files.read_maps(7, 100).status()));

  EXPECT_TRUE(absl::IsUnavailable(files.read_maps(8, 100).status()));
  EXPECT_TRUE(absl::IsUnavailable(files.take_mapped(8, "1000-2000").status()));
  EXPECT_EQ(late_, 3u);
  EXPECT_EQ(files.read_maps(9, 100)->text, "of another\n");
}

TEST(MemoryMessageTest, BringsRequestsAndRepliesAcross) {
  const MemoryRequest request{.pid = 71, .ranges = {{0x1000, 3}, {0x2000, 2}, {UINT64_MAX, 1}}};
  const MapsRequest maps{.pid = 72, .max_bytes = UINT64_MAX};
  const MemoryReply reply{"abc", std::nullopt, "d"};

  EXPECT_EQ(decode_reader_request(encode(request)), ReaderRequest(request));
  EXPECT_EQ(decode_reader_request(encode(maps)), ReaderRequest(maps));
  EXPECT_EQ(decode_memory_reply(request, encode(reply)), reply);
}

TEST(MemoryMessageTest, RefusesWhatIsCutOrTooLong) {
  const MemoryRequest request{.pid = 71, .ranges = {{0x1000, 3}, {0x2000, 2}}};
  const std::string asked = encode(request);
  const std::string told = encode(MemoryReply{"abc", "de"});

  for (size_t length = 0; length < told.size(); ++length) {
    EXPECT_FALSE(decode_memory_reply(request, told.substr(0, length)).has_value()) << length;
  }
  EXPECT_FALSE(decode_memory_reply(request, told + "x").has_value());
  EXPECT_FALSE(decode_reader_request(encode(MapsRequest{}).substr(1)).has_value());
  EXPECT_FALSE(decode_reader_request(asked.substr(1)).has_value());
  EXPECT_FALSE(decode_reader_request(encode(MemoryRequest{.ranges = {{0, kMaxMemoryBytes + 1}}})));
  EXPECT_FALSE(decode_reader_request(
      encode(MemoryRequest{.ranges = std::vector<MemoryRange>(kMaxMemoryRanges + 1)})));
}

}  // namespace
}  // namespace gpuperf
