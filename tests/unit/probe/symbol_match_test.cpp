#include "daemon/probe/elf/symbol_match.h"

#include <dlfcn.h>
#include <fcntl.h>

#include <ctime>
#include <memory>

#include "tests/unit/files.h"
#include "tests/unit/matchers.h"
#include "tests/unit/probe/elf_builder.h"

namespace gpuperf {
namespace {

using elf_builder::ElfImage;
using elf_builder::make_file;
using elf_builder::Symbol;

QueryMatches match(int fd, SymbolForm form, const std::string& symbol) {
  const SymbolQuery query{.form = form, .symbol = symbol};
  return match_symbols(fd, std::span(&query, 1)).value().front();
}

std::vector<std::string> get_symbols(const QueryMatches& found) {
  std::vector<std::string> symbols;
  for (const SymbolMatch& match : found.matches) symbols.push_back(match.symbol);
  return symbols;
}

// Of the sample library.
std::vector<std::string> find(SymbolForm form, const std::string& symbol) {
  return get_symbols(match(open_file(MATCH_SAMPLE).get(), form, symbol));
}
std::vector<std::string> find_wildcard(const std::string& symbol) {
  return find(SymbolForm::kWildcard, symbol);
}
std::vector<std::string> find_demangled(const std::string& symbol) {
  return find(SymbolForm::kDemangled, symbol);
}

// Where the dynamic linker has put the sample's symbols, as offsets in its file.
class LoadedMatchSample {
 public:
  LoadedMatchSample() : handle_(::dlopen(MATCH_SAMPLE, RTLD_NOW | RTLD_LOCAL), &::dlclose) {}
  uint64_t offset_of(const char* name) const {
    void* const address = ::dlsym(handle_.get(), name);
    Dl_info info{};
    if (address == nullptr || ::dladdr(address, &info) == 0) return 0;
    const uint64_t vaddr = static_cast<char*>(address) - static_cast<char*>(info.dli_fbase);
    const ElfFile file = ElfFile::open(open_file(MATCH_SAMPLE).get()).value();
    for (const LoadSegment& segment : file.segments()) {
      const uint64_t distance = vaddr - segment.vaddr;
      if (distance < segment.file_bytes) return segment.offset_bytes + distance;
    }
    return 0;
  }

