// gpuperfctl doctor: check by check, why there is no data.

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "client/doctor.h"
#include "client/pages.h"
#include "client/view.h"

namespace gpuperf::client {
namespace {

std::optional<std::string> find_file_text(const std::string& path) {
  // A relative path is relative to where the daemon was started.
  std::ifstream file(path, std::ios::binary);
  if (!path.starts_with('/') || !file) return std::nullopt;
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (file.bad()) return std::nullopt;
  return text;
}

// `here`: the daemon is on this host, and so are the files it names.
Status read_answers(Connection& connection, bool here, DaemonAnswers& answers) {
  RETURN_IF_ERROR(connection.call("read the status", v1::GetStatusRequest(), &answers.status));
  RETURN_IF_ERROR(
      connection.call("read the configuration", v1::GetConfigRequest(), &answers.config));
  ASSIGN_OR_RETURN(answers.probes, read_pages(connection, kListProbes, {}, 0));
  ASSIGN_OR_RETURN(answers.sessions, read_pages(connection, kListSessions, {}, 0));
  v1::ListFunctionsRequest cuda;
  cuda.mutable_filter()->set_category("cuda");
  cuda.set_per_process(true);
  ASSIGN_OR_RETURN(answers.cuda_calls, read_pages(connection, kListFunctions, cuda, 0));
  v1::ListGpusResponse gpus;
  const Status listed = connection.call("list GPUs", v1::ListGpusRequest(), &gpus);
  if (listed.ok()) answers.gpus = std::move(gpus);  // else: an older daemon, which is said
  v1::ListAttachableResponse attachable;
  const bool may_attach =
      connection.call("list processes to attach to", v1::ListAttachableRequest(), &attachable).ok();
  if (may_attach) {
    answers.attachments.assign(attachable.attachments().begin(), attachable.attachments().end());
  }
  if (here) answers.config_file = find_file_text(answers.config.path());
  return absl::OkStatus();
}

Check describe_daemon(const v1::GetStatusResponse& status, const Address& address) {
  return {"daemon", CheckState::kOk,
          fmt::format("gpuperfd {}, process {}, answers at {}", status.version(), status.pid(),
                      address.text),
          ""};
}

void append(std::vector<Check>& checks, std::vector<Check> more) {
  std::move(more.begin(), more.end(), std::back_inserter(checks));
}

std::vector<Check> run_checks(const Invocation& invocation, const Address& address) {
  const bool here = !address.unix_path.empty();
  std::optional<Check> socket;
  if (here) socket = check_socket(address);
  DaemonAnswers answers;
  const auto connection = connect(invocation, nullptr);
  const Status answered =
      connection.ok() ? read_answers(**connection, here, answers) : connection.status();
  const Check caller = check_caller(geteuid() == 0);
  if (!answered.ok()) {
    std::vector<Check> checks =
        explain_unreachable(std::string(answered.message()), socket,
                            here ? check_host(HostPaths()) : std::vector<Check>());
    checks.push_back(caller);
    return checks;
  }
  std::vector<Check> checks;
  if (here) checks.push_back(*socket);
  checks.push_back(describe_daemon(answers.status, address));
  checks.push_back(caller);
  append(checks, check_daemon(answers));
  return checks;
}

Status run_doctor(const Invocation& invocation) {
  ASSIGN_OR_RETURN(const Address address, parse_address(invocation.options.address));
  const std::vector<Check> checks = run_checks(invocation, address);
  const TextStyle style = invocation.output.read_style();
  switch (find_format(invocation.options)) {
    case Format::kTable:
      RETURN_IF_ERROR(invocation.output.write(render_checks(checks, style)));
      break;
    case Format::kJson:
      RETURN_IF_ERROR(invocation.output.write(write_json(to_json(checks), JsonShape::kIndented)));
      break;
    case Format::kCsv:
      RETURN_IF_ERROR(invocation.output.write(
          write_csv(to_json(std::vector<Check>(1))[0], to_json(checks), style)));
      break;
  }
  const bool failed = std::any_of(checks.begin(), checks.end(), [](const Check& check) {
    return check.state == CheckState::kProblem;
  });
  return failed ? absl::InternalError("") : absl::OkStatus();  // said above
}

}  // namespace

void declare_doctor(CLI::App& app, Invocation& invocation) {
  app.callback(
      [&invocation] { invocation.run = [&invocation] { return run_doctor(invocation); }; });
}

}  // namespace gpuperf::client
