// --watch of the commands that answer once.

#include <signal.h>

#include <nlohmann/json.hpp>

#include "cli_fixture.h"
#include "client/render.h"
#include "tests/unit/matchers.h"

namespace gpuperf::client {
namespace {

using CliWatchTest = CliTest;

TEST_F(CliWatchTest, PrintsOneJsonDocumentPerLine) {
  Program program({"processes", "--watch=0.1", "-o", "json"}, with_address());

  const std::string first = program.read_until("\n");
  const std::string second = program.read_until("\n");
  program.send_signal(SIGINT);
  const auto result = program.finish();

  EXPECT_EQ(ordered_json::parse(first).size(), 2U);
  EXPECT_EQ(ordered_json::parse(second), ordered_json::parse(first));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
}

TEST_F(CliWatchTest, SeparatesTablesByAnEmptyLine) {
  Program program({"processes", "--watch", "0.1"}, with_address());

  const std::string first =
      program.read_until("nvidia-smi  exited           3          9     0         -\n");
  const std::string second = program.read_until("python3");
  program.send_signal(SIGINT);

  EXPECT_THAT(first, StartsWith(" PID  COMM"));
  EXPECT_THAT(second, StartsWith("\n PID  COMM"));
  EXPECT_EQ(program.finish().exit_code, 0);
}

TEST_F(CliWatchTest, RedrawsATerminal) {
  ProgramOptions options = with_address();
  options.terminal = true;
  options.terminal_columns = 100;
  options.terminal_rows = 40;
  Program program({"processes", "--watch=0.1"}, options);

  const std::string first = program.read_until("exited");
  const std::string second = program.read_until("exited");
  program.send_signal(SIGINT);

  EXPECT_THAT(first, StartsWith("\x1b[H\x1b[2JEvery 0.1 s, "));
  EXPECT_THAT(second, HasSubstr("\x1b[H\x1b[2JEvery 0.1 s, "));
  EXPECT_EQ(program.finish().exit_code, 0);
}

TEST_F(CliWatchTest, CutsToTheHeightOfTheTerminal) {
  for (int i = 0; i < 30; ++i) daemon_.answers.processes.push_back(daemon_.answers.processes[0]);
  ProgramOptions options = with_address();
  options.terminal = true;
  options.terminal_rows = 10;
  Program program({"processes", "--watch"}, options);

  const std::string screen = program.read_until("more lines");
  program.send_signal(SIGINT);

  EXPECT_THAT(screen, HasSubstr("… 27 more lines"));
  EXPECT_EQ(program.finish().exit_code, 0);
}

TEST_F(CliWatchTest, WorksForEveryCommandThatOffersIt) {
  const std::vector<std::vector<std::string>> commands = {
      {"status"}, {"functions"}, {"slow", "list"}, {"probes"}, {"probes", "list"}, {"processes"}};
  for (std::vector<std::string> command : commands) {
    command.insert(command.end(), {"--watch", "-o", "json"});
    Program program(command, with_address());
    const std::string line = program.read_until("\n");
    program.send_signal(SIGINT);
    EXPECT_TRUE(ordered_json::accept(line)) << command[0];
    EXPECT_EQ(program.finish().exit_code, 0) << command[0];
  }
}

TEST_F(CliWatchTest, EndsWithThreeWhenTheDaemonVanishes) {
  Program program({"functions", "--watch=0.1", "-o", "json"}, with_address());
  (void)program.read_until("\n");

  daemon_.stop();
  const auto result = program.finish();

  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("cannot list functions: gpuperfd at unix:"));
}

TEST_F(CliWatchTest, EndsQuietlyWhenItsReaderLeaves) {
  Program program({"functions", "--watch=3600"}, with_address());
  (void)program.read_until("cublasGemmEx");

  program.close_output();
  const auto result = program.finish();

  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
}

}  // namespace
}  // namespace gpuperf::client
