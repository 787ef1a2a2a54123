// gpuperfctl: queries gpuperfd through its gRPC API. A command is a row of kCommands and a file
// cmd_NAME.cpp.

#include <fmt/format.h>
#include <google/protobuf/stubs/logging.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <array>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "client/command.h"
#include "client/text.h"
#include "client/version.h"

namespace gpuperf::client {
namespace {

constexpr std::array<Command, 17> kCommands = {{
    {"status", "The daemon's state: probes, problems, drops, cost", declare_status},
    {"top", "Where the time goes right now, and which calls do not come back", declare_top},
    {"functions", "Statistics per function: calls, errors, durations", declare_functions},
    {"kernels", "Statistics per GPU kernel: launches, durations, launch latency", declare_kernels},
    {"slow", "Slow calls: list, show one, watch them happen", declare_slow},
    {"trace", "Captures: start, stop, list, show, fetch in many forms, delete; freeze the recorder",
     declare_trace},
    {"flamegraph", "A flame graph of a capture, or of what the flight recorder holds now",
     declare_flamegraph},
    {"diff", "What changed between two captures", declare_diff},
    {"record", "Runs a command and writes what it did on the CPU and the GPU", declare_record},
    {"probes", "Configured functions and what became of each; add, enable, disable, threshold",
     declare_probes},
    {"processes", "Processes that call the probed functions", declare_processes},
    {"sessions", "Injected processes: what they send, why not; run, pause, off, burst",
     declare_sessions},
    {"gpus", "The GPUs: clocks and what limits them, power, heat, errors", declare_gpus},
    {"config", "The configuration: show what is in force, check a file, reload", declare_config},
    {"doctor", "Check by check: why there is no data", declare_doctor},
    {"completion", "Completion of commands and flags for bash, zsh and fish", declare_completion},
    {"version", "Versions of gpuperfctl and gpuperfd", declare_version},
}};

constexpr const char* kFooter =
    "Exit codes: 0 done, 1 failed, 2 usage or invalid configuration, 3 daemon unreachable,\n"
    "4 not permitted. NO_COLOR switches colours off.";
constexpr const char* kCommandFooter =
    "Every command takes -o table|json|csv, --address and --timeout: gpuperfctl --help";

// One line; what it quotes from files and daemons cannot steer the terminal.
void report(std::string_view message) {
  std::cerr << "gpuperfctl: " << make_printable(message) << "\n";
}

// "gpuperfctl slow list", as far as the command line named commands.
std::string find_command_words(const CLI::App& app) {
  std::string words = app.get_name();
  const CLI::App* deepest = &app;
  while (!deepest->get_subcommands().empty()) {
    deepest = deepest->get_subcommands().front();
    words += fmt::format(" {}", deepest->get_name());
  }
  return words;
}

ExitCode report_usage(const CLI::App& app, const CLI::ParseError& error) {
  std::string text = error.what();
  while (!text.empty() && text.back() == '\n') text.pop_back();  // an error is one line
  // CLI11 misses the command before it sees the word that stands in its place.
  const std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError) &&
      !unknown.empty()) {
    const bool flag = unknown.front().starts_with('-');
    text = fmt::format("no such {}: {}", flag ? "flag" : "command", unknown.front());
  }
  report(fmt::format("{}; see: {} --help", text, find_command_words(app)));
  return ExitCode::kUsage;
}

void declare_commands(CLI::App& app, Invocation& invocation) {
  app.name("gpuperfctl");
  app.set_version_flag("--version", fmt::format("gpuperfctl {}", get_client_version()));
  app.require_subcommand(1);
  app.footer(kFooter);
  add_connection_flags(app, invocation.options);
  for (const Command& command : kCommands) {
    CLI::App& declared = *app.add_subcommand(command.name, command.summary);
    declared.footer(kCommandFooter);
    declared.fallthrough();  // -o, --address and --timeout may stand anywhere
    command.declare(declared, invocation);
    for (CLI::App* inner : declared.get_subcommands({})) {
      inner->footer(kCommandFooter);
      inner->fallthrough();
    }
  }
}

// The words behind "record … --" are another program's: nothing here may read them.
int take_command(int argc, char** argv, std::vector<std::string>& command) {
  bool is_record = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--") {
      if (!is_record) return argc;
      command.assign(argv + i + 1, argv + argc);
      return i;
    }
    is_record = is_record || word == "record";
  }
  return argc;
}

int run(int argc, char** argv) {
  CLI::App app("Asks gpuperfd which GPU library calls are slow, and why.");
  Invocation invocation = {.options = {}, .output = Output(STDOUT_FILENO), .run = nullptr};
  argc = take_command(argc, argv, invocation.command);
  declare_commands(app, invocation);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success&) {  // --help, --version
    const bool version = app.get_option("--version")->count() > 0;
    const Status written = invocation.output.write(
        version ? fmt::format("gpuperfctl {}\n", get_client_version()) : app.help() + "\n");
    return static_cast<int>(find_exit_code(written));
  } catch (const CLI::ParseError& error) {
    return static_cast<int>(report_usage(app, error));
  }
  const Status status = invocation.run();
  const ExitCode code = find_exit_code(status);
  if (code != ExitCode::kOk && !status.message().empty()) report(std::string(status.message()));
  return code == ExitCode::kOk ? invocation.exit_code.value_or(0) : static_cast<int>(code);
}

}  // namespace
}  // namespace gpuperf::client

int main(int argc, char** argv) {
  // Our errors say what gRPC and protobuf would log, and more; before either starts.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  google::protobuf::SetLogHandler(nullptr);
  signal(SIGPIPE, SIG_IGN);  // a reader that leaves is an ordinary end, seen at the write
  try {
    return gpuperf::client::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "gpuperfctl: failed unexpectedly: " << error.what() << "\n";
    return static_cast<int>(gpuperf::client::ExitCode::kFailed);
  }
}
