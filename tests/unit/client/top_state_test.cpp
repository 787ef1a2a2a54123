#include "client/top_state.h"

#include "client/top_screen.h"
#include "tests/unit/matchers.h"

namespace gpuperf::client {
namespace {

Key press(char character) { return {KeyKind::kCharacter, character}; }

std::vector<FunctionRate> make_rates() {
  return {{.category = "cuda", .function = "cudaMalloc", .time_ratio = 0.5, .avg_ns = 10},
          {.category = "cublas", .function = "cublasGemmEx", .time_ratio = 0.3, .avg_ns = 30},
          {.category = "cuda", .function = "cudaFree", .time_ratio = 0.1, .avg_ns = 20}};
}

std::vector<std::string> list_names(const TopState& state) {
  std::vector<std::string> names;
  for (const FunctionRate& rate : arrange({.functions = make_rates()}, state).functions) {
    names.push_back(rate.function);
  }
  return names;
}

TEST(TerminalTest, ReadsKeysOffBytes) {
  EXPECT_THAT(parse_keys("q\x1b[A\x1b[B\r\x7f\x1b"),
              ElementsAre(press('q'), Key{KeyKind::kUp}, Key{KeyKind::kDown}, Key{KeyKind::kEnter},
                          Key{KeyKind::kBackspace}, Key{KeyKind::kEscape}));
  EXPECT_THAT(
      parse_keys("\x1b[5~\x1b[6~\x1b[1;5C\x1bOA\x01s"),
      ElementsAre(Key{KeyKind::kPageUp}, Key{KeyKind::kPageDown}, Key{KeyKind::kUp}, press('s')));
  EXPECT_THAT(parse_keys("\x1b["), IsEmpty());
}

TEST(TopStateTest, SortsByTheColumnChosen) {
  TopState state;
  EXPECT_THAT(list_names(state), ElementsAre("cudaMalloc", "cublasGemmEx", "cudaFree"));

  while (list_top_sorts()[state.sort] != "avg") apply_key(state, press('s'), make_rates());
  EXPECT_THAT(list_names(state), ElementsAre("cublasGemmEx", "cudaFree", "cudaMalloc"));
  for (size_t i = 0; i < list_top_sorts().size(); ++i) apply_key(state, press('S'), make_rates());
  EXPECT_EQ(list_top_sorts()[state.sort], "avg");
}

TEST(TopStateTest, FiltersByNameAndCategory) {
  TopState state;
  for (const char letter : std::string("/qblas")) apply_key(state, press(letter), make_rates());
  EXPECT_FALSE(state.quits) << "letters go into the filter";
  EXPECT_THAT(list_names(state), IsEmpty());

  for (int i = 0; i < 5; ++i) apply_key(state, {KeyKind::kBackspace}, make_rates());
  for (const char letter : std::string("cublas")) apply_key(state, press(letter), make_rates());
  apply_key(state, {KeyKind::kEnter}, make_rates());
  EXPECT_FALSE(state.is_filtering);
  EXPECT_THAT(list_names(state), ElementsAre("cublasGemmEx"));

  apply_key(state, {KeyKind::kEscape}, make_rates());
  EXPECT_THAT(list_names(state), SizeIs(3));
}

TEST(TopStateTest, OpensTheRowThatIsSelected) {
  TopState state;
  apply_key(state, {KeyKind::kUp}, make_rates());
  EXPECT_EQ(state.selected, 0u);
  for (int i = 0; i < 5; ++i) apply_key(state, {KeyKind::kDown}, make_rates());
  EXPECT_EQ(state.selected, 2u);

  apply_key(state, {KeyKind::kEnter}, make_rates());
  EXPECT_EQ(state.opened, std::pair(std::string("cuda"), std::string("cudaFree")));
  apply_key(state, {KeyKind::kEscape}, make_rates());
  EXPECT_EQ(state.opened, std::nullopt);
  apply_key(state, {KeyKind::kEnter}, {});
  EXPECT_EQ(state.opened, std::nullopt) << "no row, nothing to open";
  apply_key(state, press('q'), make_rates());
  EXPECT_TRUE(state.quits);
}

TEST(TopScreenTest, FitsEightyColumnsAndShowsTheRowThatIsSelected) {
  TopScreen screen = {.rates = {.interval_seconds = 2, .functions = make_rates()}};
  screen.rates.functions[0].bytes_per_second = 5e9;
  const TopState state = {.selected = 2};

  const std::string narrow = render_full_screen(screen, state, 2, {.columns = 80});
  const std::string wide = render_full_screen(screen, state, 0, {.columns = 200});

  for (size_t at = 0; at < narrow.size();) {
    const size_t end = narrow.find('\n', at);
    EXPECT_LE(measure_width(narrow.substr(at, end - at)), 80);
    at = end + 1;
  }
  EXPECT_THAT(narrow, AllOf(HasSubstr(">  cudaFree"), Not(HasSubstr("cudaMalloc")),
                            HasSubstr("  cublasGemmEx"), Not(HasSubstr("BYTES/S"))));
  EXPECT_THAT(narrow, HasSubstr("q quit  s sort: time  / filter"));
  EXPECT_THAT(wide, AllOf(HasSubstr("CATEGORY"), HasSubstr("4.66 GiB"), HasSubstr("cudaMalloc")));
}

TEST(TopScreenTest, ShowsTheProcessesAndSlowCallsOfAFunction) {
  TopScreen screen = {.rates = {.interval_seconds = 2, .functions = {make_rates()[0]}}};
  screen.rates.functions[0].pid = 4242;
  screen.rates.functions[0].comm = "python3";
  v1::SlowCall call;
  call.set_id(17);
  call.set_duration_ns(2'000'000);
  screen.slow_calls = {call};
  const TopState state = {.opened = std::pair("cuda", "cudaMalloc")};

  const std::string text = render_full_screen(screen, state, 0, {});

  EXPECT_THAT(text, HasSubstr("cudaMalloc (cuda), by process\n"));
  EXPECT_THAT(text, HasSubstr("\n4242  python3"));
  EXPECT_THAT(text, HasSubstr("Last slow calls (gpuperfctl slow show ID)\n"));
  EXPECT_THAT(text, HasSubstr("\n17  "));
  EXPECT_THAT(text, HasSubstr("Esc back"));
}

}  // namespace
}  // namespace gpuperf::client
