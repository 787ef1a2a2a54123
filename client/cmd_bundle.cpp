// gpuperfctl bundle: what somebody who helps from afar wants to know, in one file without names.

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <ctime>
#include <functional>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/bundle.h"
#include "client/doctor.h"
#include "client/output_file.h"
#include "client/pages.h"
#include "client/redactor.h"
#include "client/sha256.h"
#include "client/tar_gzip.h"
#include "client/text.h"
#include "client/version.h"
#include "client/view.h"

namespace gpuperf::client {
namespace {

using nlohmann::ordered_json;

constexpr const char* kProc = "/proc";
constexpr const char* kSys = "/sys";
// Without stacks they take a few hundred KiB.
constexpr uint64_t kMaxSlowCalls = 500;
constexpr uint64_t kSlowCallsNs = uint64_t{3'600} * 1'000'000'000;

struct BundleOptions {
  std::string file;      // empty = gpuperf-bundle-TIME.tar.gz here
  std::string log_file;  // empty = the journal
  bool include_names = false;
};

constexpr ListCall<v1::ListProbesRequest, v1::ListProbesResponse, v1::Probe> kAllProbes = {
    .rows = &v1::ListProbesResponse::mutable_probes, .action = "list probes", .page_rows = 1000};

// What is put in, and why something is not.
class Contents {
 public:
  void add(const std::string& name, std::string what, std::string bytes) {
    files_.push_back({.name = name, .bytes = std::move(bytes)});
    rows_.push_back(ordered_json{{"name", name},
                                 {"what", std::move(what)},
                                 {"bytes", files_.back().bytes.size()},
                                 {"sha256", to_hex(hash_sha256(files_.back().bytes))}});
  }
  void add(const std::string& name, std::string what, const ordered_json& json) {
    add(name, std::move(what), write_json(json, JsonShape::kIndented));
  }
  // `why` may have names in it no more.
  void miss(const std::string& name, const std::string& why) {
    missing_.push_back(ordered_json{{"name", name}, {"why", why}});
  }

  const std::vector<ArchivedFile>& files() const { return files_; }
  const ordered_json& rows() const { return rows_; }
  const ordered_json& missing() const { return missing_; }

 private:
  std::vector<ArchivedFile> files_;
  ordered_json rows_ = ordered_json::array();
  ordered_json missing_ = ordered_json::array();
};

// What a daemon that answers has said.
struct Answers {
  DaemonAnswers for_doctor;
  std::vector<v1::FunctionStats> functions;
  std::vector<v1::Process> processes;
  std::vector<v1::SlowCall> slow_calls;
};

template <typename Row>
ordered_json to_json_rows(const std::vector<Row>& rows) {
  auto array = ordered_json::array();
  for (const Row& row : rows) array.push_back(to_json(row));
  return array;
}

Status read_answers_for_bundle(Connection& connection, Answers& answers) {
  DaemonAnswers& doctor = answers.for_doctor;
  RETURN_IF_ERROR(connection.call("read the status", v1::GetStatusRequest(), &doctor.status));
  RETURN_IF_ERROR(
      connection.call("read the configuration", v1::GetConfigRequest(), &doctor.config));
  ASSIGN_OR_RETURN(doctor.probes, read_pages(connection, kAllProbes, {}, 0));
  ASSIGN_OR_RETURN(doctor.sessions, read_pages(connection, kListSessions, {}, 0));
  v1::ListFunctionsRequest per_process;
  per_process.set_per_process(true);
  ASSIGN_OR_RETURN(answers.functions, read_pages(connection, kListFunctions, per_process, 0));
  ASSIGN_OR_RETURN(answers.processes, read_pages(connection, kListProcesses, {}, 0));
  v1::ListSlowCallsRequest last_hour;
  last_hour.mutable_filter()->set_since_unix_ns(read_wall_clock_ns() - kSlowCallsNs);
  ASSIGN_OR_RETURN(answers.slow_calls,
                   read_pages(connection, kListSlowCalls, last_hour, kMaxSlowCalls));
  v1::ListGpusResponse gpus;
  RETURN_IF_ERROR(connection.call("list GPUs", v1::ListGpusRequest(), &gpus));
  doctor.gpus = std::move(gpus);
  return absl::OkStatus();
}

// Each message of the answers.
void for_each_message(Answers& answers,
                      const std::function<void(google::protobuf::Message&)>& do_with) {
  DaemonAnswers& doctor = answers.for_doctor;
  do_with(doctor.status);
  for (auto& row : doctor.probes) do_with(row);
  for (auto& row : doctor.sessions) do_with(row);
  for (auto& row : answers.functions) do_with(row);
  for (auto& row : answers.processes) do_with(row);
  for (auto& row : answers.slow_calls) do_with(row);
  if (doctor.gpus) do_with(*doctor.gpus);
}

void add_doctor(std::vector<Check> checks, Redactor& redactor, Contents& contents) {
  for (Check& check : checks) {
    check.check = redactor.redact_text(check.check);
    check.message = redactor.redact_text(check.message);
    check.hint = redactor.redact_text(check.hint);
  }
  contents.add("doctor.json", "the checks of gpuperfctl doctor", to_json(checks));
  contents.add("doctor.txt", "the same as text",
               render_checks(checks, TextStyle{.terminal = false}));
}

void add_metrics(const std::string& address, Redactor& redactor, Contents& contents) {
  if (address.empty()) return contents.miss("metrics.txt", "metrics.listen is empty");
  const Result<std::string> metrics = fetch_metrics(address);
  if (!metrics.ok()) {
    return contents.miss("metrics.txt",
                         redactor.redact_text(std::string(metrics.status().message())));
  }
  contents.add("metrics.txt", "/metrics", redactor.redact_metrics(*metrics));
}

// From a daemon that answers; what it said has no names any more behind it. `here`: it is on this
// host.
void add_answers(Answers& answers, bool here, Redactor& redactor, Contents& contents) {
  for_each_message(answers, [&](auto& message) { redactor.learn(message); });
  DaemonAnswers& doctor = answers.for_doctor;
  const std::string metrics_address = doctor.status.metrics_address();
  const uint32_t pid = doctor.status.pid();
  const auto config = ordered_json::parse(doctor.config.effective_json(), nullptr, false);
  for_each_message(answers, [&](auto& message) { redactor.redact(message); });
  doctor.config.set_path(redactor.redact_path(doctor.config.path()));
  for (const v1::FunctionStats& row : answers.functions) {
    if (row.category() == "cuda") doctor.cuda_calls.push_back(row);
  }
  contents.add("status.json", "state, problems, drops, limits, memory, times of gpuperfd",
               to_json(doctor.status));
  if (config.is_discarded()) {
    contents.miss("config.json", "the daemon's configuration is no JSON");
  } else {
    contents.add("config.json", "every setting in use; values of headers are left out",
                 redactor.redact_config(config));
  }
  contents.add("functions.json", "statistics per function and process",
               to_json_rows(answers.functions));
  contents.add("probes.json", "probes and their state", to_json_rows(doctor.probes));
  contents.add("sessions.json", "injected processes", to_json_rows(doctor.sessions));
  contents.add("overhead.json", "processes, and what gpuperf costs each",
               to_json_rows(answers.processes));
  contents.add("slow_calls.json",
               fmt::format("the {} longest slow calls of the last hour, without arguments, "
                           "results and stacks",
                           kMaxSlowCalls),
               to_json_rows(answers.slow_calls));
  contents.add("gpus.json", "GPUs and the driver", to_json(*doctor.gpus));
  if (!here) {
    contents.miss("metrics.txt", "the daemon is not on this host");
    return contents.miss("process.json", "the daemon is not on this host");
  }
  add_metrics(metrics_address, redactor, contents);
  const auto process = describe_process(kProc, pid);
  if (process.ok()) {
    contents.add("process.json", "the daemon's process: memory, rights, limits, descriptors",
                 *process);
  } else {
    contents.miss("process.json", std::string(process.status().message()));
  }
}

void add_log(const BundleOptions& options, Redactor& redactor, Contents& contents) {
  const auto log = options.log_file.empty() ? read_journal() : read_last_lines(options.log_file);
  if (!log.ok()) {
    return contents.miss("log.txt", redactor.redact_text(std::string(log.status().message())));
  }
  contents.add("log.txt", "the last lines of the daemon's log, without stacks and arguments",
               redactor.redact_log(*log));
}

std::string describe_redaction(bool include_names, size_t names) {
  const std::string always =
      "Arguments of calls, stacks, values of headers and resource attributes are never in it. ";
  if (include_names) return always + "Names are in it: --include-names was given.";
  return always + fmt::format(
                      "{} names (users, processes, paths, hosts, addresses, containers, pods, "
                      "jobs, functions of your own) are replaced: the same name by the same "
                      "pseudonym. Text is searched for names as far as they are known: read it.",
                      names);
}

ordered_json make_manifest(const BundleOptions& options, const Redactor& redactor,
                           const Contents& contents, std::time_t now) {
  return {{"format", "gpuperf-bundle-1"},
          {"made_unix_seconds", now},
          {"gpuperfctl_version", get_client_version()},
          {"includes_names", options.include_names},
          {"redaction", describe_redaction(options.include_names, redactor.count_names())},
          {"files", contents.rows()},
          {"missing", contents.missing()}};
}

// What can be had without a daemon, and from one that answers. Redacts as it goes.
void gather(const Invocation& invocation, const Address& address, const BundleOptions& options,
            Redactor& redactor, Contents& contents) {
  const bool here = !address.unix_path.empty();
  learn_host_names(kProc, redactor);
  contents.add("host.json", "kernel, CPUs, memory, what limits BPF here",
               describe_host(kProc, kSys));
  std::vector<Check> checks;
  if (here) checks.push_back(check_socket(address));
  Answers answers;
  const auto connection = connect(invocation, nullptr);
  const Status answered =
      connection.ok() ? read_answers_for_bundle(**connection, answers) : connection.status();
  std::string version;
  if (answered.ok()) {
    version = answers.for_doctor.status.version();
    add_answers(answers, here, redactor, contents);
    for (Check& check : check_daemon(answers.for_doctor)) checks.push_back(std::move(check));
  } else {
    const std::string why = redactor.redact_text(std::string(answered.message()));
    for (const char* name :
         {"status.json", "config.json", "functions.json", "probes.json", "sessions.json",
          "overhead.json", "slow_calls.json", "gpus.json", "metrics.txt", "process.json"}) {
      contents.miss(name, why);
    }
    const auto socket = here ? std::optional(checks.front()) : std::nullopt;
    checks = explain_unreachable(std::string(answered.message()), socket,
                                 here ? check_host(HostPaths()) : std::vector<Check>());
  }
  contents.add("versions.json", "versions of both programs",
               ordered_json{{"gpuperfctl", get_client_version()}, {"gpuperfd", version}});
  add_doctor(std::move(checks), redactor, contents);
  if (here) {
    add_log(options, redactor, contents);
  } else {
    contents.miss("log.txt", "the daemon is not on this host");
  }
}

std::string make_file_name(std::time_t now) {
  std::tm utc{};
  (void)gmtime_r(&now, &utc);
  return fmt::format("gpuperf-bundle-{:04}{:02}{:02}T{:02}{:02}{:02}Z.tar.gz", utc.tm_year + 1900,
                     utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

std::string describe_bundle(const std::string& file, size_t bytes, const BundleOptions& options,
                            const Redactor& redactor, const Contents& contents) {
  std::string text = fmt::format("Wrote {}: {}, {} files\n", make_printable(file),
                                 format_bytes(bytes), contents.files().size());
  for (const ordered_json& row : contents.missing()) {
    text += fmt::format("  missing: {}: {}\n", row["name"].get<std::string>(),
                        make_printable(row["why"].get<std::string>()));
  }
  text += describe_redaction(options.include_names, redactor.count_names()) + "\n";
  return text + "Read it before you send it (tar xzf).\n";
}

Status run_bundle(const Invocation& invocation, const BundleOptions& options) {
  ASSIGN_OR_RETURN(const Address address, parse_address(invocation.options.address));
  const std::time_t now = std::time(nullptr);
  const bool is_piped = options.file == "-";
  const std::string file = options.file.empty() ? make_file_name(now) : options.file;
  if (is_piped && invocation.output.is_terminal()) {
    return absl::InvalidArgumentError("standard output is a terminal: redirect it with > or |");
  }
  if (!is_piped) RETURN_IF_ERROR(check_writable(file));
  Redactor redactor(options.include_names);
  Contents contents;
  gather(invocation, address, options, redactor, contents);
  std::vector<ArchivedFile> files = {
      {.name = "gpuperf-bundle/manifest.json",
       .bytes = write_json(make_manifest(options, redactor, contents, now), JsonShape::kIndented)}};
  for (const ArchivedFile& made : contents.files()) {
    files.push_back({.name = "gpuperf-bundle/" + made.name, .bytes = made.bytes});
  }
  ASSIGN_OR_RETURN(const std::string packed, make_tar_gzip(files, static_cast<uint64_t>(now)));
  if (is_piped) {
    std::cerr << describe_bundle("standard output", packed.size(), options, redactor, contents);
    return invocation.output.write(packed);
  }
  ASSIGN_OR_RETURN(OutputFile out, OutputFile::make(file));
  RETURN_IF_ERROR(out.write(packed));
  RETURN_IF_ERROR(out.commit());
  const Format format = find_format(invocation.options);
  if (format == Format::kTable) {
    return invocation.output.write(
        describe_bundle(file, packed.size(), options, redactor, contents));
  }
  const ordered_json written = {{"file", file},
                                {"bytes", packed.size()},
                                {"files", contents.rows()},
                                {"missing", contents.missing()}};
  return invocation.output.write(
      format == Format::kJson
          ? write_json(written, JsonShape::kIndented)
          : write_csv(written, ordered_json::array({written}), invocation.output.read_style()));
}

}  // namespace

void declare_bundle(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<BundleOptions>();
  app.add_option("--file", options->file,
                 "File to write; - is standard output; default: gpuperf-bundle-TIME.tar.gz here");
  app.add_option("--log", options->log_file,
                 "File with the daemon's log; default: what the journal has of gpuperfd.service");
  app.add_flag("--include-names", options->include_names,
               "Keep names of users, processes, files, hosts, containers, pods and functions");
  app.callback([&invocation, options] {
    invocation.run = [&invocation, options] { return run_bundle(invocation, *options); };
  });
}

}  // namespace gpuperf::client
