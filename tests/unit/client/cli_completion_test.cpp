// gpuperfctl completion, in the shells themselves.

#include <unistd.h>

#include <filesystem>
#include <set>
#include <sstream>

#include "fake_daemon.h"
#include "program.h"
#include "tests/unit/matchers.h"

namespace gpuperf::client {
namespace {

// The words that this shell would show after its user pressed Tab behind `words`.
struct ShellCase {
  const char* shell;
  // Prints them, one a line; $1 is the program, the words follow.
  const char* script;
};

constexpr ShellCase kBash = {"/usr/bin/bash", R"(
source <("$1" completion bash) || exit 1
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_gpuperfctl
printf '%s\n' "${COMPREPLY[@]}"
)"};
// zsh completes only on a terminal: its own part is replaced by one that prints what it is given.
constexpr ShellCase kZsh = {"/usr/bin/zsh", R"(
compdef() { }
_files() { print FILES }
_describe() { print -rl -- ${${(P)2}%%:*} }
source <("$1" completion zsh) || exit 1
words=("$@")
CURRENT=$#
_gpuperfctl
)"};
constexpr ShellCase kFish = {"/usr/bin/fish", R"(
set -gx PATH (path dirname $argv[1]) $PATH
$argv[1] completion fish | source; or exit 1
complete -C (string join ' ' -- gpuperfctl $argv[2..-1]) | string replace -r '\t.*' ''
true  # string answers 1 when it replaced nothing
)"};

class CliCompletionTest : public ::testing::TestWithParam<ShellCase> {
 protected:
  CliCompletionTest() { daemon_.answers = make_example_answers(); }
  void SetUp() override {
    if (access(GetParam().shell, X_OK) != 0) {
      GTEST_SKIP() << GetParam().shell << " is not installed";
    }
    daemon_.start();
  }
  std::vector<std::string> complete(const std::vector<std::string>& words) {
    const std::string shell = GetParam().shell;
    std::vector<std::string> arguments = {"-c", GetParam().script};
    // Only fish has no name for the script in front of its arguments.
    if (!shell.ends_with("fish")) arguments.emplace_back("script");
    arguments.emplace_back(GPUPERFCTL_PATH);
    arguments.insert(arguments.end(), words.begin(), words.end());
    const auto result =
        run_program(arguments, {.program = shell,
                                .environment = {{"GPUPERF_ADDRESS", daemon_.address()},
                                                {"HOME", daemon_.folder().string()},
                                                {"XDG_CONFIG_HOME", daemon_.folder().string()}}});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    std::vector<std::string> lines;
    std::istringstream out(result.out);
    for (std::string line; std::getline(out, line);) {
      if (!line.empty()) lines.push_back(line);
    }
    return lines;
  }

  FakeDaemon daemon_;
};

TEST_P(CliCompletionTest, CompletesCommands) {
  EXPECT_THAT(complete({"pro"}), ElementsAre("probes", "processes"));
  EXPECT_THAT(complete({"probes", "en"}), ElementsAre("enable"));
  EXPECT_THAT(complete({"probes", "thr"}), ElementsAre("threshold"));
  EXPECT_THAT(complete({""}), AllOf(Contains("top"), Contains("doctor"), Contains("completion")));
}

TEST_P(CliCompletionTest, CompletesFlagsAndTheirValues) {
  EXPECT_THAT(complete({"top", "--on"}), ElementsAre("--once"));
  EXPECT_THAT(complete({"status", "-o", "j"}), ElementsAre("json"));
  EXPECT_THAT(complete({"status", "-o", ""}),
              ::testing::UnorderedElementsAre("table", "json", "csv"));
}

TEST_P(CliCompletionTest, CompletesNamesThatTheDaemonKnows) {
  EXPECT_THAT(complete({"functions", "--function", "cudaM"}), ElementsAre("cudaMalloc"));
  EXPECT_THAT(complete({"top", "--category", "cub"}), ElementsAre("cublas"));
  EXPECT_THAT(complete({"probes", "disable", "cudaL"}), ElementsAre("cudaLaunchKernel"));
}

TEST_P(CliCompletionTest, CompletesProcessesCapturesAndSlowCalls) {
  daemon_.answers.captures.resize(1);
  daemon_.answers.captures[0].set_id(7);

  const std::string call = std::to_string(daemon_.answers.slow_calls[0].id());
  const std::string pid = std::to_string(daemon_.answers.processes[0].pid());
  EXPECT_THAT(complete({"slow", "show", ""}), Contains(call));
  EXPECT_THAT(complete({"top", "--pid", ""}), Contains(pid));
  EXPECT_THAT(complete({"trace", "show", ""}), ElementsAre("7"));
  EXPECT_THAT(complete({"kernels", "--by", "line", "--capture", ""}), ElementsAre("7"));
}

TEST_P(CliCompletionTest, CompletesAThreshold) {
  EXPECT_THAT(complete({"probes", "threshold", "cudaL"}), ElementsAre("cudaLaunchKernel"));
  EXPECT_THAT(complete({"probes", "threshold", "cudaMalloc", "c"}), ElementsAre("config"));
  EXPECT_THAT(complete({"probes", "threshold", "--cat"}), ElementsAre("--category"));
  EXPECT_THAT(complete({"probes", "threshold", "--category", "cub"}), ElementsAre("cublas"));
}

TEST_P(CliCompletionTest, IsQuietWithoutADaemon) {
  daemon_.stop();

  EXPECT_THAT(complete({"functions", "--function", "cudaM"}),
              ::testing::AnyOf(IsEmpty(), ElementsAre("FILES")));
}

INSTANTIATE_TEST_SUITE_P(Shells, CliCompletionTest, ::testing::Values(kBash, kZsh, kFish),
                         [](const auto& info) {
                           return std::filesystem::path(info.param.shell).filename().string();
                         });

TEST(CliCompletionScriptTest, EachShellTakesItsScript) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const auto script = run_program({"completion", shell});
    EXPECT_EQ(script.exit_code, 0) << script.err;
    EXPECT_THAT(script.out, StartsWith("#"));
    if (access((std::string("/usr/bin/") + shell).c_str(), X_OK) != 0) {
      std::cout << shell << " is not installed: its script is not checked\n";
      continue;
    }
    const auto checked = run_program({"-n"}, {.program = shell, .input = script.out});
    EXPECT_EQ(checked.exit_code, 0) << shell << ": " << checked.err;
    EXPECT_EQ(checked.err, "") << shell;
  }
}

TEST(CliCompletionScriptTest, HidesWhatIsForShellsOnly) {
  const auto help = run_program({"completion", "--help"});

  EXPECT_THAT(help.out, Not(::testing::HasSubstr("words")));
  EXPECT_EQ(run_program({"completion"}).exit_code, 2);
  EXPECT_EQ(run_program({"completion", "tcsh"}).exit_code, 2);
}

// Every command of the program and every flag of every command can be completed.
TEST(CliCompletionScriptTest, KnowsWhatTheHelpShows) {
  const auto help = run_program({"top", "--help"});
  const auto flags = run_program({"completion", "words", "--", "top", "--"});
  std::istringstream lines(flags.out);
  int count = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string flag = line.substr(0, line.find('\t'));
    static const std::set<std::string> kOfEveryCommand = {"--output",    "--address",  "--ca-file",
                                                          "--cert-file", "--key-file", "--timeout"};
    if (kOfEveryCommand.contains(flag)) continue;
    EXPECT_THAT(help.out, ::testing::HasSubstr(flag));
    ++count;
  }
  EXPECT_GE(count, 8);
}

}  // namespace
}  // namespace gpuperf::client