 private:
  std::unique_ptr<void, int (*)(void*)> handle_;
};

TEST(SymbolMatchTest, AnswersEachFormAsAskedAndInOrder) {
  const std::vector<SymbolQuery> queries = {
      {SymbolForm::kUsdt, "sample:begin"},         {SymbolForm::kExact, "match_local"},
      {SymbolForm::kWildcard, "match_f*"},         {SymbolForm::kExact, "match_nowhere"},
      {SymbolForm::kDemangled, "shapes::area_of"}, {SymbolForm::kExact, "match_second"}};
  Status unread;

  const auto found = match_symbols(open_file(MATCH_SAMPLE).get(), queries, &unread).value();

  ASSERT_EQ(found.size(), queries.size());
  EXPECT_THAT(get_symbols(found[0]), ElementsAre("sample:begin"));
  EXPECT_THAT(get_symbols(found[1]), ElementsAre("match_local"));
  EXPECT_THAT(get_symbols(found[2]), ElementsAre("match_first"));
  EXPECT_THAT(get_symbols(found[3]), IsEmpty());
  EXPECT_THAT(get_symbols(found[4]), ElementsAre("_ZN6shapes7area_ofERKNS_5PlainE"));
  EXPECT_THAT(get_symbols(found[5]), ElementsAre("match_second"));
  EXPECT_TRUE(unread.ok()) << unread;
}

TEST(SymbolMatchTest, LooksInTheStaticTableForWhatIsNotExported) {
  EXPECT_THAT(find(SymbolForm::kExact, "match_local"), ElementsAre("match_local"));
  EXPECT_THAT(find(SymbolForm::kExact, "match_data"), IsEmpty());
}

TEST(SymbolMatchTest, TakesAStrippedLibraryForComplete) {
  const std::vector<SymbolQuery> queries = {{SymbolForm::kExact, "match_local"},
                                            {SymbolForm::kExact, "match_first"},
                                            {SymbolForm::kWildcard, "match_l*"}};
  Status unread;

  const auto found =
      match_symbols(open_file(MATCH_SAMPLE_STRIPPED).get(), queries, &unread).value();

  EXPECT_THAT(found[0].matches, IsEmpty());
  EXPECT_THAT(get_symbols(found[1]), ElementsAre("match_first"));
  EXPECT_THAT(found[2].matches, IsEmpty());
  EXPECT_TRUE(unread.ok()) << unread;
}

TEST(SymbolMatchTest, WildcardsFindEveryFunctionOnceWithoutItsVersion) {
  EXPECT_THAT(find_wildcard("match_*"),
              ElementsAre("match_alias", "match_first", "match_local", "match_new", "match_old",
                          "match_second", "match_static_probes", "match_versioned"));
  EXPECT_THAT(find_wildcard("*_s*d"), ElementsAre("match_second"));
  EXPECT_THAT(find_wildcard("nothing*"), IsEmpty());
}

TEST(SymbolMatchTest, WildcardsPreferTheDefaultVersionWhereverItStands) {
  const LoadedMatchSample loaded;

  const QueryMatches found =
      match(open_file(MATCH_SAMPLE).get(), SymbolForm::kWildcard, "match_v*");

  ASSERT_EQ(found.matches.size(), 1u);
  EXPECT_EQ(found.matches[0].where.file_offset_bytes, loaded.offset_of("match_new"));
  EXPECT_GT(found.matches[0].where.size_bytes, 0u);
}

TEST(SymbolMatchTest, WildcardsLeavePiecesOfFunctionsAndLabelsOut) {
  const ElfImage image({{"f_whole", ElfImage::kCodeVaddr, 8},
                        {"f_whole.cold", ElfImage::kCodeVaddr + 16, 8},
                        {"f_whole.part.0", ElfImage::kCodeVaddr + 32, 8},
                        {"f_whole.constprop.0", ElfImage::kCodeVaddr + 48, 8},
                        {"f_label", ElfImage::kCodeVaddr + 4, 0, STT_NOTYPE},
                        {"f_data", ElfImage::kCodeVaddr + 64, 8, STT_OBJECT},
                        {"f_chosen", ElfImage::kCodeVaddr + 80, 8, STT_GNU_IFUNC}});

  const QueryMatches found = match(make_file(image.build()).get(), SymbolForm::kWildcard, "f_*");

  EXPECT_THAT(get_symbols(found), ElementsAre("f_chosen", "f_whole", "f_whole.constprop.0"));
  EXPECT_TRUE(found.matches[0].where.is_ifunc);
}

TEST(SymbolMatchTest, CountsTheMatchesItLeavesOut) {
  std::vector<Symbol> many;
  for (size_t i = 0; i < kMaxMatches + 7; ++i) {
    many.push_back({"f" + std::to_string(i), ElfImage::kCodeVaddr + i % 64, 1});
  }

  const QueryMatches found =
      match(make_file(ElfImage(many).build()).get(), SymbolForm::kWildcard, "f*");

  EXPECT_EQ(found.matches.size(), kMaxMatches);
  EXPECT_EQ(found.left_out_count, 7u);
}

TEST(SymbolMatchTest, DemangledNamesFindEveryOverload) {
  EXPECT_THAT(find_demangled("shapes::Plain::area"),
              ElementsAre("_ZNK6shapes5Plain4areaEd", "_ZNK6shapes5Plain4areaEi",
                          "_ZNO6shapes5Plain4areaEv"));
  EXPECT_THAT(find_demangled("shapes::area_of"), ElementsAre("_ZN6shapes7area_ofERKNS_5PlainE"));
  EXPECT_THAT(find_demangled("Plain::area"), IsEmpty());
  EXPECT_THAT(find_demangled("shapes::Plain"), IsEmpty());
}

TEST(SymbolMatchTest, DemangledNamesLeaveReturnTypesAndTagsAside) {
  EXPECT_THAT(find_demangled("shapes::twice<int>"), ElementsAre("_ZN6shapes5twiceIiEET_S1_"));
  EXPECT_THAT(find_demangled("shapes::Plain::name"),
              ElementsAre("_ZNK6shapes5Plain4nameB5cxx11Ev"));
  EXPECT_THAT(find_demangled("shapes::Box<int>::take"), ElementsAre("_ZN6shapes3BoxIiE4takeEi"));
  EXPECT_THAT(find_demangled("shapes::Box::take"), IsEmpty());
}

TEST(SymbolMatchTest, DemangledNamesFindOperators) {
  EXPECT_THAT(find_demangled("shapes::Plain::operator()"), ElementsAre("_ZN6shapes5PlainclEi"));
  EXPECT_THAT(find_demangled("shapes::Plain::operator<"), ElementsAre("_ZNK6shapes5PlainltERKS0_"));
  EXPECT_THAT(find_demangled("shapes::Plain::operator bool"),
              ElementsAre("_ZNK6shapes5PlaincvbEv"));
}

TEST(SymbolMatchTest, DemangledNamesTakeWildcards) {
  EXPECT_THAT(find_demangled("shapes::twice<*>"),
              ElementsAre("_ZN6shapes5twiceIfEET_S1_", "_ZN6shapes5twiceIiEET_S1_"));
  EXPECT_THAT(find_demangled("*::hidden_inside"),
              ElementsAre("_ZN12_GLOBAL__N_113hidden_insideEi"));
  EXPECT_THAT(find_demangled("shapes::Plain::operator*").size(), 3u);
}

TEST(SymbolMatchTest, ConstructorsAndDestructorsAreFoundOnceEach) {
  EXPECT_EQ(find_demangled("shapes::Plain::Plain").size(), 1u);  // complete and base share a place
  // The deleting destructor runs the complete one.
  EXPECT_THAT(find_demangled("shapes::Plain::~Plain"),
              ElementsAre(testing::AnyOf("_ZN6shapes5PlainD1Ev", "_ZN6shapes5PlainD2Ev")));
}

TEST(SymbolMatchTest, ThunksAreNotTheFunctionTheyLeadTo) {
  EXPECT_THAT(find_demangled("shapes::Joined::side"), ElementsAre("_ZN6shapes6Joined4sideEv"));
  EXPECT_THAT(find_demangled("*Joined::side"), ElementsAre("_ZN6shapes6Joined4sideEv"));
}

TEST(SymbolMatchTest, FindsEverySiteOfAStaticProbeWithItsSemaphore) {
  const LoadedMatchSample loaded;
  const uint64_t semaphore = loaded.offset_of("match_semaphore");
  ASSERT_NE(semaphore, 0u);

  const Fd file = open_file(MATCH_SAMPLE);
  EXPECT_THAT(match(file.get(), SymbolForm::kUsdt, "sample:begin").matches,
              ElementsAre(SymbolMatch{"sample:begin", {loaded.offset_of("match_site_begin")}, 0}));
  EXPECT_THAT(
      match(file.get(), SymbolForm::kUsdt, "sample:step").matches,
      ElementsAre(SymbolMatch{"sample:step", {loaded.offset_of("match_site_step_1")}, semaphore},
                  SymbolMatch{"sample:step", {loaded.offset_of("match_site_step_2")}, semaphore}));
  EXPECT_EQ(match(file.get(), SymbolForm::kUsdt, "sample:*").matches.size(), 3u);
  EXPECT_THAT(match(file.get(), SymbolForm::kUsdt, "other:begin").matches, IsEmpty());
}

TEST(SymbolMatchTest, FindsStaticProbesWhereAllSymbolsAreStripped) {
  const Fd file = open_file(MATCH_SAMPLE_STRIPPED);

  EXPECT_EQ(match(file.get(), SymbolForm::kUsdt, "sample:step").matches.size(), 2u);
}

TEST(SymbolMatchTest, SaysWhichTableItCouldNotReadAndUsesTheOther) {
  ElfImage image({{"foo", ElfImage::kCodeVaddr}}, SHT_DYNSYM);
  Elf64_Shdr damaged = image.sections[1];
  damaged.sh_type = SHT_SYMTAB;
  damaged.sh_size = 1 << 20;
  image.sections.push_back(damaged);
  image.header.e_shnum = 4;
  const std::vector<SymbolQuery> queries = {{SymbolForm::kWildcard, "f*"}};
  Status unread;

  const auto found = match_symbols(make_file(image.build()).get(), queries, &unread).value();

  EXPECT_THAT(found[0].matches, ElementsAre(SymbolMatch{"foo", {ElfImage::kCodeOffset}, 0}));
  EXPECT_EQ(unread.code(), absl::StatusCode::kDataLoss);
}

TEST(SymbolMatchTest, FailsWhereThereIsNoSymbolTableAtAll) {
  ElfImage image({});
  image.header.e_shoff = 0;
  const std::vector<SymbolQuery> queries = {{SymbolForm::kWildcard, "f*"}};

  const auto found = match_symbols(make_file(image.build()).get(), queries);

  EXPECT_EQ(found.status().code(), absl::StatusCode::kNotFound);
}

// The most a file within the bounds can ask for: names that overlap, each as long as may be, and
// each worth demangling.
TEST(SymbolMatchTest, GivesUpOnFilesWhoseNamesAreEndless) {
  constexpr size_t kSymbols = 400'000;
  ElfImage image({});
  image.strings = std::string(1, '\0') + "_Z3900" + std::string(3900, 'x') + "v";
  image.symbols.assign(kSymbols, {.st_name = 1,
                                  .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
                                  .st_shndx = 1,
                                  .st_value = ElfImage::kCodeVaddr,
                                  .st_size = 1});
  image.sections[1].sh_size = kSymbols * sizeof(Elf64_Sym);
  image.sections[2].sh_offset = image.sections[1].sh_offset + image.sections[1].sh_size;
  image.sections[2].sh_size = image.strings.size();
  image.header.e_shoff = (image.sections[2].sh_offset + image.strings.size() + 7) / 8 * 8;
  const Fd file = make_file(image.build());
  const std::vector<SymbolQuery> queries = {{SymbolForm::kDemangled, "*::f"},
                                            {SymbolForm::kWildcard, "*a*b"}};

  const std::clock_t begin = std::clock();  // of this process: others may be busy too
  const auto found = match_symbols(file.get(), queries);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;

  EXPECT_EQ(found.status().code(), absl::StatusCode::kResourceExhausted) << found.status();
  EXPECT_LT(seconds, 30);  // about 1 s in a release build
}

TEST(SymbolMatchTest, FindsAFunctionOfPyTorchByItsCppName) {
  const char* path = "/usr/lib/x86_64-linux-gnu/libtorch_cpu.so";
  const Fd file = open_file(path);
  if (!file.valid()) GTEST_SKIP() << path << " is not installed";

  EXPECT_THAT(
      get_symbols(match(file.get(), SymbolForm::kDemangled, "torch::nn::LinearImpl::forward")),
      ElementsAre("_ZN5torch2nn10LinearImpl7forwardERKN2at6TensorE"));
}

}  // namespace
}  // namespace gpuperf
