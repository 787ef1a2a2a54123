// ELF files that lie, break off or are none at all: each must give its error, in bounded time and
// memory, and never a crash. Run in the sanitizer build too.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <ctime>
#include <fstream>
#include <functional>

#include "daemon/probe/discovery/static_runtime.h"
#include "daemon/probe/elf/elf_symbols.h"
#include "daemon/probe/elf/symbol_match.h"
#include "daemon/probe/elf/usdt_notes.h"
#include "tests/unit/files.h"
#include "tests/unit/probe/elf_builder.h"

namespace gpuperf {
namespace {

using absl::StatusCode;
using elf_builder::ElfImage;
using elf_builder::make_file;

// Everything the daemon does with a file; the status of reading both tables.
Status read_all_ways(int fd) {
  const std::vector<std::string> names = {"sample_plain", "sample_versioned", "foo", ""};
  const std::vector<SymbolQuery> queries = {{SymbolForm::kExact, "foo"},
                                            {SymbolForm::kWildcard, "*s*p*"},
                                            {SymbolForm::kDemangled, "*::foo"},
                                            {SymbolForm::kUsdt, "*:*"}};
  (void)match_symbols(fd, queries);
  (void)find_static_runtime(fd, names);
  const auto symbols = ElfSymbols::load(fd, ElfSymbols::Tables::kBoth);
  if (symbols.ok()) {
    (void)symbols->find_all(names);
    for (const SortedSymbol& symbol : symbols->sort_functions()) {
      EXPECT_LE(symbol.name.size(), ElfSymbols::kMaxNameBytes);
    }
  }
  return symbols.status();
}

Status read_image(const std::string& bytes) { return read_all_ways(make_file(bytes).get()); }

struct Lie {
  const char* name;
  std::function<void(ElfImage&)> tell;
  StatusCode expected;
};

const Lie kLies[] = {
    {"Nothing", [](ElfImage&) {}, StatusCode::kOk},
    {"Magic", [](ElfImage& e) { e.header.e_ident[0] = 0; }, StatusCode::kInvalidArgument},
    {"Class32", [](ElfImage& e) { e.header.e_ident[EI_CLASS] = ELFCLASS32; },
     StatusCode::kUnimplemented},
    {"BigEndian", [](ElfImage& e) { e.header.e_ident[EI_DATA] = ELFDATA2MSB; },
     StatusCode::kUnimplemented},
    {"Arm", [](ElfImage& e) { e.header.e_machine = EM_AARCH64; }, StatusCode::kUnimplemented},
    {"Object", [](ElfImage& e) { e.header.e_type = ET_REL; }, StatusCode::kInvalidArgument},
    {"Core", [](ElfImage& e) { e.header.e_type = ET_CORE; }, StatusCode::kInvalidArgument},
    {"ManySegments", [](ElfImage& e) { e.header.e_phnum = 0xffff; },
     StatusCode::kResourceExhausted},
    {"SegmentsBehindTheEnd", [](ElfImage& e) { e.header.e_phoff = 1 << 20; },
     StatusCode::kDataLoss},
    {"SegmentsWrapAround", [](ElfImage& e) { e.header.e_phoff = UINT64_MAX - 8; },
     StatusCode::kDataLoss},
    {"SegmentHeaderSize", [](ElfImage& e) { e.header.e_phentsize = 1; }, StatusCode::kDataLoss},
    {"SegmentBehindTheEnd", [](ElfImage& e) { e.segment.p_filesz = 1 << 20; },
     StatusCode::kDataLoss},
    {"SegmentWrapsAround", [](ElfImage& e) { e.segment.p_offset = UINT64_MAX - 2; },
     StatusCode::kDataLoss},
    {"NoSections", [](ElfImage& e) { e.header.e_shoff = 0; }, StatusCode::kNotFound},
    {"NoSectionCount", [](ElfImage& e) { e.header.e_shnum = 0; }, StatusCode::kNotFound},
    {"HugeSectionCount",
     [](ElfImage& e) {
       e.header.e_shnum = 0;
       e.sections[0].sh_size = UINT64_MAX / 64;
     },
     StatusCode::kResourceExhausted},
    {"SectionCountBehindTheEnd", [](ElfImage& e) { e.header.e_shnum = 0xfeff; },
     StatusCode::kDataLoss},
    {"SectionsBehindTheEnd", [](ElfImage& e) { e.header.e_shoff = 1 << 20; },
     StatusCode::kDataLoss},
    {"SectionsWrapAround", [](ElfImage& e) { e.header.e_shoff = UINT64_MAX - 63; },
     StatusCode::kDataLoss},
    {"SectionHeaderSize", [](ElfImage& e) { e.header.e_shentsize = 65; }, StatusCode::kDataLoss},
    {"NoSymbolTable", [](ElfImage& e) { e.sections[1].sh_type = SHT_PROGBITS; },
     StatusCode::kNotFound},
    {"SymbolsBehindTheEnd", [](ElfImage& e) { e.sections[1].sh_offset = 1 << 20; },
     StatusCode::kDataLoss},
    {"SymbolsWrapAround", [](ElfImage& e) { e.sections[1].sh_offset = UINT64_MAX - 23; },
     StatusCode::kDataLoss},
    {"HugeSymbols", [](ElfImage& e) { e.sections[1].sh_size = UINT64_MAX; },
     StatusCode::kResourceExhausted},
    {"SymbolSize", [](ElfImage& e) { e.sections[1].sh_entsize = 0; }, StatusCode::kDataLoss},
    {"PartOfASymbol", [](ElfImage& e) { e.sections[1].sh_size -= 1; }, StatusCode::kOk},
    {"LinkBehindTheEnd", [](ElfImage& e) { e.sections[1].sh_link = 3; }, StatusCode::kDataLoss},
    {"LinkToItself", [](ElfImage& e) { e.sections[1].sh_link = 1; }, StatusCode::kDataLoss},
    {"StringsBehindTheEnd", [](ElfImage& e) { e.sections[2].sh_size = 1 << 20; },
     StatusCode::kDataLoss},
    {"NoStrings", [](ElfImage& e) { e.sections[2].sh_size = 0; }, StatusCode::kOk},
    {"Compressed", [](ElfImage& e) { e.sections[1].sh_flags = SHF_COMPRESSED; },
     StatusCode::kUnimplemented},
    {"NameBehindTheStrings", [](ElfImage& e) { e.symbols[1].st_name = 0xffffffff; },
     StatusCode::kOk},
};

class LyingElfTest : public testing::TestWithParam<Lie> {};

TEST_P(LyingElfTest, GivesItsError) {
  ElfImage image({{"foo", ElfImage::kCodeVaddr, 4}});
  GetParam().tell(image);

  const Status status = read_image(image.build());

  EXPECT_EQ(status.code(), GetParam().expected) << status;
}

INSTANTIATE_TEST_SUITE_P(Lies, LyingElfTest, testing::ValuesIn(kLies),
                         [](const auto& lie) { return std::string(lie.param.name); });

TEST(HostileElfTest, FindsNoNameThatLiesOutsideTheStrings) {
  ElfImage image({{"foo", ElfImage::kCodeVaddr, 4}});
  image.symbols[1].st_name = static_cast<Elf64_Word>(image.strings.size());

  const auto symbols = ElfSymbols::load(make_file(image.build()).get(), ElfSymbols::Tables::kBoth);

  ASSERT_TRUE(symbols.ok());
  EXPECT_EQ(symbols->find_function("foo"), std::nullopt);
  EXPECT_TRUE(symbols->sort_functions().empty());
}

TEST(HostileElfTest, EndsANameWithTheStringsWhereNoZeroDoes) {
  ElfImage image({{"foo", ElfImage::kCodeVaddr, 4}});
  image.sections[2].sh_size -= 1;  // without the last zero

  const auto symbols = ElfSymbols::load(make_file(image.build()).get(), ElfSymbols::Tables::kBoth);

  ASSERT_TRUE(symbols.ok());
  EXPECT_TRUE(symbols->find_function("foo").has_value());
}

TEST(HostileElfTest, RefusesWhatIsNoRegularFile) {
  const TempFolder folder;
  const std::string fifo = folder / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);

