#pragma once

// The parts of `gpuperfctl bundle` that come from this host and not over the API.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client/redactor.h"
#include "client/status.h"

namespace gpuperf::client {

// Names of this host that may stand in sentences: its own, of users, of processes that run.
void learn_host_names(const std::string& proc, Redactor& redactor);

// Kernel, CPUs, memory, control groups, what limits BPF. Values that cannot be read are null.
nlohmann::ordered_json describe_host(const std::string& proc, const std::string& sys);

// Of a process under `proc`: its status without names, limits, and descriptors by kind.
Result<nlohmann::ordered_json> describe_process(const std::string& proc, uint32_t pid);

// What the daemon has written to the journal last.
Result<std::string> read_journal();
// The last lines of a file that the daemon's log was written to.
Result<std::string> read_last_lines(const std::string& path);

// The text of http://ADDRESS/metrics. `address`: a number and a port.
Result<std::string> fetch_metrics(const std::string& address);

}  // namespace gpuperf::client
