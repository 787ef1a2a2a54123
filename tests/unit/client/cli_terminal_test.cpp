// What a terminal gets and others do not: colours, and tables cut to its width.

#include <algorithm>
#include <sstream>

#include "cli_fixture.h"
#include "client/text.h"
#include "example_calls.h"
#include "tests/unit/matchers.h"

namespace gpuperf::client {
namespace {

class CliTerminalTest : public CliTest {
 protected:
  std::string show(std::vector<std::string> arguments,
                   std::map<std::string, std::string> environment, unsigned short columns = 0) {
    daemon_.start();
    arguments.insert(arguments.begin(), {"--address", daemon_.address()});
    auto result = run_program(std::move(arguments), {.environment = std::move(environment),
                                                     .terminal = true,
                                                     .terminal_columns = columns,
                                                     .terminal_rows = 50});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    std::erase(result.out, '\r');  // the terminal's own
    return result.out;
  }
};

TEST_F(CliTerminalTest, ColoursOnATerminal) {
  EXPECT_THAT(show({"probes"}, {}), HasSubstr("\x1b[32mattached\x1b[0m"));
}

TEST_F(CliTerminalTest, HonoursNoColour) {
  EXPECT_THAT(show({"probes"}, {{"NO_COLOR", "1"}}), Not(HasSubstr("\x1b")));
  EXPECT_THAT(show({"probes"}, {{"TERM", "dumb"}}), Not(HasSubstr("\x1b")));
}

TEST_F(CliTerminalTest, TakesAnEmptyNoColourAsUnset) {
  EXPECT_THAT(show({"probes"}, {{"NO_COLOR", ""}}), HasSubstr("\x1b[32m"));
}

TEST_F(CliTerminalTest, CutsTablesToTheWidth) {
  std::istringstream lines(show({"probes"}, {{"NO_COLOR", "1"}}, 120));

  int widest = 0;
  for (std::string line; std::getline(lines, line);) widest = std::max(widest, measure_width(line));

  EXPECT_EQ(widest, 120);
}

TEST_F(CliTerminalTest, DrawsBlocksWhereTheLocaleIsUtf8) {
  daemon_.answers.slow_calls = {make_futex_call()};
  const std::vector<std::string> command = {"slow", "show", "12"};

  const std::string blocks = "  blocked: futex   █████████████████████████████    398 ms  96.7 %\n";
  const std::string ascii = "  blocked: futex   #############################    398 ms  96.7 %\n";
  EXPECT_THAT(show(command, {{"NO_COLOR", "1"}, {"LANG", "C.UTF-8"}}), HasSubstr(blocks));
  EXPECT_THAT(show(command, {{"NO_COLOR", "1"}, {"LC_CTYPE", "de_DE.utf8"}, {"LANG", "C"}}),
              HasSubstr(blocks));
  EXPECT_THAT(show(command, {{"NO_COLOR", "1"}, {"LC_ALL", "C"}, {"LANG", "C.UTF-8"}}),
              HasSubstr(ascii));
  EXPECT_THAT(show(command, {{"NO_COLOR", "1"}}), HasSubstr(ascii));
}

TEST_F(CliTerminalTest, WrapsAnExplanationToTheWidth) {
  daemon_.answers.slow_calls = {make_futex_call()};

  EXPECT_THAT(show({"slow", "show", "12"}, {{"NO_COLOR", "1"}}, 50),
              HasSubstr("\n\n"
                        "Waited 398 ms for a lock or condition that thread\n"
                        "71 (loader) of process 70 released. Look at what\n"
                        "that thread did meanwhile.\n"
                        "\n"));
}

TEST_F(CliTerminalTest, NeverColoursJson) {
  EXPECT_THAT(show({"probes", "-o", "json"}, {}), Not(HasSubstr("\x1b")));
}

TEST_F(CliTerminalTest, EscapesCsvForATerminal) {
  daemon_.answers.processes[0].set_comm("\x1b[2J");

  EXPECT_THAT(show({"processes", "-o", "csv"}, {}), HasSubstr("\\x1b[2J"));
}

}  // namespace
}  // namespace gpuperf::client
