#include "daemon/probe/remote_stack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

namespace gpuperf {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Stack = std::vector<uint64_t>;
using Returns = std::vector<gpuperf_replaced_return>;

constexpr uint64_t kSp =
    0x7ffc0000'1000;  // at entry: the return address to the caller stands there

// The memory of a thread's stack, word by word.
class FakeMemory {
 public:
  void set(uint64_t address, uint64_t word) { words_[address] = word; }
  // A frame as compilers lay it out: the caller's frame pointer, and the return address behind it.
  void set_frame(uint64_t frame, uint64_t next_frame, uint64_t return_address) {
    set(frame, next_frame);
    set(frame + 8, return_address);
  }
  void forget(uint64_t address) { words_.erase(address); }

  Stack walk(uint64_t bp, const Returns& returns = {}) const {
    const ReadWord read = [this](uint64_t address) -> std::optional<uint64_t> {
      const auto word = words_.find(address);
      return word == words_.end() ? std::nullopt : std::optional(word->second);
    };
    return walk_callers(read, kSp, bp, returns);
  }

 private:
  std::map<uint64_t, uint64_t> words_;
};

class RemoteStackTest : public testing::Test {
 protected:
  // The caller, its caller and the thread's first function.
  RemoteStackTest() {
    memory_.set(kSp, 0xa1);
    memory_.set_frame(kSp + 0x40, kSp + 0x90, 0xa2);
    memory_.set_frame(kSp + 0x90, 0, 0xa3);
  }

