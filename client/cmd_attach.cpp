// gpuperfctl attach, detach: brings the injected library into processes that run already, takes it
// out again, and lists which processes that can be done to.

#include <fmt/format.h>
#include <fnmatch.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/attach_text.h"
#include "client/command.h"
#include "client/connection.h"
#include "client/duration.h"
#include "client/options.h"
#include "client/text.h"
#include "client/view.h"
#include "gpuperf/v1/control.pb.h"

namespace gpuperf::client {
namespace {

using v1::Attachment;

// Which processes are meant.
struct Target {
  std::string comm;
  bool lists = false;
  bool accept_seccomp = false;
};

bool is_meant(const Attachment& row, const Options& options, const Target& target) {
  if (options.pid != 0 && row.pid() != options.pid) return false;
  if (!options.container.empty() && !row.container().starts_with(options.container)) return false;
  if (!options.pod.empty() && row.pod() != options.pod) return false;
  return target.comm.empty() || fnmatch(target.comm.c_str(), row.comm().c_str(), FNM_NOESCAPE) == 0;
}

Result<std::vector<Attachment>> list_rows(Connection& connection, const Options& options,
                                          const Target& target) {
  v1::ListAttachableResponse response;
  RETURN_IF_ERROR(
      connection.call("list processes to attach to", v1::ListAttachableRequest{}, &response));
  std::vector<Attachment> rows(response.attachments().begin(), response.attachments().end());
  std::erase_if(rows, [&](const Attachment& row) { return !is_meant(row, options, target); });
  return rows;
}

View make_view(const Invocation& invocation) {
  return {find_format(invocation.options), JsonShape::kIndented, invocation.output.read_style()};
}

Status show_rows(const Invocation& invocation, const std::vector<Attachment>& rows,
                 std::string_view none) {
  const View view = make_view(invocation);
  if (view.format != Format::kTable) {
    return invocation.output.write(render_rows(rows, view.format, view.shape, view.style));
  }
  std::string text = render_attachments(rows, view.style);
  if (rows.empty()) text += paint(none, Tone::kDim, view.style);
  return invocation.output.write(text);
}

Status run_list(const Invocation& invocation, const Target& target) {
  ASSIGN_OR_RETURN(const auto connection, connect_to_change(invocation));
  ASSIGN_OR_RETURN(const std::vector<Attachment> rows,
                   list_rows(*connection, invocation.options, target));
  return show_rows(invocation, rows, "\nNo process has loaded the CUDA driver.\n");
}

// The pids of the processes that are meant. That of --pid alone is not looked for, so that the
// refusal says why.
Result<std::vector<uint32_t>> find_pids(Connection& connection, const Options& options,
                                        const Target& target, bool attaches) {
  const bool names_one =
      options.pid != 0 && options.container.empty() && options.pod.empty() && target.comm.empty();
  if (names_one) return std::vector<uint32_t>{options.pid};
  ASSIGN_OR_RETURN(const std::vector<Attachment> rows, list_rows(connection, options, target));
  std::vector<uint32_t> pids;
  for (const Attachment& row : rows) {
    const bool is_wanted =
        attaches ? row.state() == "can" || row.state() == "cannot" : row.state() == "attached";
    if (is_wanted) pids.push_back(row.pid());
  }
  if (!pids.empty()) return pids;
  if (rows.empty()) {
    return absl::NotFoundError("no process that uses CUDA matches: gpuperfctl attach --list");
  }
  return absl::NotFoundError(
      attaches ? "every process that matches has the library already: gpuperfctl attach --list"
               : "no process that matches was attached to: gpuperfctl attach --list");
}

std::string describe_outcome(const Attachment& row, bool attaches) {
  if (row.state() == "cannot") {
    return fmt::format("Process {} ({}): {}: {}. {}\n", row.pid(), row.comm(),
                       attaches ? "not attached" : "not detached", row.detail(),
                       row.hint().empty() ? "" : "Next: " + row.hint());
  }
  if (attaches) {
    return fmt::format(
        "Attached to process {} ({}): held one thread for {}, {} examined. Its kernels: "
        "gpuperfctl kernels --pid {}\n",
        row.pid(), row.comm(), format_duration(row.held_ns()), format_count(row.threads_tried()),
        row.pid());
  }
  return fmt::format("Detached from process {} ({}): {}; {} KiB and {} descriptors stay\n",
                     row.pid(), row.comm(), row.detail(), format_count(row.kept_kib()),
                     format_count(row.kept_fds()));
}

Result<Attachment> ask(Connection& connection, uint32_t pid, const Target& target, bool attaches) {
  if (attaches) {
    v1::AttachProcessRequest request;
    request.set_pid(pid);
    request.set_accept_seccomp(target.accept_seccomp);
    v1::AttachProcessResponse response;
    RETURN_IF_ERROR(connection.call(fmt::format("attach to process {}", pid), request, &response));
    return response.attachment();
  }
  v1::DetachProcessRequest request;
  request.set_pid(pid);
  v1::DetachProcessResponse response;
  RETURN_IF_ERROR(connection.call(fmt::format("detach from process {}", pid), request, &response));
  return response.attachment();
}

// One after another, to the first that cannot be asked for. Fails where any of them was refused.
Status run_change(const Invocation& invocation, const Target& target, bool attaches) {
  ASSIGN_OR_RETURN(const auto connection, connect_to_change(invocation));
  ASSIGN_OR_RETURN(const std::vector<uint32_t> pids,
                   find_pids(*connection, invocation.options, target, attaches));
  const bool is_table = find_format(invocation.options) == Format::kTable;
  std::vector<Attachment> rows;
  Status asked;
  for (const uint32_t pid : pids) {
    Result<Attachment> row = ask(*connection, pid, target, attaches);
    asked = row.status();
    if (!asked.ok()) break;
    if (is_table) RETURN_IF_ERROR(invocation.output.write(describe_outcome(*row, attaches)));
    rows.push_back(*std::move(row));
  }
  if (!is_table && !rows.empty()) RETURN_IF_ERROR(show_rows(invocation, rows, ""));
  RETURN_IF_ERROR(asked);
  const auto refused = std::ranges::count(rows, "cannot", &Attachment::state);
  if (refused == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("{} of {} processes {}", refused, rows.size(),
                  attaches ? "were not attached to" : "were not detached from"));
}

void add_target_flags(CLI::App& app, Options& options, Target& target) {
  add_process_flags(app, options);
  app.add_option("--comm", target.comm,
                 "Only processes of this name; * matches any run of characters")
      ->type_name("NAME");
}

bool names_any(const Options& options, const Target& target) {
  return options.pid != 0 || !options.container.empty() || !options.pod.empty() ||
         !target.comm.empty();
}

}  // namespace

void declare_attach(CLI::App& app, Invocation& invocation) {
  const auto target = std::make_shared<Target>();
  add_target_flags(app, invocation.options, *target);
  app.add_flag(
      "--list", target->lists,
      "List processes that use CUDA: injected, attached, or whether they can be attached to");
  app.add_flag("--accept-seccomp", target->accept_seccomp,
               "Attach although a seccomp filter limits the process that gpuperfd cannot read");
  app.callback([&invocation, target] {
    if (!target->lists && !names_any(invocation.options, *target)) {
      throw CLI::ValidationError("attach", "give --pid, --pod, --container or --comm; or --list");
    }
    invocation.run = [&invocation, target] {
      return target->lists ? run_list(invocation, *target) : run_change(invocation, *target, true);
    };
  });
}

void declare_detach(CLI::App& app, Invocation& invocation) {
  const auto target = std::make_shared<Target>();
  add_target_flags(app, invocation.options, *target);
  app.callback([&invocation, target] {
    if (!names_any(invocation.options, *target)) {
      throw CLI::ValidationError("detach", "give --pid, --pod, --container or --comm");
    }
    invocation.run = [&invocation, target] { return run_change(invocation, *target, false); };
  });
}

}  // namespace gpuperf::client
