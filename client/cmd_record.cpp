// gpuperfctl record -- COMMAND: runs a command, and writes what it did on the CPU and the GPU.

#include <absl/strings/str_join.h>
#include <fmt/format.h>
#include <string.h>
#include <CLI/CLI.hpp>

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "client/capture_fetch.h"
#include "client/capture_wait.h"
#include "client/child_process.h"
#include "client/injector_path.h"
#include "client/output_file.h"
#include "client/view.h"

namespace gpuperf::client {
namespace {

constexpr size_t kMaxNameBytes = 128;  // of a capture
constexpr int kNotFound = 127;         // as a shell ends
constexpr int kNotRun = 126;

struct Record {
  std::string cpu_file = "cpu.txt";
  std::string gpu_file = "gpu.json";
  std::string merged_file = "merged.folded";
  std::string flamegraph_file = "flamegraph.svg";
  std::string injector;
  bool cpu_only = false;
  bool gpu_only = false;
  bool nodes = false;
  bool samples = false;
};

// One file to write.
struct Form {
  std::string format;
  v1::CaptureWeight weight;
  std::string file;
};

std::vector<Form> list_forms(const Record& asked) {
  const auto weight = asked.cpu_only ? v1::CAPTURE_WEIGHT_CPU_TIME : v1::CAPTURE_WEIGHT_GPU_TIME;
  std::vector<Form> forms;
  if (!asked.gpu_only) forms.push_back({"extended-folded", weight, asked.cpu_file});
  if (!asked.cpu_only) forms.push_back({"chrome", weight, asked.gpu_file});
  if (!asked.cpu_only && !asked.gpu_only) forms.push_back({"folded", weight, asked.merged_file});
  forms.push_back({"flamegraph", weight, asked.flamegraph_file});
  return forms;
}

void say(const std::string& text) { std::cerr << "gpuperfctl: " << make_printable(text) << "\n"; }

// "train.py" of "/opt/train.py".
std::string make_name(const std::vector<std::string>& command) {
  std::string name = command[0].substr(command[0].rfind('/') + 1);
  name = is_utf8(name) ? name : "record";
  return name.size() > kMaxNameBytes ? "record" : name;
}

v1::StartCaptureRequest make_request(const Record& asked, const std::vector<std::string>& command,
                                     pid_t pid) {
  v1::StartCaptureRequest request;
  request.set_name(make_name(command));
  request.mutable_target()->set_pid(static_cast<uint32_t>(pid));
  request.mutable_target()->set_with_children(true);
  if (asked.cpu_only) request.set_parts(v1::CAPTURE_PARTS_CPU);
  if (asked.gpu_only) request.set_parts(v1::CAPTURE_PARTS_GPU);
  request.set_nodes(asked.nodes);
  request.set_samples(asked.samples);
  return request;
}

Result<ChildProcess::Environment> make_environment(Connection& connection, const Record& asked,
                                                   const std::string& injector) {
  ChildProcess::Environment environment;
  if (asked.cpu_only) return environment;
  v1::GetStatusResponse status;
  RETURN_IF_ERROR(connection.call("read the status", v1::GetStatusRequest(), &status));
  environment.emplace_back("CUDA_INJECTION64_PATH", injector);
  if (!status.ingest_socket().empty()) {
    environment.emplace_back("GPUPERF_SOCKET", status.ingest_socket());
  } else if (status.has_recorder()) {  // it would tell, and does not take sessions
    return absl::FailedPreconditionError(
        "cannot record GPU work: gpuperfd accepts no sessions; set ingest.enabled = true, or "
        "record CPU work only: --cpu-only");
  }
  if (asked.nodes) environment.emplace_back("GPUPERF_NODE_BURSTS", "1");
  return environment;
}

void report(const v1::GetCaptureResponse& stored, const std::vector<Form>& forms) {
  const v1::Capture& capture = stored.capture();
  const v1::CaptureMatches& matches = stored.matches();
  const uint64_t unmatched = matches.work() - std::min(matches.work(), matches.work_matched());
  say(fmt::format(
      "capture {}: {} launches, {} kernels and other GPU work; {} matched, {} unmatched; "
      "{} launches ambiguous",
      capture.id(), format_count(capture.launches()), format_count(matches.work()),
      format_count(matches.work_matched()), format_count(unmatched),
      format_count(matches.launches_ambiguous())));
  if (capture.lost_events() > 0) {
    say(
        fmt::format("{} events are missing: trace.max_capture_mib was reached; raise it, or record "
                    "a shorter run",
                    format_count(capture.lost_events())));
  }
  std::vector<std::string> files;
  for (const Form& form : forms) files.push_back(form.file);
  say(fmt::format("wrote {}", absl::StrJoin(files, ", ")));
}

// Ends the capture, waits for it and writes the files.
Status finish(Connection& connection, const Invocation& invocation, ChildProcess& child,
              const v1::Capture& begun, const std::vector<Form>& forms) {
  v1::StopCaptureRequest stop;
  stop.set_id(begun.id());
  v1::StopCaptureResponse stopped;
  const Status ended = connection.call(fmt::format("end capture {}", begun.id()), stop, &stopped);
  if (absl::IsFailedPrecondition(ended)) {
    say("the capture ended before the command did; raise trace.max_capture_seconds");
  } else if (!ended.ok()) {
    return ended;
  }
  ASSIGN_OR_RETURN(const v1::GetCaptureResponse stored,
                   wait_until_stored(connection, begun, 0, [&](std::chrono::nanoseconds time) {
                     return child.sleep(time);
                   }));
  for (const Form& form : forms) {
    v1::FetchCaptureRequest request;
    request.set_id(begun.id());
    request.set_format(form.format);
    request.set_weight(form.weight);
    RETURN_IF_ERROR(fetch_capture(connection, request, invocation.output, form.file));
  }
  report(stored, forms);
  return absl::OkStatus();
}

// What cannot be run leaves no capture behind.
Status give_up(Connection& connection, Invocation& invocation, ChildProcess& child,
               const v1::Capture& begun, int error_number) {
  v1::StopCaptureRequest stop;
  stop.set_id(begun.id());
  v1::StopCaptureResponse stopped;
  if (connection.call("end the capture", stop, &stopped).ok()) {
    const auto stored = wait_until_stored(
        connection, begun, 0, [&](std::chrono::nanoseconds time) { return child.sleep(time); });
    v1::DeleteCaptureRequest gone;
    gone.set_id(begun.id());
    v1::DeleteCaptureResponse deleted;
    // Best effort: it is small, and leaves by its age.
    if (stored.ok()) {
      (void)connection.call("delete it", gone, &deleted);
    }
  }
  say(fmt::format("cannot run {}: {}", invocation.command[0], strerror(error_number)));
  invocation.exit_code = error_number == ENOENT ? kNotFound : kNotRun;
  return absl::OkStatus();
}

Status run_record(Invocation& invocation, const Record& asked) {
  const std::vector<std::string>& command = invocation.command;
  const std::vector<Form> forms = list_forms(asked);
  for (const Form& form : forms) RETURN_IF_ERROR(check_writable(form.file));
  std::string injector;
  if (!asked.cpu_only) {
    ASSIGN_OR_RETURN(injector, find_injector(asked.injector));
  }
  // Before the connection, whose threads a fork would not copy.
  ASSIGN_OR_RETURN(const std::unique_ptr<ChildProcess> child, ChildProcess::make(command));
  ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, connect_to_change(invocation));
  ASSIGN_OR_RETURN(const ChildProcess::Environment environment,
                   make_environment(*connection, asked, injector));
  v1::StartCaptureResponse begun;
  RETURN_IF_ERROR(
      connection->call("start a capture", make_request(asked, command, child->pid()), &begun));
  if (const int error_number = child->release(environment); error_number != 0) {
    return give_up(*connection, invocation, *child, begun.capture(), error_number);
  }
  const int exit_code = child->wait();
  const Status finished = finish(*connection, invocation, *child, begun.capture(), forms);
  invocation.exit_code = exit_code;
  if (finished.ok()) return finished;
  // The command ran: whatever failed is the recording.
  return absl::InternalError(fmt::format("the command ended with {}, but: {}", exit_code,
                                         std::string(finished.message())));
}

}  // namespace

