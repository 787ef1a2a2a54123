#include "daemon/probe/elf/elf_exports.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/unit/probe/elf_builder.h"

namespace gpuperf {
namespace {

using elf_builder::append_section;
using elf_builder::ElfImage;
using elf_builder::make_file;
using elf_builder::make_hash_table;
using elf_builder::make_library;

// An opened file and its exports.
class Library {
 public:
  explicit Library(const std::string& bytes)
      : fd_(make_file(bytes)),
        file_(*ElfFile::open(fd_.get())),
        sections_(*file_.read_sections()) {}

  Result<ElfExports> open() const { return ElfExports::open(file_, sections_); }

 private:
  const Fd fd_;
  const ElfFile file_;
  const std::vector<Elf64_Shdr> sections_;
};

// A library whose hash table is `table`.
std::string make_with_table(ElfImage image, const std::vector<uint32_t>& table) {
  return append_section(
      image, {.sh_type = SHT_GNU_HASH, .sh_link = 1},
      std::string(reinterpret_cast<const char*>(table.data()), table.size() * sizeof(uint32_t)));
}

TEST(ElfExportsTest, FindsFunctionsAndData) {
  const Library library(
      make_library({{.name = "launch", .vaddr = 0x401010, .size_bytes = 32},
                    {.name = "state", .vaddr = 0x500000, .size_bytes = 8, .type = STT_OBJECT}}));
  const auto exports = library.open();
  ASSERT_TRUE(exports.ok()) << exports.status();

  EXPECT_EQ(exports->find("launch").value(), (SymbolPlace{0x401010, 32}));
  EXPECT_EQ(exports->find("state").value(), (SymbolPlace{0x500000, 8}));
  EXPECT_EQ(exports->find("stat").value(), std::nullopt);
  EXPECT_EQ(exports->find("state_").value(), std::nullopt);
  EXPECT_EQ(exports->find("").value(), std::nullopt);
}

TEST(ElfExportsTest, LeavesOutWhatTheFileOnlyUses) {
  const Library library(make_library({{.name = "used", .section = SHN_UNDEF}}));

  EXPECT_EQ(library.open()->find("used").value(), std::nullopt);
}

TEST(ElfExportsTest, SaysThatThereIsNoHashTable) {
  const Library library(ElfImage({{.name = "f"}}).build());

  EXPECT_TRUE(absl::IsNotFound(library.open().status()));
}

TEST(ElfExportsTest, BelievesTheFilter) {
  ElfImage image({{.name = "f"}}, SHT_DYNSYM);
  std::vector<uint32_t> table = make_hash_table(image);
  table[4] = table[5] = 0;

  const Library library(make_with_table(image, table));

  EXPECT_EQ(library.open()->find("f").value(), std::nullopt);
}

TEST(ElfExportsTest, RefusesATableThatContradictsTheFile) {
  const ElfImage image({{.name = "f"}}, SHT_DYNSYM);
  for (const auto& [word, value] : std::vector<std::pair<size_t, uint32_t>>{
           {0, 0}, {2, 0}, {3, 32}, {0, 1 << 20}, {2, 1 << 20}, {6, 1 << 20}}) {
    std::vector<uint32_t> table = make_hash_table(image);
    table[word] = value;

    const Library library(make_with_table(image, table));
    const auto exports = library.open();

    const Status status = exports.ok() ? exports->find("f").status() : exports.status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << word << ": " << status;
  }
}

TEST(ElfExportsTest, GivesUpOnABucketWithoutEnd) {
  const ElfImage image({{.name = "f"}}, SHT_DYNSYM);
  std::vector<uint32_t> table = make_hash_table(image);
  table.resize(7 + ElfExports::kMaxBucketSymbols + 1, 0);
  table[7] = 0;

  const Library library(make_with_table(image, table));

  EXPECT_TRUE(absl::IsResourceExhausted(library.open()->find("f").status()));
}

}  // namespace
}  // namespace gpuperf
