#include "daemon/probe/attach/file_probes.h"

#include <fcntl.h>

#include <numeric>

#include "tests/unit/matchers.h"

namespace gpuperf {
namespace {

ProbeSpec spec(std::string category, std::string name, std::string symbol) {
  const SymbolForm form = symbol.find("::") != symbol.npos  ? SymbolForm::kDemangled
                          : symbol.find('*') != symbol.npos ? SymbolForm::kWildcard
                                                            : SymbolForm::kExact;
  return {.category = std::move(category),
          .function = std::move(name),
          .symbol = std::move(symbol),
          .form = form};
}

class FileProbesTest : public testing::Test {
 protected:
  std::vector<FileProbe> choose(std::vector<ProbeSpec> specs,
                                std::vector<ProbeOverride> overrides = {}) {
    config_.probes = std::move(specs);
    config_.overrides = std::move(overrides);
    wanted_.resize(config_.probes.size());
    std::iota(wanted_.begin(), wanted_.end(), 0);
    const Fd file(::open(PROBES_SAMPLE, O_RDONLY | O_CLOEXEC));
    EXPECT_TRUE(file.valid());
    (void)known_.examine(file.get(), config_, wanted_);
    return known_.choose(config_, wanted_, registry_, 1000, drops_);
  }
  std::string name_of(const FileProbe& probe) { return (*registry_.get())[probe.function_id].name; }