void declare_record(CLI::App& app, Invocation& invocation) {
  const auto asked = std::make_shared<Record>();
  const auto add_file = [&app](const char* flags, std::string& file, const char* help) {
    app.add_option(flags, file, help)
        ->type_name("FILE")
        ->check(make_text_check())
        ->capture_default_str();
  };
  add_file("-c,--cpu", asked->cpu_file,
           "Write launches with their stacks, one per line (extended folded)");
  add_file("-p,--profile", asked->gpu_file, "Write calls, launches and GPU work (Chrome trace)");
  add_file("-m,--merged", asked->merged_file,
           "Write stacks with the GPU time they caused (folded)");
  add_file("--flamegraph", asked->flamegraph_file, "Write these stacks as a flame graph (SVG)");
  CLI::Option* cpu = app.add_flag("--cpu-only", asked->cpu_only,
                                  "Do not record GPU work; the injected library is not loaded");
  app.add_flag("--gpu-only", asked->gpu_only, "Record GPU work only: no stacks, no probed calls")
      ->excludes(cpu);
  app.add_flag("--nodes", asked->nodes, "Also record each kernel inside CUDA graphs")
      ->excludes(cpu);
  app.add_flag("--sampling", asked->samples,
               "Also sample what the warps of kernels wait for: gpuperfctl kernels --stalls has it")
      ->excludes(cpu);
  app.add_option("--injector", asked->injector, "Path of libgpuperf_injector.so")
      ->envname("GPUPERF_INJECTOR")
      ->type_name("FILE");
  app.callback([&invocation, asked] {
    if (invocation.command.empty() || invocation.command[0].empty()) {
      throw CLI::ValidationError("COMMAND", "no command given: gpuperfctl record -- COMMAND");
    }
    invocation.run = [&invocation, asked] { return run_record(invocation, *asked); };
  });
}

}  // namespace gpuperf::client
