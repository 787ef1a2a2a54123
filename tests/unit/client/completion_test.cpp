#include "client/completion.h"
#include "tests/unit/matchers.h"

namespace gpuperf::client {
namespace {

// A small program of the same shape as ours.
class CompletionTest : public ::testing::Test {
 protected:
  CompletionTest() {
    root_.name("tool");
    root_.set_version_flag("--version", "1");
    root_.add_option("-o,--output", text_, "Form")->type_name("table|json|csv");
    root_.add_option("--address", text_);
    CLI::App& list = *root_.add_subcommand("list", "Lists");
    list.add_option("--function", text_);
    list.add_option("--category", text_);
    list.add_option("--watch", text_)->expected(0, 1);
    list.add_flag("--once");
    CLI::App& file = *root_.add_subcommand("config", "Configuration")->add_subcommand("check");
    file.add_option("FILE", text_);
    root_.add_subcommand("disable", "Disables")->add_option("PATTERN", text_);
    root_.add_subcommand("hidden")->group("");
    CLI::App& slow = *root_.add_subcommand("slow");
    slow.add_subcommand("show")->add_option("ID", text_);
    CLI::App& diff = *root_.add_subcommand("diff");
    diff.add_option("A", text_);
    diff.add_option("B", text_);
    diff.add_option("--pid", text_);
    diff.add_option("--capture", text_);
  }
  std::vector<std::string> complete(const std::vector<std::string>& words) {
    std::vector<std::string> texts;
    for (const Candidate& candidate : find_candidates(root_, words, known_)) {
      texts.push_back(candidate.text);
    }
    return texts;
  }

  CLI::App root_;
  std::string text_;
  std::vector<std::string> asked_;
  const ListKnown known_ = [this](KnownKind kind, const std::string& address) {
    asked_.push_back(address);
    switch (kind) {
      case KnownKind::kFunction:
        return std::vector<Candidate>{{"cudaMalloc", "cuda"},
                                      {"cudaFree", "cuda"},
                                      {"cublasGemmEx", "cublas"},
                                      {"a b;rm", ""}};
      case KnownKind::kCategory:
        return std::vector<Candidate>{{"cuda", ""}, {"cuda", ""}, {"cublas", ""}, {"x", ""}};
      case KnownKind::kProcess:
        return std::vector<Candidate>{{"4242", "python3"}};
      case KnownKind::kCapture:
        return std::vector<Candidate>{{"7", "look"}};
      case KnownKind::kSlowCall:
        return std::vector<Candidate>{{"17", "cudaMalloc 2 ms"}};
    }
    return std::vector<Candidate>();
  };
};

TEST_F(CompletionTest, OffersCommandsWithTheirSummaries) {
  const auto candidates = find_candidates(root_, {""}, known_);

  EXPECT_THAT(complete({""}), ElementsAre("list", "config", "disable", "slow", "diff"));
  EXPECT_EQ(candidates[0].description, "Lists");
  EXPECT_THAT(complete({"li"}), ElementsAre("list"));
  EXPECT_THAT(complete({}), ElementsAre("list", "config", "disable", "slow", "diff"));
  EXPECT_THAT(complete({"config", ""}), ElementsAre("check"));
  EXPECT_THAT(asked_, IsEmpty()) << "the daemon is asked only where a name may stand";
}

TEST_F(CompletionTest, OffersProcessesCapturesAndSlowCalls) {
  EXPECT_THAT(complete({"slow", "show", ""}), ElementsAre("17"));
  EXPECT_THAT(complete({"diff", "7", ""}), ElementsAre("7"));
  EXPECT_THAT(complete({"diff", "--capture", ""}), ElementsAre("7"));
  EXPECT_THAT(complete({"diff", "--pid", "4"}), ElementsAre("4242"));
  EXPECT_THAT(complete({"diff", "--pid=5"}), IsEmpty());
}

TEST_F(CompletionTest, OffersFlagsOfTheCommandAndOfThoseAroundIt) {
  EXPECT_THAT(complete({"list", "--"}),
              UnorderedElementsAre("--help", "--function", "--category", "--watch", "--once",
                                   "--output", "--address"));
  EXPECT_THAT(complete({"--v"}), ElementsAre("--version"));
  EXPECT_THAT(complete({"list", "--o"}), UnorderedElementsAre("--once", "--output"));
}

TEST_F(CompletionTest, OffersTheValuesOfAFlag) {
  EXPECT_THAT(complete({"-o", ""}), ElementsAre("table", "json", "csv"));
  EXPECT_THAT(complete({"list", "--output", "j"}), ElementsAre("json"));
  EXPECT_THAT(complete({"list", "--output=c"}), ElementsAre("--output=csv"));
  EXPECT_THAT(complete({"list", "--output", "=", "c"}), ElementsAre("csv"));  // as bash splits it
  EXPECT_THAT(complete({"list", "--output", "="}), ElementsAre("table", "json", "csv"));
}

TEST_F(CompletionTest, AsksTheDaemonForNames) {
  EXPECT_THAT(complete({"list", "--function", "cuda"}), ElementsAre("cudaMalloc", "cudaFree"));
  EXPECT_THAT(complete({"list", "--category", ""}), ElementsAre("cuda", "cublas", "x"));
  EXPECT_THAT(complete({"disable", "cublas"}), ElementsAre("cublasGemmEx"));
  EXPECT_THAT(complete({"--address", "/a.sock", "list", "--function", "z"}), IsEmpty());
  EXPECT_THAT(asked_, ElementsAre("", "", "", "/a.sock"));
}

TEST_F(CompletionTest, OffersNoNameThatAShellWouldRead) {
  EXPECT_THAT(complete({"list", "--function", ""}), Not(Contains("a b;rm")));
}

TEST_F(CompletionTest, GoesOnBehindValuesAndFlagsWithout) {
  EXPECT_THAT(complete({"-o", "list", ""}),
              ElementsAre("list", "config", "disable", "slow", "diff"));
  EXPECT_THAT(complete({"list", "--once", "--function", "f", "--cat"}), ElementsAre("--category"));
  EXPECT_THAT(complete({"list", "--watch", "--on"}), ElementsAre("--once"));
}

TEST_F(CompletionTest, LeavesFilesToTheShell) {
  EXPECT_THAT(complete({"config", "check", ""}), IsEmpty());
  EXPECT_THAT(complete({"list", "--address", ""}), IsEmpty());
}

TEST_F(CompletionTest, OffersNothingForNonsense) {
  EXPECT_THAT(complete({"frob", ""}), IsEmpty());
  EXPECT_THAT(complete({"list", "--frob="}), IsEmpty());
  EXPECT_THAT(complete({"disable", "f", ""}), IsEmpty());
  EXPECT_THAT(complete({"=", "=", "--", "", ""}), IsEmpty());
}

}  // namespace
}  // namespace gpuperf::client