  ProbeConfig config_;
  std::vector<uint32_t> wanted_;
  FileProbes known_;
  FunctionRegistry registry_{16};
  DropCounters drops_;
};

TEST_F(FileProbesTest, ProbesOneOfSeveralNamesOfTheSameCode) {
  const auto probes =
      choose({spec("cuda", "one", "sample_first"), spec("cuda", "two", "sample_second"),
              spec("cuda", "three", "sample_thunk")});

  ASSERT_THAT(probes, SizeIs(3));
  EXPECT_EQ(probes[0].state, ProbeState::kAttached);
  EXPECT_EQ(probes[1].state, ProbeState::kAlias);
  EXPECT_EQ(probes[1].reason, "the same code as one, which counts its calls");
  EXPECT_EQ(probes[2].state, ProbeState::kAlias);
  EXPECT_EQ(probes[2].reason, "only jumps to one, which counts its calls");
}

TEST_F(FileProbesTest, ProbesAThunkWhoseTargetNobodyWants) {
  const auto probes = choose({spec("cuda", "three", "sample_thunk")});

  ASSERT_THAT(probes, SizeIs(1));
  EXPECT_EQ(probes[0].state, ProbeState::kAttached);
}

TEST_F(FileProbesTest, PrefersNamedEntriesToWildcardsWhateverTheirOrder) {
  const auto probes =
      choose({spec("cuda", "all", "sample_*"), spec("cuda", "two", "sample_second")});

  ASSERT_THAT(probes, SizeIs(4));
  for (const FileProbe& probe : probes) {
    EXPECT_EQ(probe.state, name_of(probe) == "two" ? ProbeState::kAttached : ProbeState::kAlias)
        << name_of(probe);
  }
}

TEST_F(FileProbesTest, NamesTheMatchesOfAWildcardBySymbol) {
  const auto probes = choose({spec("cuda", "all", "sample_f*")});

  ASSERT_THAT(probes, SizeIs(1));
  EXPECT_EQ(name_of(probes[0]), "sample_first");
}

TEST_F(FileProbesTest, CountsAllOverloadsAsTheOneFunction) {
  const auto probes = choose({spec("mine", "over", "sample::overloaded")});

  ASSERT_THAT(probes, SizeIs(2));
  EXPECT_EQ(probes[0].function_id, probes[1].function_id);
  EXPECT_NE(probes[0].point.offset_bytes, probes[1].point.offset_bytes);
}

TEST_F(FileProbesTest, NeverPutsAReturnProbeWhereAnExceptionMayPass) {
  ProbeSpec sworn = spec("mine", "sworn", "_ZN6sample10overloadedEi");
  sworn.may_throw = false;
  const auto probes = choose({spec("mine", "throws", "sample::throws"),
                              spec("mine", "c_of_unknown_kind", "sample_first"), sworn,
                              spec("cuda", "c_interface", "sample_thunk")});

  ASSERT_THAT(probes, SizeIs(4));
  EXPECT_EQ(probes[0].point.timing, Timing::kExits);
  EXPECT_THAT(probes[0].point.exits, testing::Not(IsEmpty()));
  EXPECT_EQ(probes[1].point.timing, Timing::kExits);
  EXPECT_EQ(probes[2].point.timing, Timing::kReturn);
  EXPECT_EQ(probes[3].state, ProbeState::kAlias);
}

TEST_F(FileProbesTest, LetsTheLastOverrideThatMatchesDecide) {
  const auto probes =
      choose({spec("cuda", "all", "sample_*"), spec("mine", "over", "sample::overloaded")},
             {{"", "sample_*", false}, {"cuda", "sample_thunk", true}, {"mine", "nothing", false}});

  std::vector<std::string> probed;
  for (const FileProbe& probe : probes) {
    if (probe.state == ProbeState::kAttached) probed.push_back(name_of(probe));
  }
  EXPECT_THAT(probed, ElementsAre("sample_thunk", "over", "over"));
}

TEST_F(FileProbesTest, SaysWhichFunctionsTheRegistryHadNoRoomFor) {
  FunctionRegistry small(1);
  (void)choose({spec("cuda", "one", "sample_first"), spec("mine", "over", "sample::overloaded")});

  const auto probes = known_.choose(config_, wanted_, small, 1000, drops_);

  EXPECT_EQ(probes[0].state, ProbeState::kAttached);
  EXPECT_EQ(probes[1].state, ProbeState::kFailed);
  EXPECT_THAT(probes[1].reason, HasSubstr("raise stats.max_functions"));
  EXPECT_EQ(drops_.get(DropCause::kProbesFunctionsFull), 2u);
}

TEST_F(FileProbesTest, TellsWhatTheFileDoesNotHave) {
  (void)choose({spec("cuda", "one", "sample_first"), spec("cuda", "none", "sample_none")});

  EXPECT_THAT(known_.list_missing(config_, wanted_), ElementsAre(Pair(1, "")));
}

TEST_F(FileProbesTest, SaysWhyAFileCouldNotBeSearched) {
  config_.probes = {spec("cuda", "one", "sample_first")};
  const Fd text(::open("/proc/self/status", O_RDONLY | O_CLOEXEC));
  (void)known_.examine(text.get(), config_, {0});

  const auto missing = known_.list_missing(config_, {0});

  ASSERT_THAT(missing, SizeIs(1));
  EXPECT_THAT(missing[0].second, testing::Not(IsEmpty()));
}

TEST_F(FileProbesTest, LooksForWhatIsNewOnly) {
  (void)choose({spec("cuda", "one", "sample_first")});
  const Fd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));

  EXPECT_TRUE(known_.examine(nothing.get(), config_, wanted_).ok());  // nothing is read
  config_.probes.push_back(spec("cuda", "two", "sample_second"));
  EXPECT_FALSE(known_.examine(nothing.get(), config_, {0, 1}).ok());
}

TEST(FunctionRegistryTest, KeepsTheIdOfAFunctionThatComesBack) {
  FunctionRegistry registry(2);

  const auto first =
      registry.add_all({{.category = "a", .name = "x"}, {.category = "b", .name = "x"}});
  const auto before = registry.get();
  const auto again = registry.add_all(
      {{.category = "b", .name = "x", .slow_threshold_ns = 7}, {.category = "c", .name = "x"}});

  EXPECT_THAT(first, ElementsAre(0, 1));
  EXPECT_THAT(again, ElementsAre(1, FunctionRegistry::kFull));
  EXPECT_EQ((*before)[1].slow_threshold_ns, 0u);  // who holds the old list sees no change
  EXPECT_EQ((*registry.get())[1].slow_threshold_ns, 7u);
}

}  // namespace
}  // namespace gpuperf
