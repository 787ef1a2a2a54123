// gpuperfctl: queries gpuperfd through its gRPC API. A command is a row of kCommands and a file
// cmd_NAME.cpp.

#include <fmt/format.h>
#include <google/protobuf/stubs/logging.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "client/command.h"
#include "client/text.h"
#include "client/version.h"
#include "daemon/base/nearest_name.h"

namespace gpuperf::client {
namespace {

constexpr std::array<Command, 27> kCommands = {{
    {"status", "State of the daemon: probes, problems, drops, cost", declare_status},
    {"top", "Live view of where time is spent, and of calls that hang", declare_top},
    {"why", "Where the time of each process goes, what limits it, and what to look at",
     declare_why},
    {"functions", "Statistics per function: calls, errors, durations", declare_functions},
    {"kernels", "Statistics per GPU kernel: launches, durations, launch latency", declare_kernels},
    {"steps", "Steps of inference and training loops: rates, durations, phases, slow ones",
     declare_steps},
    {"requests", "Requests of inference servers: how long clients wait, and for which steps",
     declare_requests},
    {"slow", "Slow calls: list them, explain one, watch for new ones", declare_slow},
    {"trace", "Captures: start, stop, list, show, fetch, delete; freeze the flight recorder",
     declare_trace},
    {"flamegraph", "Flame graph of a capture, or of what the flight recorder holds now",
     declare_flamegraph},
    {"diff", "Compare two captures", declare_diff},
    {"record", "Run a command, given after --, and write profiles of its CPU and GPU work",
     declare_record},
    {"probes", "Probes and their state; add, remove, enable, disable, set thresholds",
     declare_probes},
    {"processes", "Processes that call the probed functions", declare_processes},
    {"sessions",
     "Injected processes: what each collects, or why it does not; run, pause, off, burst",
     declare_sessions},
    {"overhead",
     "What gpuperf costs each process; measure it; demand less or more of it for a time: "
     "stand-down, detail, release",
     declare_overhead},
    {"attach", "Attach to processes that run already, without restarting them (root)",
     declare_attach},
    {"detach", "Detach from processes that were attached to (root)", declare_detach},
    {"gpus", "GPUs: clocks and what limits them, power, temperature, errors", declare_gpus},
    {"memory", "GPU memory by process and stack, leaks, and allocations that failed",
     declare_memory},
    {"nccl", "NCCL: which rank the others wait for, and why; bus bandwidth by operation and size",
     declare_nccl},
    {"config", "Configuration: show the settings in use, check a file, reload", declare_config},
    {"doctor", "Find out why data is missing: checks the host, the daemon and the workloads",
     declare_doctor},
    {"bundle", "Write a support file: state, settings and log of the daemon, without names",
     declare_bundle},
    {"demo", "Explore a capture of an LLM decode on an H200; needs no GPU and no running gpuperfd",
     declare_demo},
    {"completion", "Shell completion for bash, zsh and fish", declare_completion},
    {"version", "Versions of gpuperfctl and gpuperfd", declare_version},
}};

constexpr const char* kFooter =
    "Exit codes: 0 success, 1 failure, 2 usage or invalid configuration, 3 daemon unreachable,\n"
    "4 not permitted. Set NO_COLOR to turn colours off.";
constexpr const char* kCommandFooter =
    "All commands also take -o table|json|csv, --address and --timeout; see gpuperfctl --help";

// One line; what it quotes from files and daemons cannot steer the terminal.
void report(std::string_view message) {
  std::cerr << "gpuperfctl: " << make_printable(message) << "\n";
}

// The innermost command that the command line names.
const CLI::App* find_deepest(const CLI::App& app) {
  const CLI::App* deepest = &app;
  while (!deepest->get_subcommands().empty()) deepest = deepest->get_subcommands().front();
  return deepest;
}

// "gpuperfctl slow list".
std::string find_command_words(const CLI::App& app) {
  std::string words;
  for (const CLI::App* command = find_deepest(app); command != nullptr;
       command = command->get_parent()) {
    words = command->get_name() + (words.empty() ? "" : " ") + words;
  }
  return words;
}

// Commands or flags that could stand where the unknown word does.
std::vector<std::string> list_known(const CLI::App& app, bool flags) {
  const CLI::App* deepest = find_deepest(app);
  std::vector<std::string> known;
  if (!flags) {
    for (const CLI::App* command : deepest->get_subcommands({})) {
      if (!command->get_group().empty()) known.push_back(command->get_name());
    }
    return known;
  }
  for (const CLI::App* around = deepest; around != nullptr; around = around->get_parent()) {
    for (const CLI::Option* option : around->get_options()) {
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    }
  }
  return known;
}

// "no such flag: --limt; did you mean --limit?"
std::string describe_unknown(const CLI::App& app, const std::string& word) {
  const bool flag = word.starts_with('-');
  const std::string name = word.substr(0, word.find('='));
  const std::vector<std::string> known = list_known(app, flag);
  const auto nearest =
      find_nearest_name(name, std::vector<std::string_view>(known.begin(), known.end()));
  return fmt::format("no such {}: {}{}", flag ? "flag" : "command", name,
                     nearest ? fmt::format("; did you mean {}?", *nearest) : "");
}

ExitCode report_usage(const CLI::App& app, const CLI::ParseError& error) {
  std::string text = error.what();
  while (!text.empty() && text.back() == '\n') text.pop_back();  // an error is one line
  const std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
  const auto code = static_cast<CLI::ExitCodes>(error.get_exit_code());
  // CLI11 misses the command before it sees the word that stands in its place; a word too many
  // where no command may stand is said as it says it.
  auto word = unknown.begin();
  if (code == CLI::ExitCodes::ExtrasError && find_deepest(app)->get_subcommands({}).empty()) {
    word = std::ranges::find_if(unknown, [](const auto& name) { return name.starts_with('-'); });
  }
  const bool is_unknown =
      code == CLI::ExitCodes::ExtrasError || code == CLI::ExitCodes::RequiredError;
  if (is_unknown && word != unknown.end()) text = describe_unknown(app, *word);
  report(fmt::format("{}{}: {} --help", text, text.ends_with('?') ? " See" : "; see",
                     find_command_words(app)));
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

// The words behind "record … --" and "demo --" are another command's: nothing here may read them.
int take_command(int argc, char** argv, std::vector<std::string>& command) {
  bool takes_command = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--") {
      if (!takes_command) return argc;
      command.assign(argv + i + 1, argv + argc);
      return i;
    }
    takes_command = takes_command || word == "record" || word == "demo";
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
