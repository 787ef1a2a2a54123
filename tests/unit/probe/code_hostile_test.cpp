// Code and tables that lie: an error or an answer inside the file, in bounded time, never a crash.
// Run in the sanitizer build too.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>

#include "bpf/records.h"
#include "daemon/probe/code/code_body.h"
#include "daemon/probe/code/code_unwind.h"
#include "daemon/probe/code/placement.h"
#include "tests/unit/files.h"
#include "tests/unit/probe/code_sample.h"
#include "tests/unit/probe/elf_builder.h"

namespace gpuperf {
namespace {

using elf_builder::make_file;

// Everything asked of a file's code; how many functions were answered completely.
int ask_all(const std::string& bytes, const std::vector<FunctionSymbol>& functions) {
  const Fd fd = make_file(bytes);
  auto code = CodeMap::open(fd.get());
  if (!code.ok()) return 0;
  int complete = 0;
  for (const FunctionSymbol& function : functions) {
    const auto exits = find_exits(*code, function);
    const auto placed = place_entry(*code, function, exits.ok() ? *exits : std::vector<ExitSite>{});
    complete += exits.ok() && placed.ok() ? 1 : 0;
    if (placed.ok()) {
      EXPECT_LT(placed->offset_bytes, bytes.size());
    }
    for (const ExitSite& exit : exits.ok() ? *exits : std::vector<ExitSite>{}) {
      EXPECT_LT(exit.offset_bytes, bytes.size());
      EXPECT_LE(exit.condition, GPUPERF_CONDITION_RETURN);
    }
  }
  return complete;
}

std::vector<FunctionSymbol> list_functions() {
  CodeSample sample(CODE_SAMPLE);
  std::vector<FunctionSymbol> functions;
  for (const SortedSymbol& symbol : sample.symbols().sort_functions()) {
    const auto offset = sample.code().file().find_offset(symbol.vaddr);
    // The long ones take most of the time and are of one kind.
    if (!offset || symbol.size_bytes > 4096) continue;
    functions.push_back({.file_offset_bytes = *offset, .size_bytes = symbol.size_bytes});
  }
  return functions;
}

const NamedSection& get_section(CodeSample& sample, const char* name) {
  const NamedSection* section = sample.code().file().find_section(name);
  if (section == nullptr) throw std::runtime_error(name);
  return *section;
}

TEST(HostileCodeTest, SeesEveryTruncation) {
  const std::string bytes = read_file(CODE_SAMPLE);
  const std::vector<FunctionSymbol> functions = list_functions();

  for (size_t length = 0; length < bytes.size(); length += bytes.size() / 100) {
    (void)ask_all(bytes.substr(0, length), functions);
  }
}

// Symbols may claim any size, and lie anywhere.
TEST(HostileCodeTest, BoundsWhatASymbolClaims) {
  const std::string bytes = read_file(CODE_SAMPLE);
  const uint64_t offset = list_functions().front().file_offset_bytes;

  for (const uint64_t size : {uint64_t{1}, kMaxBodyBytes, kMaxBodyBytes + 1, UINT64_MAX}) {
    EXPECT_EQ(ask_all(bytes, {{.file_offset_bytes = offset, .size_bytes = size}}), 0) << size;
    EXPECT_EQ(ask_all(bytes, {{.file_offset_bytes = bytes.size() - 1, .size_bytes = size}}), 0);
    EXPECT_EQ(ask_all(bytes, {{.file_offset_bytes = UINT64_MAX, .size_bytes = size}}), 0);
  }
}

struct FrameLie {
  const char* name;
  uint64_t at;  // in .eh_frame_hdr
  uint8_t value;
  absl::StatusCode expected;
};

constexpr FrameLie kFrameLies[] = {
    {"Version", 0, 2, absl::StatusCode::kUnimplemented},
    {"PointerEncoding", 1, 0xff, absl::StatusCode::kUnimplemented},
    {"CountEncoding", 2, 0x01, absl::StatusCode::kUnimplemented},
    {"TableEncoding", 3, 0xff, absl::StatusCode::kUnimplemented},
    {"HugeCount", 11, 0x7f, absl::StatusCode::kDataLoss},
};

class LyingFrameTest : public testing::TestWithParam<FrameLie> {};

TEST_P(LyingFrameTest, GivesItsError) {
  CodeSample sample(CODE_SAMPLE);
  std::string bytes = read_file(CODE_SAMPLE);
  const uint64_t section = get_section(sample, ".eh_frame_hdr").offset_bytes;
  const uint64_t function = sample.get("returns").file_offset_bytes;
  bytes[section + GetParam().at] = static_cast<char>(GetParam().value);
  const Fd fd = make_file(bytes);
  const auto file = CodeFile::open(fd.get());
  ASSERT_TRUE(file.ok());

  const auto frame = find_frame(*file, file->find_vaddr(function).value_or(0));

  EXPECT_EQ(frame.status().code(), GetParam().expected) << frame.status();
}

INSTANTIATE_TEST_SUITE_P(Lies, LyingFrameTest, testing::ValuesIn(kFrameLies),
                         [](const auto& lie) { return std::string(lie.param.name); });

TEST(FindFrameTest, FindsWhatCoversAnAddress) {
  CodeSample sample(CODE_SAMPLE);
  const FunctionSymbol returns = sample.get("returns");
  const CodeFile& file = sample.code().file();
  const uint64_t begin = file.find_vaddr(returns.file_offset_bytes).value_or(0);
  const CodeFrame expected{.begin = begin, .end = begin + returns.size_bytes};

  EXPECT_EQ(*find_frame(file, begin), expected);
  EXPECT_EQ(*find_frame(file, expected.end - 1), expected);
  EXPECT_EQ(*find_frame(file, 0), std::nullopt);
  EXPECT_EQ(*find_frame(file, UINT64_MAX), std::nullopt);
}

// The most work one function may ask for: as many pointer jumps as there may be, each to be
// followed back through as much code as there may be.
TEST(HostileCodeTest, EndsTheWorstFunctionWithinTheBoundsInTime) {
  const std::string jump("\xff\xe0", 2);  // jmp *%rax
  std::string body(kMaxBodyBytes, '\x90');
  for (size_t i = 0; i + 3 < body.size(); i += 3) body.replace(i, 3, "\x75\xfb\x90");  // jne back
  for (size_t i = 1; i < kMaxBodyExits; ++i) body.replace(body.size() - 2 * i, 2, jump);
  elf_builder::ElfImage image({{"foo", elf_builder::ElfImage::kCodeVaddr, body.size()}});
  image.segment.p_filesz += body.size();
  std::string bytes = image.build();
  bytes.resize(std::max(bytes.size(), elf_builder::ElfImage::kCodeOffset + body.size()));
  bytes.replace(elf_builder::ElfImage::kCodeOffset, body.size(), body);
  // The symbols are gone; they are not needed for this.
  Elf64_Ehdr header = image.header;
  header.e_shoff = 0;
  std::memcpy(bytes.data(), &header, sizeof header);
  bytes.resize(elf_builder::ElfImage::kCodeOffset + image.segment.p_filesz);

  const auto begin = std::chrono::steady_clock::now();
  (void)ask_all(bytes, {{.file_offset_bytes = elf_builder::ElfImage::kCodeOffset,
                         .size_bytes = body.size()}});
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;

  // 0.3 s in a release build; a hang would be minutes.
  EXPECT_LT(seconds.count(), 20);
}

}  // namespace
}  // namespace gpuperf
