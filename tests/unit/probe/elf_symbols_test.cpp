#include "daemon/probe/elf/elf_symbols.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>

#include "tests/unit/files.h"
#include "tests/unit/matchers.h"
#include "tests/unit/probe/elf_builder.h"

namespace gpuperf {
namespace {

using elf_builder::ElfImage;
using elf_builder::make_file;
using elf_builder::Symbol;
using Tables = ElfSymbols::Tables;

ElfSymbols load_sample(const char* path, Tables tables) {
  return ElfSymbols::load(open_file(path).get(), tables).value();
}

ElfSymbols load_image(const ElfImage& image) {
  return ElfSymbols::load(make_file(image.build()).get(), Tables::kBoth).value();
}

// Where the dynamic linker has put a function, as an offset in the file: the sample's segments lie
// in memory as in the file.
class LoadedSample {
 public:
  LoadedSample() : handle_(::dlopen(ELF_SAMPLE, RTLD_NOW | RTLD_LOCAL), &::dlclose) {}
  std::optional<uint64_t> offset_of(const char* name, const char* version = nullptr) const {
    void* const address =
        version == nullptr ? ::dlsym(handle_.get(), name) : ::dlvsym(handle_.get(), name, version);
    Dl_info info{};
    if (address == nullptr || ::dladdr(address, &info) == 0) return std::nullopt;
    return static_cast<char*>(address) - static_cast<char*>(info.dli_fbase);
  }

