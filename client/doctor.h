#pragma once

// The checks of `gpuperfctl doctor`: pure functions from what was found to what it means.

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "client/address.h"
#include "client/table.h"
#include "gpuperf/v1/control.pb.h"
#include "gpuperf/v1/observe.pb.h"

namespace gpuperf::client {

inline constexpr size_t kNamed = 5;  // of a list in a sentence

enum class CheckState {
  kOk,
  kHint,     // works, and there is something to know
  kProblem,  // data is missing because of it
};

struct Check {
  std::string check;
  CheckState state = CheckState::kOk;
  std::string message;
  std::string hint;  // what to do; empty = nothing
  bool operator==(const Check&) const = default;
};

// Where this host says how it is; others in tests.
struct HostPaths {
  std::string proc = "/proc";
  std::string btf = "/sys/kernel/btf/vmlinux";
};

// What can be seen without a daemon.
std::vector<Check> check_host(const HostPaths& paths);  // its process, the kernel, BTF
Check check_socket(const Address& address);
Check check_caller(bool root);
// Why no daemon answers: what `host` and `socket` found, with the cause once. Without `socket`, for
// a daemon elsewhere, the call's own words.
std::vector<Check> explain_unreachable(const std::string& message,
                                       const std::optional<Check>& socket, std::vector<Check> host);

// What the daemon says of itself.
struct DaemonAnswers {
  v1::GetStatusResponse status;
  std::vector<v1::Probe> probes;
  v1::GetConfigResponse config;
  std::optional<v1::ListGpusResponse> gpus;  // empty = an older daemon that does not tell
  std::optional<std::string> config_file;  // the file's text now; empty = cannot be read from here
  std::vector<v1::Session> sessions;       // open ones
  std::vector<v1::FunctionStats> cuda_calls;  // of the category "cuda", per process
  // Processes that use CUDA, by whether they can be attached to; empty = not root, or none may be.
  std::vector<v1::Attachment> attachments;
};
std::vector<Check> check_daemon(const DaemonAnswers& answers);
// The probes of each category, in the configuration's order.
std::vector<Check> check_probes(const std::vector<v1::Probe>& probes);

// Injected processes, and those that use CUDA and are not.
std::vector<Check> check_sessions(const DaemonAnswers& answers);
// How full limits are, and how long the daemon's own work takes.
std::vector<Check> check_limits(const v1::GetStatusResponse& status);
// What GPUs are slow, and why; what is wrong with them is among the daemon's problems.
std::vector<Check> check_gpus(const v1::ListGpusResponse& response);

// "1 problem and 2 hints: gpuperfd is not running", the first problem's words.
std::string summarise_checks(const std::vector<Check>& checks);
// The checks in their three forms; as a table behind the summary.
std::string render_checks(const std::vector<Check>& checks, const TextStyle& style);
nlohmann::ordered_json to_json(const std::vector<Check>& checks);

}  // namespace gpuperf::client
