#include "client/demo_daemon.h"

#include <absl/strings/str_join.h>
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

namespace gpuperf::client {
namespace {

namespace fs = std::filesystem;

// The first that is there, of places beside our own program: as installed, then as built.
Result<std::string> find_beside(const std::string& what, const std::vector<std::string>& places) {
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  std::vector<std::string> looked_at;
  for (const std::string& place : places) {
    looked_at.push_back((folder / place).lexically_normal().string());
    if (access(looked_at.back().c_str(), R_OK) == 0) return looked_at.back();
  }
  return absl::NotFoundError(
      fmt::format("cannot show the demo: no {} at {}", what, absl::StrJoin(looked_at, ", ")));
}

// What nothing is probed by, so that the demo needs no rights and changes nothing here.
std::string make_config(const std::string& folder) {
  const nlohmann::ordered_json config = {
      {"demo_func_sym", {{"nothing", {{"symbol", "gpuperf_demo_nothing"}, {"probe", false}}}}},
      {"grpc", {{"listen", "unix:" + folder + "/api.sock"}}},
      {"metrics", {{"listen", "127.0.0.1:0"}}},
      {"storage", {{"path", folder + "/store"}}},
      {"ingest", {{"enabled", false}}},
      // The capture was made once and is shown for years: it must not be taken for an old one.
      {"trace", {{"recorder", false}, {"retention_days", 3650}}}};
  return config.dump(2) + "\n";
}

// Runs in the child; returns only when that fails.
void become_daemon(const std::string& program, const std::string& folder, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // also where we are killed
  if (getppid() != parent) return;
  setpgid(0, 0);  // Ctrl-C is ours: the daemon ends when we say so
  const int log = open((folder + "/log").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (log < 0 || dup2(log, STDOUT_FILENO) < 0 || dup2(log, STDERR_FILENO) < 0) return;
  const std::string config = folder + "/config.json";
  const std::string runtime = folder + "/run";
  execl(program.c_str(), program.c_str(), "--config", config.c_str(), "--runtime-dir",
        runtime.c_str(), static_cast<char*>(nullptr));
}

}  // namespace

Result<std::unique_ptr<DemoDaemon>> DemoDaemon::start() {
  ASSIGN_OR_RETURN(
      const std::string capture,
      find_beside("demo.capture, which the package gpuperfctl installs",
                  {"../share/gpuperf/demo.capture", "../../tests/recordings/decode.capture"}));
  ASSIGN_OR_RETURN(const std::string program,
                   find_beside("gpuperfd, which shows it (the package gpuperfd has it; it need not "
                               "run)",
                               {"../sbin/gpuperfd", "gpuperfd", "../daemon/gpuperfd"}));
  std::string folder = "/tmp/gpuperf-demo-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    return absl::InternalError(
        fmt::format("cannot show the demo: cannot make {}: {}", folder, strerror(errno)));
  }
  std::error_code error;
  fs::create_directories(folder + "/store/captures", error);
  if (!error)
    fs::copy_file(capture, fmt::format("{}/store/captures/{}.capture", folder, kCaptureId), error);
  std::ofstream config(folder + "/config.json");
  config << make_config(folder);
  config.close();
  const pid_t parent = getpid();
  const pid_t pid = error || !config ? -1 : fork();
  if (pid == 0) {
    become_daemon(program, folder, parent);
    _exit(127);
  }
  // Owns the folder from here on.
  std::unique_ptr<DemoDaemon> daemon(new DemoDaemon(folder, pid));
  if (pid > 0) return daemon;
  return absl::InternalError(fmt::format("cannot show the demo: cannot write into {}: {}", folder,
                                         error ? error.message() : std::string(strerror(errno))));
}

DemoDaemon::~DemoDaemon() {
  if (pid_ > 0) {
    kill(pid_, SIGTERM);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  std::error_code ignored;  // a folder left behind in /tmp harms nobody
  fs::remove_all(folder_, ignored);
}

std::string DemoDaemon::find_end() {
  if (pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) != pid_) return "";
  pid_ = -1;
  std::ifstream log(folder_ + "/log");
  std::string last = "it wrote no log";
  for (std::string line; std::getline(log, line);) last = line;
  return last;
}

}  // namespace gpuperf::client