  FakeMemory memory_;
};

TEST_F(RemoteStackTest, WalksToTheOutermostCaller) {
  EXPECT_THAT(memory_.walk(kSp + 0x40), ElementsAre(0xa1, 0xa2, 0xa3));
}

TEST_F(RemoteStackTest, EndsAtAReturnAddressOfZero) {
  memory_.set_frame(kSp + 0x90, kSp + 0xc0, 0);

  EXPECT_THAT(memory_.walk(kSp + 0x40), ElementsAre(0xa1, 0xa2));
}

TEST_F(RemoteStackTest, PutsTheCallsOwnReplacedReturnAddressBack) {
  memory_.set(kSp, 0x7fffffffe000);  // the kernel's trampoline

  EXPECT_THAT(memory_.walk(kSp + 0x40, {{.sp = kSp, .address = 0xa1}}),
              ElementsAre(0xa1, 0xa2, 0xa3));
}

TEST_F(RemoteStackTest, PutsReplacedReturnAddressesOfCallersBack) {
  memory_.set(kSp + 0x48, 0x7fffffffe000);

  EXPECT_THAT(memory_.walk(kSp + 0x40, {{.sp = kSp, .address = 0xb1},
                                        {.sp = kSp + 0x48, .address = 0xb2},
                                        {.sp = kSp + 0x500, .address = 0xb9}}),
              ElementsAre(0xb1, 0xb2, 0xa3));
}

TEST_F(RemoteStackTest, NeedsNoMemoryForAReplacedReturnAddress) {
  memory_.forget(kSp);

  EXPECT_THAT(memory_.walk(0, {{.sp = kSp, .address = 0xa1}}), ElementsAre(0xa1));
}

TEST_F(RemoteStackTest, GivesTheCallerAloneWhereTheRegisterIsNoFramePointer) {
  for (const uint64_t bp : {uint64_t{0}, uint64_t{1}, kSp + 0x44, kSp, kSp - 8, kSp - 0x40,
                            kSp + (16 << 20), UINT64_MAX - 7, uint64_t{0x5555'0000'1000}}) {
    memory_.set_frame(bp, kSp + 0x90, 0xbad);
    memory_.set(kSp, 0xa1);

    EXPECT_THAT(memory_.walk(bp), ElementsAre(0xa1)) << std::hex << bp;
  }
}

TEST_F(RemoteStackTest, TakesAFramePointerWithinTheSizeOfAStack) {
  constexpr uint64_t kMaxStride = 8 << 20;
  memory_.set_frame(kSp + kMaxStride - 16, 0, 0xf1);
  memory_.set_frame(kSp + kMaxStride, 0, 0xf2);

  EXPECT_THAT(memory_.walk(kSp + kMaxStride - 16), ElementsAre(0xa1, 0xf1));
  EXPECT_THAT(memory_.walk(kSp + kMaxStride), ElementsAre(0xa1));
}

TEST_F(RemoteStackTest, IsEmptyWhereTheStackCannotBeRead) {
  memory_.forget(kSp);

  EXPECT_THAT(memory_.walk(kSp + 0x40), IsEmpty());
}

TEST_F(RemoteStackTest, KeepsWhatItReadBeforeMemoryThatCannotBe) {
  memory_.forget(kSp + 0x98);
  EXPECT_THAT(memory_.walk(kSp + 0x40), ElementsAre(0xa1, 0xa2));

  memory_.forget(kSp + 0x40);
  EXPECT_THAT(memory_.walk(kSp + 0x40), ElementsAre(0xa1));
  memory_.forget(kSp + 0x48);
  EXPECT_THAT(memory_.walk(kSp + 0x40), ElementsAre(0xa1));
}

TEST_F(RemoteStackTest, EndsWhereTheChainTurnsBack) {
  memory_.set_frame(kSp + 0x90, kSp + 0x40, 0xa3);
  EXPECT_THAT(memory_.walk(kSp + 0x40), ElementsAre(0xa1, 0xa2, 0xa3));

  memory_.set_frame(kSp + 0x40, kSp + 0x40, 0xa2);
  EXPECT_THAT(memory_.walk(kSp + 0x40), ElementsAre(0xa1, 0xa2));
}

TEST_F(RemoteStackTest, KeepsTheInnermostFramesOfADeepStack) {
  for (uint64_t i = 0; i < 1000; ++i) {
    memory_.set_frame(kSp + 16 * (i + 1), kSp + 16 * (i + 2), 0x1000 + i);
  }

  const Stack stack = memory_.walk(kSp + 16);

  ASSERT_EQ(stack.size(), size_t{GPUPERF_STACK_FRAMES});
  EXPECT_EQ(stack.front(), 0xa1u);
  EXPECT_EQ(stack.back(), 0x1000u + GPUPERF_STACK_FRAMES - 2);
}

TEST(RemoteReaderTest, ReadsTheWordsOfAProcess) {
  const volatile uint64_t word = 0x0123456789abcdef;

  EXPECT_EQ(make_remote_reader(static_cast<uint32_t>(getpid()))(reinterpret_cast<uint64_t>(&word)),
            0x0123456789abcdefu);
}

TEST(RemoteReaderTest, ReadsAtAddressesThatAreNotAligned) {
  const uint8_t bytes[] = {0xff, 1, 2, 3, 4, 5, 6, 7, 8};

  EXPECT_EQ(
      make_remote_reader(static_cast<uint32_t>(getpid()))(reinterpret_cast<uint64_t>(bytes + 1)),
      0x0807060504030201u);
}

TEST(RemoteReaderTest, ReadsNothingAtAnAddressThatIsNotMapped) {
  const ReadWord read = make_remote_reader(static_cast<uint32_t>(getpid()));

  EXPECT_EQ(read(0), std::nullopt);
  EXPECT_EQ(read(UINT64_MAX - 7), std::nullopt);
}

TEST(RemoteReaderTest, ReadsNoPartOfAWordAtTheEndOfAMapping) {
  const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const mapped =
      mmap(nullptr, 2 * page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  auto* const pages = static_cast<std::byte*>(mapped);
  const auto end = reinterpret_cast<uint64_t>(pages + page_bytes);  // of the first
  ASSERT_EQ(mprotect(pages + page_bytes, page_bytes, PROT_NONE), 0);
  const ReadWord read = make_remote_reader(static_cast<uint32_t>(getpid()));

  EXPECT_EQ(read(end - 8), 0u);
  EXPECT_EQ(read(end - 4), std::nullopt);
  ASSERT_EQ(munmap(mapped, 2 * page_bytes), 0);
}

TEST(RemoteReaderTest, ReadsNothingOfAProcessThatIsGone) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  const uint64_t word = 1;

  EXPECT_EQ(make_remote_reader(static_cast<uint32_t>(child))(reinterpret_cast<uint64_t>(&word)),
            std::nullopt);
}

}  // namespace
}  // namespace gpuperf
