// gpuperfd: command line in, exit code out. 0 stopped as asked or configuration valid, 1 failed,
// 2 usage or configuration invalid.

#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "daemon/app/daemon.h"
#include "daemon/app/memory_limits.h"
#include "daemon/app/rights.h"
#include "daemon/base/heap_trim.h"
#include "daemon/base/log.h"
#include "daemon/config/config.h"
#include "daemon/resolve/worker_main.h"

namespace {

constexpr const char* kDefaultConfigPath = "/etc/gpuperf/config.json";
constexpr const char* kApiGroup = "gpuperf";  // may use the API's socket, where that group exists

struct CommandLine {
  std::string config_path;
  std::string runtime_dir = "/run/gpuperf";
  std::string mechanism = "auto";
  bool check = false;
};

int run(CommandLine line) {
  gpuperf::Result<std::string> text{std::string(gpuperf::default_config_text())};
  const bool use_file = !line.config_path.empty() || access(kDefaultConfigPath, F_OK) == 0;
  if (line.config_path.empty()) line.config_path = use_file ? kDefaultConfigPath : "(built-in)";
  if (use_file) text = gpuperf::read_config_file(line.config_path);
  if (!text.ok()) {
    std::cerr << "gpuperfd: " << text.status().message() << "\n";
    return 2;
  }
  auto parsed = gpuperf::parse_config(*text);
  if (const auto* errors = std::get_if<std::vector<gpuperf::ConfigError>>(&parsed)) {
    std::cerr << gpuperf::render_config_errors(line.config_path, *errors);
    return 2;
  }
  if (line.check) {
    std::cout << line.config_path << ": valid\n";
    return 0;
  }
  auto& config = std::get<gpuperf::Config>(parsed);
  gpuperf::set_up_log(config.settings.log.level);
  const auto mechanism = gpuperf::find_mechanism(line.mechanism);
  const bool through_perf = mechanism == gpuperf::Mechanism::kPerf;
  if (const auto dropped = gpuperf::drop_rights(kApiGroup, through_perf); !dropped.ok()) {
    gpuperf::log_warn("rights kept that are not needed",
                      {{"error", std::string(dropped.message())}});
  }
  const gpuperf::DaemonOptions options{
      .config_path = line.config_path, .runtime_dir = line.runtime_dir, .mechanism = mechanism};
  gpuperf::Status status =
      gpuperf::check_memory_limits(gpuperf::read_memory_limits("/proc", "/sys/fs/cgroup"));
  if (status.ok()) status = gpuperf::Daemon(options, std::move(config)).run();
  if (status.ok()) return 0;
  gpuperf::log_error("gpuperfd stopped", {{"error", std::string(status.message())}});
  return 1;
}

// Two descriptors a function and file with perf probes, one a file otherwise; and one a client.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE,
                  &limit);  // what the limit then refuses is reported where it happens
}

}  // namespace

int main(int argc, char** argv) {
  gpuperf::run_if_worker({argv, static_cast<size_t>(argc)});
  gpuperf::set_up_heap();
  CommandLine line;
  CLI::App app("Keeps probes on GPU library functions and serves what they tell.", "gpuperfd");
  app.add_option("--config", line.config_path,
                 "Configuration file (default " + std::string(kDefaultConfigPath) +
                     ", or the built-in one where that is missing)");
  app.add_flag("--check", line.check, "Validate the configuration and exit: 0 valid, 2 not");
  app.add_option("--runtime-dir", line.runtime_dir, "Directory of the lock file")
      ->capture_default_str();
  app.add_option("--mechanism", line.mechanism, "How to probe")
      ->check(CLI::IsMember({"auto", "session", "multi", "perf"}))
      ->capture_default_str();
  app.set_version_flag("--version", "gpuperfd " GPUPERF_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : 2;
  }
  gpuperf::report_failed_allocations();
  raise_descriptor_limit();
  return run(line);
}
