#include "daemon/unwind/process_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace gpuperf {
namespace {

constexpr uint64_t kAddress = 0x7ff0;  // 16 bytes before a page ends
constexpr uint64_t kPage = 4096;

StackMemory make_memory(uint64_t address, size_t size_bytes, std::vector<bool> is_present) {
  StackMemory memory{.address = address,
                     .bytes = std::vector<std::byte>(size_bytes),
                     .is_present = std::move(is_present)};
  for (size_t i = 0; i < size_bytes; ++i) memory.bytes[i] = static_cast<std::byte>(i);
  return memory;
}

// The end of a page, a page that could not be read, a page; and another elsewhere.
StackCopy make_copy() {
  return {.memory = {make_memory(kAddress, 16 + 2 * kPage, {true, false, true}),
                     make_memory(0x2'0000, kPage, {true})}};
}

template <typename T>
std::optional<T> read_from(const StackCopy& copy, uint64_t address) {
  return read_value<T>(make_copy_reader(copy), address);
}

std::optional<uint16_t> read_at(uint64_t address) {
  return read_from<uint16_t>(make_copy(), address);
}

TEST(CopyReaderTest, ReadsWhatStoodAtAnAddress) {
  EXPECT_EQ(read_at(kAddress), 0x0100);
  EXPECT_EQ(read_at(kAddress + 14), 0x0f0e);
  EXPECT_EQ(read_at(0x9000), 0x1110);
  EXPECT_EQ(read_at(0xa000 - 2), 0x0f0e);
}

TEST(CopyReaderTest, ReadsInEachPart) { EXPECT_EQ(read_at(0x2'0004), 0x0504); }

TEST(CopyReaderTest, ReadsAcrossPartsThatStandSideBySide) {
  const StackCopy copy{
      .memory = {make_memory(0x7000, kPage, {true}), make_memory(0x8000, kPage, {true})}};

  const auto words = read_from<std::array<uint64_t, 2>>(copy, 0x8000 - 8);

  EXPECT_EQ(words, (std::array<uint64_t, 2>{0xfffe'fdfc'fbfa'f9f8, 0x0706'0504'0302'0100}));
}

TEST(CopyReaderTest, ReadsNothingOutsideOfItsBytes) {
  EXPECT_FALSE(read_at(kAddress - 1));
  EXPECT_FALSE(read_at(0xa000 - 1));
  EXPECT_FALSE(read_at(0xa000));
  EXPECT_FALSE(read_at(0));
  EXPECT_FALSE(read_at(std::numeric_limits<uint64_t>::max()));
}

TEST(CopyReaderTest, ReadsNothingOfAPageThatCouldNotBeRead) {
  EXPECT_FALSE(read_at(0x8000));
  EXPECT_FALSE(read_at(0x8800));
  EXPECT_FALSE(read_at(0x7fff));  // half of it
  EXPECT_FALSE(read_at(0x8fff));
}

TEST(ProcessReaderTest, ReadsTheMemoryOfAProcess) {
  const uint64_t word = 0x1234'5678'9abc'def0;
  const ReadMemory read = make_direct_reader(static_cast<uint32_t>(getpid()));

  EXPECT_EQ(read_value<uint64_t>(read, reinterpret_cast<uint64_t>(&word)), word);
}

TEST(ProcessReaderTest, SaysThatMemoryCannotBeRead) {
  const ReadMemory read = make_direct_reader(static_cast<uint32_t>(getpid()));

  EXPECT_FALSE(read_value<uint64_t>(read, 8));
}

}  // namespace
}  // namespace gpuperf