 private:
  std::unique_ptr<void, int (*)(void*)> handle_;
};

TEST(ElfSymbolsTest, FindsExportedFunctionsWhereTheDynamicLinkerDoes) {
  const LoadedSample loaded;
  const ElfSymbols symbols = load_sample(ELF_SAMPLE, Tables::kDynamic);

  for (const char* name : {"sample_plain", "sample_weak", "sample_imports"}) {
    const auto function = symbols.find_function(name);
    ASSERT_TRUE(function.has_value()) << name;
    EXPECT_EQ(function->file_offset_bytes, loaded.offset_of(name)) << name;
    EXPECT_GT(function->size_bytes, 0u) << name;
    EXPECT_FALSE(function->is_ifunc) << name;
  }
}

TEST(ElfSymbolsTest, PrefersTheDefaultVersionInEitherTable) {
  const LoadedSample loaded;
  const uint64_t new_offset = loaded.offset_of("sample_versioned", "V2").value();
  ASSERT_NE(new_offset, loaded.offset_of("sample_versioned", "V1").value());

  for (const Tables tables : {Tables::kDynamic, Tables::kStatic, Tables::kBoth}) {
    const auto function = load_sample(ELF_SAMPLE, tables).find_function("sample_versioned");
    ASSERT_TRUE(function.has_value());
    EXPECT_EQ(function->file_offset_bytes, new_offset);
  }
}

TEST(ElfSymbolsTest, PrefersTheDefaultVersionWhicheverComesFirst) {
  const std::vector<Symbol> old_first = {{"foo@V1", ElfImage::kCodeVaddr},
                                         {"foo@@V2", ElfImage::kCodeVaddr + 16}};
  const std::vector<Symbol> new_first = {{"foo@@V2", ElfImage::kCodeVaddr + 16},
                                         {"foo@V1", ElfImage::kCodeVaddr}};

  for (const auto& order : {old_first, new_first}) {
    const auto function = load_image(ElfImage(order)).find_function("foo");
    ASSERT_TRUE(function.has_value());
    EXPECT_EQ(function->file_offset_bytes, ElfImage::kCodeOffset + 16);
  }
}

// Longer than a piece in which they are read, with names on both sides of where pieces meet.
TEST(ElfSymbolsTest, FindsTheSameWhereNamesAreLeftInTheFile) {
  std::vector<Symbol> all;
  std::vector<std::string> names = {"none", "f7"};
  for (uint64_t i = 0; i < 5'000; ++i) {
    names.push_back("f" + std::to_string(i) + "_" + std::string(1'000 + i % 3'000, 'x'));
    all.push_back({names.back(), ElfImage::kCodeVaddr + i % 0x100, 8});
  }
  const Fd file = make_file(ElfImage(all).build());
  const auto read = ElfSymbols::load(file.get(), Tables::kStatic);
  ASSERT_TRUE(read.ok()) << read.status();
  const auto left = ElfSymbols::load(file.get(), Tables::kStatic, ElfSymbols::kMaxTableBytes,
                                     ElfSymbols::Names::kLeft);
  ASSERT_TRUE(left.ok()) << left.status();
  ASSERT_GT(left->name_bytes(), uint64_t{9} << 20);

  const auto found = left->find_all(names);

  EXPECT_EQ(found, read->find_all(names));
  EXPECT_EQ(std::ranges::count_if(found, [](const auto& one) { return !one; }), 2);
  const auto sorted = left->sort_functions(), expected = read->sort_functions();
  ASSERT_EQ(sorted.size(), expected.size());
  for (size_t i = 0; i < sorted.size(); ++i) {
    EXPECT_EQ(sorted[i].vaddr, expected[i].vaddr);
    EXPECT_EQ(sorted[i].name_offset_bytes, expected[i].name_offset_bytes);
    EXPECT_EQ(sorted[i].name, "");
  }
}

TEST(ElfSymbolsTest, FindsNoNamesInAFileThatHasBecomeShorter) {
  const Fd file = make_file(ElfImage({{"foo", ElfImage::kCodeVaddr, 8}}).build());
  const auto left = ElfSymbols::load(file.get(), Tables::kStatic, ElfSymbols::kMaxTableBytes,
                                     ElfSymbols::Names::kLeft);
  ASSERT_TRUE(left.ok()) << left.status();

  ASSERT_EQ(ftruncate(file.get(), 100), 0);

  EXPECT_EQ(left->find_function("foo"), std::nullopt);
}

TEST(ElfSymbolsTest, SkipsImportedFunctionsAndData) {
  const ElfSymbols symbols = load_sample(ELF_SAMPLE, Tables::kBoth);

  EXPECT_EQ(symbols.find_function("puts"), std::nullopt);
  EXPECT_EQ(symbols.find_function("sample_data"), std::nullopt);
  EXPECT_EQ(symbols.find_function("V1"), std::nullopt);
}

TEST(ElfSymbolsTest, TellsWhereSymbolsOfAnyKindStand) {
  const Fd fd = make_file(
      ElfImage({{.name = "used", .section = SHN_UNDEF},
                {.name = "state", .vaddr = 0x500000, .size_bytes = 8, .type = STT_OBJECT}})
          .build());
  const auto symbols = ElfSymbols::load(fd.get(), ElfSymbols::Tables::kStatic);
  ASSERT_TRUE(symbols.ok()) << symbols.status();

  EXPECT_EQ(symbols->find_symbol("state"), (SymbolPlace{0x500000, 8}));
  EXPECT_EQ(symbols->find_symbol("stat"), std::nullopt);
  EXPECT_EQ(symbols->find_symbol("state2"), std::nullopt);
  EXPECT_EQ(symbols->find_symbol("used"), std::nullopt);
}

TEST(ElfSymbolsTest, MarksIndirectFunctions) {
  const auto function = load_sample(ELF_SAMPLE, Tables::kDynamic).find_function("sample_indirect");

  ASSERT_TRUE(function.has_value());
  EXPECT_TRUE(function->is_ifunc);
}

TEST(ElfSymbolsTest, FindsLocalFunctionsInTheStaticTableOnly) {
  EXPECT_FALSE(load_sample(ELF_SAMPLE, Tables::kDynamic).find_function("sample_local").has_value());
  EXPECT_TRUE(load_sample(ELF_SAMPLE, Tables::kStatic).find_function("sample_local").has_value());
}

TEST(ElfSymbolsTest, SaysStrippedWhenTheWantedTableIsNotThere) {
  const auto symbols = ElfSymbols::load(open_file(ELF_SAMPLE_STRIPPED).get(), Tables::kStatic);

  EXPECT_EQ(symbols.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(symbols.status().message(), "stripped: no symbol table");
  EXPECT_TRUE(load_sample(ELF_SAMPLE_STRIPPED, Tables::kBoth).find_function("sample_plain"));
}

TEST(ElfSymbolsTest, TurnsAddressesIntoFileOffsetsThroughTheSegments) {
  const ElfSymbols symbols = load_image(ElfImage({{"foo", ElfImage::kCodeVaddr + 0x30, 8}}));

  EXPECT_EQ(symbols.find_function("foo"),
            (FunctionSymbol{.file_offset_bytes = ElfImage::kCodeOffset + 0x30, .size_bytes = 8}));
}

TEST(ElfSymbolsTest, SkipsSymbolsOutsideTheExecutableSegments) {
  const std::vector<Symbol> outside = {
      {"before", ElfImage::kCodeVaddr - 1},
      {"behind", ElfImage::kCodeVaddr + ElfImage::kCodeBytes},
      {"far", UINT64_MAX},
      {"absolute", ElfImage::kCodeVaddr, 0, STT_FUNC, STB_GLOBAL, SHN_ABS}};
  ElfImage readable_only({{"foo", ElfImage::kCodeVaddr}});
  readable_only.segment.p_flags = PF_R;

  const ElfSymbols symbols = load_image(ElfImage(outside));
  for (const Symbol& symbol : outside) {
    EXPECT_EQ(symbols.find_function(symbol.name), std::nullopt) << symbol.name;
  }
  EXPECT_EQ(load_image(readable_only).find_function("foo"), std::nullopt);
}

TEST(ElfSymbolsTest, PrefersTypedThenGlobalThenWeakSymbols) {
  const ElfSymbols symbols = load_image(ElfImage({
      {"typed", ElfImage::kCodeVaddr, 0, STT_NOTYPE, STB_GLOBAL},
      {"typed", ElfImage::kCodeVaddr + 1, 0, STT_FUNC, STB_LOCAL},
      {"bound", ElfImage::kCodeVaddr + 2, 0, STT_FUNC, STB_LOCAL},
      {"bound", ElfImage::kCodeVaddr + 3, 0, STT_FUNC, STB_GLOBAL},
      {"bound", ElfImage::kCodeVaddr + 4, 0, STT_FUNC, STB_WEAK},
      {"twice", ElfImage::kCodeVaddr + 5, 0, STT_FUNC, STB_LOCAL},
      {"twice", ElfImage::kCodeVaddr + 6, 0, STT_FUNC, STB_LOCAL},
  }));

  EXPECT_EQ(symbols.find_function("typed")->file_offset_bytes, ElfImage::kCodeOffset + 1);
  EXPECT_EQ(symbols.find_function("bound")->file_offset_bytes, ElfImage::kCodeOffset + 3);
  EXPECT_EQ(symbols.find_function("twice")->file_offset_bytes, ElfImage::kCodeOffset + 5);
}

TEST(ElfSymbolsTest, AnswersEveryWantedNameInOrder) {
  const ElfSymbols symbols = load_image(ElfImage({{"aa", ElfImage::kCodeVaddr},
                                                  {"aaa", ElfImage::kCodeVaddr + 1},
                                                  {"b@@V", ElfImage::kCodeVaddr + 2}}));
  const std::vector<std::string> names = {"b", "", "aa", "a", "aa", "aaaa", "b@@V"};

  std::vector<uint64_t> offsets;
  for (const auto& function : symbols.find_all(names)) {
    offsets.push_back(function ? function->file_offset_bytes : 0);
  }

  EXPECT_THAT(offsets, ElementsAre(ElfImage::kCodeOffset + 2, 0, ElfImage::kCodeOffset, 0,
                                   ElfImage::kCodeOffset, 0, 0));
}

TEST(ElfSymbolsTest, SortsFunctionsByAddressOneForEach) {
  const ElfSymbols symbols = load_image(ElfImage({
      {"last", ElfImage::kCodeVaddr + 0x80, 4},
      {"_weak_alias", ElfImage::kCodeVaddr, 16, STT_FUNC, STB_WEAK},
      {"first", ElfImage::kCodeVaddr, 16},
      {"label_inside", ElfImage::kCodeVaddr + 8, 0, STT_NOTYPE},
      {"label_outside", ElfImage::kCodeVaddr + 16, 0, STT_NOTYPE},
      {"versioned@@V", ElfImage::kCodeVaddr + 0x20, 4},
      {"data", ElfImage::kCodeVaddr + 0x30, 4, STT_OBJECT},
      {"", ElfImage::kCodeVaddr + 0x40, 4},
  }));

  std::vector<SortedSymbol> sorted = symbols.sort_functions();
  for (SortedSymbol& symbol : sorted) symbol.name_offset_bytes = 0;
  EXPECT_THAT(sorted, ElementsAre(SortedSymbol{ElfImage::kCodeVaddr, 16, "first"},
                                  SortedSymbol{ElfImage::kCodeVaddr + 16, 0, "label_outside"},
                                  SortedSymbol{ElfImage::kCodeVaddr + 0x20, 4, "versioned"},
                                  SortedSymbol{ElfImage::kCodeVaddr + 0x80, 4, "last"}));
}

// Every function of a real library, against binutils.
TEST(ElfSymbolsTest, AgreesWithNmOnTheRealCudaRuntime) {
  const char* path = "/usr/local/cuda/lib64/libcudart.so";
  const Fd file = open_file(path);
  if (!file.valid()) GTEST_SKIP() << path << " is not installed";
  const std::string command = std::string("nm -D --defined-only ") + path;
  const std::unique_ptr<FILE, int (*)(FILE*)> output(::popen(command.c_str(), "r"), &::pclose);
  std::map<std::string, uint64_t> expected;
  char line[512];
  while (std::fgets(line, sizeof line, output.get()) != nullptr) {
    unsigned long vaddr = 0;
    char type = 0;
    char name[256] = "";
    if (std::sscanf(line, "%lx %c %255[^@\n]", &vaddr, &type, name) == 3 && type == 'T') {
      expected[name] = vaddr;
    }
  }
  ASSERT_TRUE(expected.contains("cudaMalloc"));
  std::vector<std::string> names;
  for (const auto& [name, vaddr] : expected) names.push_back(name);

  const auto found = ElfSymbols::load(file.get(), Tables::kDynamic).value().find_all(names);

  const ElfFile elf = ElfFile::open(file.get()).value();
  for (size_t i = 0; i < names.size(); ++i) {
    ASSERT_TRUE(found[i].has_value()) << names[i];
    uint64_t vaddr = 0;
    for (const LoadSegment& segment : elf.segments()) {
      const uint64_t distance = found[i]->file_offset_bytes - segment.offset_bytes;
      if (segment.executable && distance < segment.file_bytes) vaddr = segment.vaddr + distance;
    }
    EXPECT_EQ(vaddr, expected[names[i]]) << names[i];
  }
}

}  // namespace
}  // namespace gpuperf
