#include "daemon/resolve/address_table.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "tests/unit/probe/elf_builder.h"

namespace gpuperf {
namespace {

using elf_builder::ElfImage;
using elf_builder::make_file;
using Match = AddressTable::Match;

const std::vector<LoadSegment> kSegments = {
    {.vaddr = 0x1000, .offset_bytes = 0x200, .file_bytes = 0x800, .executable = true},
    {.vaddr = 0x5000, .offset_bytes = 0xa00, .file_bytes = 0x100, .executable = true},
    {.vaddr = 0x9000, .offset_bytes = 0x2000, .file_bytes = 0x100, .executable = false}};

TEST(AddressTableTest, FindsTheFunctionThatCoversAnAddress) {
  const AddressTable table =
      AddressTable::make({{0x1000, 0x10, "first"}, {0x1010, 0x10, "second"}}, kSegments);

  EXPECT_EQ(table.find_function(0xfff), std::nullopt);
  EXPECT_EQ(table.find_function(0x1000), (Match{"first", 0x1000}));
  EXPECT_EQ(table.find_function(0x100f), (Match{"first", 0x1000}));
  EXPECT_EQ(table.find_function(0x1010), (Match{"second", 0x1010}));
  EXPECT_EQ(table.find_function(0x1020), std::nullopt);
  EXPECT_EQ(table.find_function(UINT64_MAX), std::nullopt);
}

TEST(AddressTableTest, LetsAFunctionWithoutSizeReachToTheNext) {
  const AddressTable table =
      AddressTable::make({{0x1000, 0, "assembly"}, {0x1010, 4, "next"}}, kSegments);

  EXPECT_EQ(table.find_function(0x100f), (Match{"assembly", 0x1000}));
  EXPECT_EQ(table.find_function(0x1014), std::nullopt);
}

TEST(AddressTableTest, FindsTheOuterFunctionAroundANestedOne) {
  const AddressTable table = AddressTable::make(
      {{0x1000, 0x100, "outer"}, {0x1010, 8, "inner"}, {0x1040, 0, "label"}}, kSegments);

  EXPECT_EQ(table.find_function(0x1012), (Match{"inner", 0x1010}));
  EXPECT_EQ(table.find_function(0x1020), (Match{"outer", 0x1000}));
}

TEST(AddressTableTest, TurnsFileOffsetsIntoAddressesThroughExecutableSegments) {
  const AddressTable table = AddressTable::make({}, kSegments);

  EXPECT_EQ(table.find_vaddr(0x200), 0x1000u);
  EXPECT_EQ(table.find_vaddr(0x9ff), 0x17ffu);
  EXPECT_EQ(table.find_vaddr(0xa00), 0x5000u);
  EXPECT_EQ(table.find_vaddr(0x1ff), std::nullopt);
  EXPECT_EQ(table.find_vaddr(0x2000), std::nullopt);
  EXPECT_EQ(table.find_vaddr(UINT64_MAX), std::nullopt);
}

TEST(AddressTableTest, LoadsTheFunctionsOfAFile) {
  const ElfImage image({{"foo@@V2", ElfImage::kCodeVaddr + 0x10, 8}});

  const AddressTable table = AddressTable::load(make_file(image.build()).get(), 1 << 20);

  EXPECT_EQ(table.find_vaddr(ElfImage::kCodeOffset + 0x12), ElfImage::kCodeVaddr + 0x12);
  EXPECT_EQ(table.find_function(ElfImage::kCodeVaddr + 0x12),
            (Match{"foo", ElfImage::kCodeVaddr + 0x10}));
}

TEST(AddressTableTest, KeepsTheSegmentsOfAStrippedFile) {
  ElfImage image({});
  image.header.e_shoff = 0;

  const AddressTable table = AddressTable::load(make_file(image.build()).get(), 1 << 20);

  EXPECT_EQ(table.find_vaddr(ElfImage::kCodeOffset), ElfImage::kCodeVaddr);
  EXPECT_EQ(table.find_function(ElfImage::kCodeVaddr), std::nullopt);
}

TEST(AddressTableTest, HoldsNothingOfAFileThatIsNoElf) {
  const AddressTable table = AddressTable::load(make_file("#!/bin/sh").get(), 1 << 20);

  EXPECT_EQ(table.find_vaddr(0), std::nullopt);
  EXPECT_EQ(table.find_function(0), std::nullopt);
}

// The exported functions only, then none, as the room shrinks.
TEST(AddressTableTest, LeavesOutWhatDoesNotFit) {
  const uint64_t exported = ElfImage::kCodeVaddr;
  const uint64_t internal = ElfImage::kCodeVaddr + 0x10;
  ElfImage image({{"exported", exported, 8}, {std::string(2000, 'x'), internal, 8}});
  // .dynsym is the beginning of the same symbols.
  image.sections.push_back(image.sections[1]);
  image.sections[3].sh_type = SHT_DYNSYM;
  image.sections[3].sh_size = 2 * sizeof(Elf64_Sym);
  image.header.e_shnum = 4;
  const Fd file = make_file(image.build());

  const AddressTable all = AddressTable::load(file.get(), 100'000);
  const AddressTable some = AddressTable::load(file.get(), 1'800);
  const AddressTable none = AddressTable::load(file.get(), 10);

  EXPECT_TRUE(all.find_function(internal).has_value());
  EXPECT_FALSE(some.find_function(internal).has_value());
  EXPECT_EQ(some.find_function(exported), (Match{"exported", exported}));
  EXPECT_FALSE(none.find_function(exported).has_value());
  EXPECT_EQ(none.find_vaddr(ElfImage::kCodeOffset), exported);
  EXPECT_GT(all.size_bytes(), 2000u);
  EXPECT_LT(some.size_bytes(), 1000u);
}

TEST(AddressTableTest, ReadsManyOrLongNamesFromTheFile) {
  const uint64_t one = ElfImage::kCodeVaddr, other = one + 0x10;
  const std::string long_name(3'000, 'x');
  const Fd file = make_file(ElfImage({{long_name, one, 8}, {"foo@@V2", other, 8}}).build());

  const AddressTable table = AddressTable::load(file.get(), 16'000);

  EXPECT_TRUE(table.has_names_in_file());
  EXPECT_LT(table.size_bytes(), 1'000u);
  EXPECT_EQ(table.find_function(one, file.get()), (Match{long_name, one}));
  EXPECT_EQ(table.find_function(other, file.get()), (Match{"foo", other}));
  EXPECT_EQ(table.find_function(other), (Match{"", other}));
}

TEST(AddressTableTest, HasNoNameWhereTheFileHasBecomeShorter) {
  const Fd file = make_file(ElfImage({{std::string(3'000, 'x'), ElfImage::kCodeVaddr, 8}}).build());
  const AddressTable table = AddressTable::load(file.get(), 16'000);

  ASSERT_EQ(ftruncate(file.get(), 100), 0);

  EXPECT_EQ(table.find_function(ElfImage::kCodeVaddr, file.get()),
            (Match{"", ElfImage::kCodeVaddr}));
}

}  // namespace
}  // namespace gpuperf
