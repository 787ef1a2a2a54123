// gpuperfd: command line in, exit code out. 0 stopped as asked or configuration valid, 1 failed,
// 2 usage or configuration invalid.

#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <span>
#include <string>

#include "daemon/app/daemon.h"
#include "daemon/app/memory_limits.h"
#include "daemon/base/heap_trim.h"
#include "daemon/base/log.h"
#include "daemon/config/config.h"
#include "daemon/resolve/worker_main.h"

namespace {

constexpr const char* kDefaultConfigPath = "/etc/gpuperf/config.json";

struct CommandLine {
  std::string config_path;
  std::string runtime_dir = "/run/gpuperf";
  std::string mechanism = "auto";
  bool check = false;
};

// Where the configuration comes from, for people.
std::string describe_files(std::span<const gpuperf::ConfigFile> files) {
  std::string paths;
  for (const gpuperf::ConfigFile& file : files) paths += (paths.empty() ? "" : ", ") + file.path;
  return paths.empty() ? "(built-in)" : paths;
}

int run(const CommandLine& line) {
  const gpuperf::ConfigPlace place = {
      .path = line.config_path.empty() ? kDefaultConfigPath : line.config_path,
      .may_be_missing = line.config_path.empty()};
  const auto files = gpuperf::read_config_files(place);
  if (!files.ok()) {
    std::cerr << "gpuperfd: " << files.status().message() << "\n";
    return 2;
  }
  auto parsed = gpuperf::parse_config(*files);
  if (const auto* errors = std::get_if<std::vector<gpuperf::ConfigError>>(&parsed)) {
    std::cerr << gpuperf::render_config_errors(place.path, *errors);
    return 2;
  }
  auto& config = std::get<gpuperf::Config>(parsed);
  if (line.check) {
    for (const gpuperf::ConfigError& warning : config.warnings)
      std::cerr << "warning: " << gpuperf::render_config_error(place.path, warning) << "\n";
    std::cout << describe_files(*files) << ": valid\n";
    return 0;
  }
  gpuperf::set_up_log(config.settings.log.level);
  const auto mechanism = gpuperf::find_mechanism(line.mechanism);
  const gpuperf::DaemonOptions options{
      .config = place, .runtime_dir = line.runtime_dir, .mechanism = mechanism};
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
  CLI::App app(
      "Observability daemon for GPU hosts: probes GPU library calls, serves metrics, slow calls "
      "and traces.",
      "gpuperfd");
  app.add_option("--config", line.config_path,
                 "Configuration file; conf.d/*.json next to it are merged into it (default " +
                     std::string(kDefaultConfigPath) + ", or the built-in one if that is missing)");
  app.add_flag("--check", line.check, "Validate the configuration and exit: 0 if valid, 2 if not");
  app.add_option("--runtime-dir", line.runtime_dir,
                 "Runtime directory, for the lock file and sockets")
      ->capture_default_str();
  app.add_option("--mechanism", line.mechanism, "How to attach probes")
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
