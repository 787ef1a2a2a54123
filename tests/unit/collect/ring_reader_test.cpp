#include "daemon/collect/ring_reader.h"

#include <linux/bpf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "daemon/base/fd.h"
#include "tests/unit/matchers.h"

namespace gpuperf {
namespace {

// The kernel's side of a ring, in a file of memory. What reaches over the end is written twice, as
// the kernel's two mappings of the data have it.
class FakeRing {
 public:
  FakeRing() : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
    EXPECT_EQ(ftruncate(file_.get(), static_cast<off_t>(2 * page_ + 2 * kBytes)), 0);
    void* memory =
        mmap(nullptr, 2 * page_ + 2 * kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    EXPECT_NE(memory, MAP_FAILED);
    memory_ = static_cast<std::byte*>(memory);
  }
  ~FakeRing() { (void)munmap(memory_, 2 * page_ + 2 * kBytes); }
  FakeRing(const FakeRing&) = delete;
  FakeRing& operator=(const FakeRing&) = delete;

  static constexpr size_t kBytes = size_t{4} << 20;

  int fd() const { return file_.get(); }
  void write(const std::string& record, uint32_t flags = 0) {
    const auto header = static_cast<uint32_t>(record.size()) | flags;
    const size_t whole = (BPF_RINGBUF_HDR_SZ + record.size() + 7) & ~size_t{7};
    std::vector<std::byte> bytes(whole);
    std::memcpy(bytes.data(), &header, sizeof header);
    std::memcpy(bytes.data() + BPF_RINGBUF_HDR_SZ, record.data(), record.size());
    for (size_t i = 0; i < whole; ++i) {
      const size_t offset = (written_ + i) % kBytes;
      memory_[2 * page_ + offset] = bytes[i];
      memory_[2 * page_ + kBytes + offset] = bytes[i];
    }
    written_ += whole;
    position(page_).store(written_, std::memory_order_release);
  }
  // Of the record written first of all.
  void commit_first() {
    uint32_t& header = *reinterpret_cast<uint32_t*>(memory_ + 2 * page_);
    header &= ~BPF_RINGBUF_BUSY_BIT;
  }
  bool is_empty() { return position(0).load() == written_; }

 private:
  std::atomic_ref<uint64_t> position(size_t at) {
    return std::atomic_ref(*reinterpret_cast<uint64_t*>(memory_ + at));
  }

  const size_t page_;
  Fd file_{memfd_create("ring", MFD_CLOEXEC)};
  std::byte* memory_ = nullptr;
  uint64_t written_ = 0;
};

class RingReaderTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(reader_.add(ring_.fd(), "ring", FakeRing::kBytes).ok()); }
  std::vector<std::string> consume() {
    std::vector<std::string> records;
    EXPECT_TRUE(reader_
                    .consume([&](std::span<const std::byte> record) {
                      records.emplace_back(reinterpret_cast<const char*>(record.data()),
                                           record.size());
                    })
                    .ok());
    return records;
  }

  FakeRing ring_;
  RingReader reader_;
};

TEST_F(RingReaderTest, TellsHowMuchWaitedAtMost) {
  ring_.write("twelve bytes");  // 24 with its header
  ring_.write("twelve bytes");
  EXPECT_TRUE(reader_.consume([](std::span<const std::byte>) {}).ok());
  ring_.write("twelve bytes");
  EXPECT_TRUE(reader_.consume([](std::span<const std::byte>) {}).ok());

  const auto levels = reader_.take_levels();

  ASSERT_EQ(levels.size(), 1u);
  EXPECT_EQ(levels[0].used_bytes, 48u);
  EXPECT_EQ(levels[0].size_bytes, FakeRing::kBytes);
  EXPECT_EQ(reader_.take_levels()[0].used_bytes, 0u);
}

TEST_F(RingReaderTest, TakesRecordsInOrderAndLeavesOutWhatWasDiscarded) {
  ring_.write("one");
  ring_.write("given up", BPF_RINGBUF_DISCARD_BIT);
  ring_.write("");
  ring_.write(std::string(100'000, 'x'));

  EXPECT_THAT(consume(), ElementsAre("one", "", std::string(100'000, 'x')));
  EXPECT_TRUE(ring_.is_empty());
  EXPECT_THAT(consume(), IsEmpty());
}

TEST_F(RingReaderTest, WaitsForARecordThatIsBeingWritten) {
  ring_.write("one", BPF_RINGBUF_BUSY_BIT);
  ring_.write("two");
  EXPECT_THAT(consume(), IsEmpty());

  ring_.commit_first();

  EXPECT_THAT(consume(), ElementsAre("one", "two"));
}

TEST_F(RingReaderTest, ReadsRoundTheEndAndMoreThanItMapsAtOnce) {
  for (size_t round = 0; round < 7; ++round) {
    std::vector<std::string> written;
    for (size_t i = 0; i < 23; ++i) {
      written.push_back(std::string(70'000 + 1'013 * i, static_cast<char>('a' + i)));
      ring_.write(written.back());
    }

    EXPECT_EQ(consume(), written);
    EXPECT_TRUE(ring_.is_empty());
  }
}

TEST_F(RingReaderTest, TakesOneRecordThatIsLargerThanWhatItMapsAtOnce) {
  ring_.write("one");
  ring_.write(std::string(2'500'000, 'x'));

  EXPECT_THAT(consume(), ElementsAre("one", std::string(2'500'000, 'x')));
}

}  // namespace
}  // namespace gpuperf