  for (const std::string& path : {fifo, folder.path().string(), std::string("/dev/zero")}) {
    const Fd fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    ASSERT_TRUE(fd.valid()) << path;
    EXPECT_EQ(read_all_ways(fd.get()).code(), StatusCode::kFailedPrecondition) << path;
  }
}

TEST(HostileElfTest, RefusesADescriptorThatCannotBeRead) {
  const TempFolder folder;
  const std::string path = folder / "file";
  std::ofstream(path) << "\x7f"
                         "ELF and more";
  const Fd write_only(::open(path.c_str(), O_WRONLY | O_CLOEXEC));

  EXPECT_EQ(read_all_ways(write_only.get()).message(), "read: Bad file descriptor");
  EXPECT_EQ(read_all_ways(-1).message(), "fstat: Bad file descriptor");
}

TEST(HostileElfTest, TakesEmptyAndForeignFilesForNoElf) {
  for (const std::string& bytes : {std::string(), std::string("\x7f"), std::string("#!/bin/sh\n"),
                                   std::string(4096, '\0'), std::string(4096, '\xff')}) {
    EXPECT_EQ(read_image(bytes).code(), StatusCode::kInvalidArgument) << bytes.size();
  }
}

TEST(HostileElfTest, SeesEveryTruncation) {
  const std::string sample = read_file(ELF_SAMPLE);
  ASSERT_EQ(read_image(sample).code(), StatusCode::kOk);

  for (size_t length = 0; length < sample.size(); length += 64) {
    const Status status = read_image(sample.substr(0, length));
    EXPECT_EQ(status.code(), length == 0 ? StatusCode::kInvalidArgument : StatusCode::kDataLoss)
        << "at " << length << ": " << status;
  }
}

TEST(HostileElfTest, SeesATruncationBetweenTwoReads) {
  const Fd fd = make_file(read_file(ELF_SAMPLE));
  const auto file = ElfFile::open(fd.get());
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(::ftruncate(fd.get(), 4096), 0);

  EXPECT_EQ(file->read_sections().status().code(), StatusCode::kDataLoss);
}

TEST(HostileElfTest, RefusesTablesOfASparseHugeFile) {
  ElfImage image({{"foo", ElfImage::kCodeVaddr, 4}});
  image.sections[2].sh_size = uint64_t{3} << 30;
  const Fd strings = make_file(image.build());
  ASSERT_EQ(::ftruncate(strings.get(), int64_t{4} << 30), 0);
  image = ElfImage({{"foo", ElfImage::kCodeVaddr, 4}});
  image.sections[1].sh_size = ElfSymbols::kMaxSymbols * sizeof(Elf64_Sym) + sizeof(Elf64_Sym);
  const Fd symbols = make_file(image.build());
  ASSERT_EQ(::ftruncate(symbols.get(), int64_t{4} << 30), 0);
  const Fd zeroes = make_file("");
  ASSERT_EQ(::ftruncate(zeroes.get(), int64_t{4} << 30), 0);

  EXPECT_EQ(read_all_ways(strings.get()).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(read_all_ways(symbols.get()).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(read_all_ways(zeroes.get()).code(), StatusCode::kInvalidArgument);
}

// The most work a file within the bounds can ask for: every symbol has the wanted name, or one
// without an end.
TEST(HostileElfTest, ReadsTheWorstFileWithinTheBoundsInTime) {
  constexpr size_t kSymbols = 200'000;
  ElfImage image({});
  image.strings = std::string(1, '\0') + "foo" + std::string(1, '\0') + std::string(1 << 20, 'x');
  image.symbols.assign(kSymbols, {.st_name = 5,
                                  .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
                                  .st_shndx = 1,
                                  .st_value = ElfImage::kCodeVaddr,
                                  .st_size = 1});
  for (size_t i = 0; i < kSymbols; i += 2) image.symbols[i].st_name = 1;
  image.sections[1].sh_size = kSymbols * sizeof(Elf64_Sym);
  image.sections[2].sh_offset = image.sections[1].sh_offset + image.sections[1].sh_size;
  image.sections[2].sh_size = image.strings.size();
  image.header.e_shoff = (image.sections[2].sh_offset + image.strings.size() + 7) / 8 * 8;
  const Fd fd = make_file(image.build());

  const std::clock_t begin = std::clock();  // of this process: others may be busy too
  const Status status = read_all_ways(fd.get());
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;

  EXPECT_TRUE(status.ok()) << status;
  // 1 s in a release build; a hang would be minutes.
  EXPECT_LT(seconds, 30);
}

}  // namespace
}  // namespace gpuperf
