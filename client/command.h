#pragma once

// What main knows of the commands, and what a command gets to work with.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "client/options.h"
#include "client/output.h"
#include "client/status.h"

namespace gpuperf::client {

// One run of the program. Flags are parsed into it; then `run` is called, once.
struct Invocation {
  Options options;
  Output output;
  std::function<Status()> run;       // set by the command that the command line names
  std::vector<std::string> command;  // of `record` and `demo`: what stands behind "--"
  std::optional<int> exit_code;      // of `record`: what its command ended with
};

// A row of the table in main.cpp.
struct Command {
  const char* name;
  const char* summary;
  // Declares the command's flags and subcommands on `app`, whose callback sets `invocation.run`.
  // Both outlive the run.
  void (*declare)(CLI::App& app, Invocation& invocation);
};

void declare_status(CLI::App& app, Invocation& invocation);
void declare_functions(CLI::App& app, Invocation& invocation);
void declare_kernels(CLI::App& app, Invocation& invocation);
void declare_overhead(CLI::App& app, Invocation& invocation);
void declare_sessions(CLI::App& app, Invocation& invocation);
void declare_attach(CLI::App& app, Invocation& invocation);
void declare_detach(CLI::App& app, Invocation& invocation);
void declare_steps(CLI::App& app, Invocation& invocation);
void declare_requests(CLI::App& app, Invocation& invocation);
void declare_slow(CLI::App& app, Invocation& invocation);
void declare_trace(CLI::App& app, Invocation& invocation);
void declare_flamegraph(CLI::App& app, Invocation& invocation);
void declare_diff(CLI::App& app, Invocation& invocation);
void declare_record(CLI::App& app, Invocation& invocation);
void declare_probes(CLI::App& app, Invocation& invocation);
void declare_processes(CLI::App& app, Invocation& invocation);
void declare_nccl(CLI::App& app, Invocation& invocation);
void declare_gpus(CLI::App& app, Invocation& invocation);
void declare_memory(CLI::App& app, Invocation& invocation);
void declare_config(CLI::App& app, Invocation& invocation);
void declare_top(CLI::App& app, Invocation& invocation);
void declare_doctor(CLI::App& app, Invocation& invocation);
void declare_bundle(CLI::App& app, Invocation& invocation);
void declare_demo(CLI::App& app, Invocation& invocation);
void declare_completion(CLI::App& app, Invocation& invocation);
void declare_why(CLI::App& app, Invocation& invocation);
void declare_version(CLI::App& app, Invocation& invocation);

}  // namespace gpuperf::client
