// gpuperfctl demo: a capture of a real decode on an H200 to look at, without a GPU and without a
// running gpuperfd.

#include <errno.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "client/demo_daemon.h"
#include "client/view.h"

namespace gpuperf::client {
namespace {

constexpr std::chrono::milliseconds kStep{100};
constexpr std::chrono::seconds kDaemonPatience{30};  // a busy machine

std::string render_welcome(const v1::GetStatusResponse& status, const std::string& address,
                           const TextStyle& style) {
  constexpr int kId = DemoDaemon::kCaptureId;
  std::string text = paint(
      "A capture of a small model that decodes 48 tokens on an H200: 12,816 launches, each with "
      "its stack\n\n",
      Tone::kHeader, style);
  text += fmt::format("In a browser    http://{}/\nIn a shell      export GPUPERF_ADDRESS={}\n\n",
                      status.metrics_address(), address);
  for (const auto& [command, what] : std::vector<std::pair<std::string, std::string>>{
           {fmt::format("trace show {}", kId), "summary, and how much GPU work was matched"},
           {fmt::format("kernels --by kernel --capture {}", kId), "GPU time by kernel"},
           {fmt::format("kernels --by line --capture {}", kId), "GPU time by Python line"},
           {fmt::format("kernels --by operator --capture {}", kId), "GPU time by operator"},
           {fmt::format("flamegraph {} > decode.svg", kId), "flame graph, Python to kernels"},
           {fmt::format("trace fetch {} --format report > decode.html", kId),
            "report: flame graph, timeline, kernels, idle time"},
           {fmt::format("trace fetch {} --format perfetto > decode.pftrace", kId),
            "timeline for ui.perfetto.dev"}}) {
    text += fmt::format("  gpuperfctl {:<52} {}\n", command, paint(what, Tone::kDim, style));
  }
  return text + "\nCtrl-C ends the demo.\n";
}

Result<v1::GetStatusResponse> read_status(const Invocation& invocation, Interrupt& interrupt) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, connect(invocation, &interrupt));
  v1::GetStatusResponse status;
  RETURN_IF_ERROR(connection->call("read the status", v1::GetStatusRequest(), &status));
  return status;
}

Result<v1::GetStatusResponse> wait_until_ready(DemoDaemon& daemon, const Invocation& invocation,
                                               Interrupt& interrupt) {
  const auto last = std::chrono::steady_clock::now() + kDaemonPatience;
  for (;;) {
    Result<v1::GetStatusResponse> status = read_status(invocation, interrupt);
    if (status.ok() || std::chrono::steady_clock::now() > last) return status;
    if (const std::string end = daemon.find_end(); !end.empty()) {
      return absl::InternalError(fmt::format("cannot show the demo: gpuperfd ended: {}", end));
    }
    if (!interrupt.wait_for(kStep)) return absl::CancelledError("");
  }
}

// This program, with the command's words, asking the demo's daemon.
Result<int> run_command(const std::vector<std::string>& command, const std::string& address) {
  setenv("GPUPERF_ADDRESS", address.c_str(), /*overwrite=*/1);
  std::vector<char*> words = {const_cast<char*>("gpuperfctl")};
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawnattr_t unblocked;  // signals are blocked here, for Interrupt
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_init(&unblocked);
  posix_spawnattr_setsigmask(&unblocked, &none);
  posix_spawnattr_setflags(&unblocked, POSIX_SPAWN_SETSIGMASK);
  pid_t pid = 0;
  const int error_number =
      posix_spawn(&pid, "/proc/self/exe", nullptr, &unblocked, words.data(), environ);
  posix_spawnattr_destroy(&unblocked);
  if (error_number != 0) {
    return absl::InternalError(fmt::format("cannot run the command: {}", strerror(error_number)));
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

Status run_demo(Invocation& invocation) {
  ASSIGN_OR_RETURN(const std::unique_ptr<DemoDaemon> daemon, DemoDaemon::start());
  ASSIGN_OR_RETURN(const std::unique_ptr<Interrupt> interrupt,
                   Interrupt::make(invocation.output.fd()));
  invocation.options.address = daemon->get_address();
  ASSIGN_OR_RETURN(const v1::GetStatusResponse status,
                   wait_until_ready(*daemon, invocation, *interrupt));
  if (!invocation.command.empty()) {
    ASSIGN_OR_RETURN(invocation.exit_code, run_command(invocation.command, daemon->get_address()));
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(invocation.output.write(
      render_welcome(status, daemon->get_address(), invocation.output.read_style())));
  while (interrupt->wait_for(std::chrono::hours(1))) {
  }
  return absl::OkStatus();
}

}  // namespace

void declare_demo(CLI::App& app, Invocation& invocation) {
  app.footer("To run one command and exit: gpuperfctl demo -- kernels --by line --capture 2");
  app.callback([&invocation] { invocation.run = [&invocation] { return run_demo(invocation); }; });
}

}  // namespace gpuperf::client
