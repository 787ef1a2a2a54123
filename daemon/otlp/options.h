#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "daemon/base/endpoint.h"
#include "daemon/base/result.h"
#include "daemon/config/config.h"

namespace gpuperf::otlp {

// The value of a variable of the environment; null = it is not set.
using GetEnvironment = std::function<const char*(const char* name)>;

struct ExportOptions {
  Endpoint endpoint;
  std::string ca_pem;  // empty = the system's
  std::string cert_pem;
  std::string key_pem;
  std::map<std::string, std::string> headers;  // names in lower case, as gRPC wants them
  std::map<std::string, std::string> attributes;
  bool metrics = true;
  bool slow_calls = true;
  bool profiles = false;
  std::chrono::seconds interval{30};
  std::chrono::seconds timeout{10};
  size_t queue_bytes = 8 << 20;
};

// Whether somebody wants data to be sent: an endpoint is set, and a signal is on.
bool is_wanted(const Settings& settings, const GetEnvironment& get_environment);
// Whether slow calls are.
bool are_spans_wanted(const Settings& settings, const GetEnvironment& get_environment);
// How often a profile is; 0 = none is wanted.
std::chrono::seconds get_profile_period(const Settings& settings,
                                        const GetEnvironment& get_environment);

// What is to be sent, and where to. Where the configuration says nothing, the standard variables
// OTEL_EXPORTER_OTLP_ENDPOINT, _HEADERS and OTEL_RESOURCE_ATTRIBUTES do; where both name a header
// or an attribute, the configuration does. Reads the files of certificates.
Result<ExportOptions> read_options(const Settings& settings, const GetEnvironment& get_environment);

// "k=v,k2=v2" with %XX for what would end a value, as those variables hold it. Pieces without name
// or "=" are an error.
Result<std::map<std::string, std::string>> parse_pairs(std::string_view text);

}  // namespace gpuperf::otlp
