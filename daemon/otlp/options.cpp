#include "daemon/otlp/options.h"

#include <absl/strings/ascii.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "daemon/base/pem_file.h"

namespace gpuperf::otlp {
namespace {

constexpr const char* kEndpointVariable = "OTEL_EXPORTER_OTLP_ENDPOINT";
constexpr const char* kHeadersVariable = "OTEL_EXPORTER_OTLP_HEADERS";
constexpr const char* kResourceVariable = "OTEL_RESOURCE_ATTRIBUTES";

using Pairs = std::map<std::string, std::string>;

std::string get_text(const GetEnvironment& get_environment, const char* name) {
  const char* value = get_environment(name);
  return value == nullptr ? "" : value;
}

std::string find_endpoint(const Settings& settings, const GetEnvironment& get_environment) {
  return settings.otlp.endpoint.empty() ? get_text(get_environment, kEndpointVariable)
                                        : settings.otlp.endpoint;
}

std::string_view strip(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(" \t"), text.size());
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

// A % without two digits stands for itself.
std::string decode_percents(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = 0;
    const char* digits = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      decoded += static_cast<char>(byte);
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

// Empty for "".
Result<std::string> read_pem(const std::string& path) {
  return path.empty() ? std::string() : read_pem_file(path);
}

Status add_variable(const GetEnvironment& get_environment, const char* name, Pairs& pairs) {
  auto parsed = parse_pairs(get_text(get_environment, name));
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(std::string(name) + ": " +
                                      std::string(parsed.status().message()));
  }
  for (auto& [key, value] : *parsed) pairs.insert_or_assign(key, std::move(value));
  return absl::OkStatus();
}

Result<Pairs> read_headers(const Settings& settings, const GetEnvironment& get_environment) {
  Pairs both;
  RETURN_IF_ERROR(add_variable(get_environment, kHeadersVariable, both));
  Pairs headers;
  for (const auto& [name, value] : both) headers[absl::AsciiStrToLower(name)] = value;
  for (const auto& [name, value] : settings.otlp.headers) {
    headers[absl::AsciiStrToLower(name)] = value;
  }
  for (const auto& [name, value] : headers) {
    // What gRPC would refuse with each request, silently.
    const auto is_allowed = [](char c) { return absl::ascii_isalnum(c) || strchr("_.-", c); };
    const bool is_name = !name.empty() && std::ranges::all_of(name, is_allowed) &&
                         !name.starts_with("grpc-") && !name.ends_with("-bin");
    if (!is_name || !std::ranges::all_of(value, absl::ascii_isprint)) {
      return absl::InvalidArgumentError(std::string(kHeadersVariable) + ": header \"" + name +
                                        "\" cannot be sent: names hold letters, digits and "
                                        "._-, values printable ASCII characters");
    }
  }
  return headers;
}

}  // namespace

bool is_wanted(const Settings& settings, const GetEnvironment& get_environment) {
  const auto& otlp = settings.otlp;
  return (otlp.metrics || otlp.slow_calls || otlp.profiles) &&
         !find_endpoint(settings, get_environment).empty();
}

bool are_spans_wanted(const Settings& settings, const GetEnvironment& get_environment) {
  return settings.otlp.slow_calls && is_wanted(settings, get_environment);
}

std::chrono::seconds get_profile_period(const Settings& settings,
                                        const GetEnvironment& get_environment) {
  const bool is_on = settings.otlp.profiles && is_wanted(settings, get_environment);
  return std::chrono::seconds(is_on ? settings.otlp.profile_interval_seconds : 0);
}

Result<ExportOptions> read_options(const Settings& settings,
                                   const GetEnvironment& get_environment) {
  const auto& otlp = settings.otlp;
  ExportOptions options{.metrics = otlp.metrics,
                        .slow_calls = otlp.slow_calls,
                        .profiles = otlp.profiles,
                        .interval = std::chrono::seconds(otlp.interval_seconds),
                        .timeout = std::chrono::seconds(otlp.timeout_seconds),
                        .queue_bytes = otlp.queue_mib << 20};
  ASSIGN_OR_RETURN(options.endpoint, parse_endpoint(find_endpoint(settings, get_environment)));
  ASSIGN_OR_RETURN(options.ca_pem, read_pem(otlp.ca_file));
  ASSIGN_OR_RETURN(options.cert_pem, read_pem(otlp.cert_file));
  ASSIGN_OR_RETURN(options.key_pem, read_pem(otlp.key_file));
  if (options.cert_pem.empty() != options.key_pem.empty()) {
    return absl::InvalidArgumentError(
        "export.otlp.cert_file and export.otlp.key_file are given together or not at all");
  }
  ASSIGN_OR_RETURN(options.headers, read_headers(settings, get_environment));
  RETURN_IF_ERROR(add_variable(get_environment, kResourceVariable, options.attributes));
  for (const auto& [key, value] : otlp.resource_attributes) options.attributes[key] = value;
  return options;
}

Result<Pairs> parse_pairs(std::string_view text) {
  Pairs pairs;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view piece = strip(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (piece.empty()) continue;
    const size_t equals = piece.find('=');
    const std::string_view key = strip(piece.substr(0, equals));
    if (equals == piece.npos || key.empty()) {
      return absl::InvalidArgumentError("\"" + std::string(piece) +
                                        "\" is not of the form name=value");
    }
    pairs.insert_or_assign(std::string(key), decode_percents(strip(piece.substr(equals + 1))));
  }
  return pairs;
}

}  // namespace gpuperf::otlp
