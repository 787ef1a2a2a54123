#include "client/options.h"

#include <absl/strings/numbers.h>
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "client/address.h"
#include "client/duration.h"
#include "client/text.h"

namespace gpuperf::client {
namespace {

constexpr double kDefaultWatchSeconds = 2;
constexpr double kShortestWatchSeconds = 0.1;  // the daemon's own snapshots are not newer than that
constexpr double kTimeoutSeconds = 5;
constexpr double kChangeTimeoutSeconds = 30;  // perf uprobes attach some ten a second
constexpr double kShortestTimeoutSeconds = 0.001;
constexpr double kLongestSeconds = 86400;

CLI::Validator make_seconds_check(double least) {
  return {[least](std::string& text) -> std::string {
            double value = 0;
            const bool number = absl::SimpleAtod(text, &value);
            if (number && value >= least && value <= kLongestSeconds) return "";
            return fmt::format("\"{}\" is not a number of seconds from {:g} to {:g}", text, least,
                               kLongestSeconds);
          },
          ""};
}

CLI::Validator make_duration_check() {
  return {[](std::string& text) {
            const auto parsed = parse_duration_ns(text);
            return parsed.ok() ? std::string() : std::string(parsed.status().message());
          },
          ""};
}

std::chrono::nanoseconds to_nanoseconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(seconds));
}

// "-o=json", which many tools take, reaches us as "=json".
CLI::Validator make_equals_sign_remover() {
  return {[](std::string& text) {
            if (text.starts_with('=')) text.erase(0, 1);
            return std::string();
          },
          ""};
}

// Elsewhere -o often names a file.
CLI::Validator make_form_check() {
  return {[](std::string& text) -> std::string {
            if (text == "table" || text == "json" || text == "csv") return "";
            const bool file = text.find_first_of("./") != std::string::npos;
            return fmt::format("\"{}\" is not table, json or csv{}", text,
                               file ? fmt::format("; files: --file {0}, or > {0}", text) : "");
          },
          ""};
}

CLI::Validator make_since_check() {
  return {[](std::string& text) {
            const auto parsed = parse_since_unix_ns(text, read_wall_clock_ns());
            return parsed.ok() ? std::string() : std::string(parsed.status().message());
          },
          ""};
}

}  // namespace

// An empty value would not restrict anything: most likely a shell variable that is not set.
void refuse_list_flags(const CLI::App& app) {
  for (const CLI::Option* flag : app.get_options()) {
    if (flag->count() > 0) throw CLI::ExtrasError(app.get_name(), {flag->get_name()});
  }
}

CLI::Validator make_text_check() {
  return {[](std::string& text) -> std::string {
            if (text.empty()) return "is empty";
            return is_utf8(text) ? "" : "is not UTF-8 text";
          },
          ""};
}

// CLI11 alone would read "-1" as the largest number there is.
CLI::Validator make_whole_number_check(uint64_t least, uint64_t most) {
  return {[least, most](std::string& text) -> std::string {
            uint64_t value = 0;
            const bool digits = text.find_first_not_of("0123456789") == std::string::npos;
            if (digits && absl::SimpleAtoi(text, &value) && value >= least && value <= most) {
              return "";
            }
            return fmt::format("\"{}\" is not a whole number from {} to {}", text, least, most);
          },
          ""};
}

namespace {

void add_text_flag(CLI::App& app, const std::string& name, std::string& value,
                   const std::string& help) {
  app.add_option(name, value, help)->check(make_text_check());
}

}  // namespace

void add_connection_flags(CLI::App& app, Options& options) {
  app.add_option("-o,--output", options.format_name, "Output format: table, json or csv")
      ->transform(make_equals_sign_remover())
      ->check(make_form_check())
      ->type_name("table|json|csv")
      ->capture_default_str();
  options.address = std::string(kDefaultAddress);
  app.add_option("--address", options.address, "Address of gpuperfd: unix:/path or host:port")
      ->envname("GPUPERF_ADDRESS")
      ->capture_default_str();
  app.add_option(
         "--ca-file", options.tls.ca_file,
         "For host:port: CA certificates that gpuperfd's certificate is checked against (PEM)")
      ->envname("GPUPERF_CA_FILE");
  app.add_option("--cert-file", options.tls.cert_file, "For host:port: client certificate (PEM)")
      ->envname("GPUPERF_CERT_FILE");
  app.add_option("--key-file", options.tls.key_file,
                 "For host:port: private key of the client certificate (PEM)")
      ->envname("GPUPERF_KEY_FILE");
  app.add_option("--timeout", options.timeout_seconds,
                 fmt::format("Seconds to wait for each answer; default {:g}, or {:g} for commands "
                             "that change gpuperfd",
                             kTimeoutSeconds, kChangeTimeoutSeconds))
      ->check(make_seconds_check(kShortestTimeoutSeconds));
}

void add_process_flags(CLI::App& app, Options& options) {
  app.add_option("--pid", options.pid, "Only this process")
      ->check(make_whole_number_check(1, UINT32_MAX));
  add_text_flag(app, "--container", options.container, "Only this container id, or a prefix of it");
  add_text_flag(app, "--pod", options.pod, "Only this pod name or uid");
}

void add_function_flags(CLI::App& app, Options& options) {
  add_text_flag(app, "--category", options.category, "Only this category, like cuda or cublas");
  add_text_flag(app, "--function", options.function,
                "Only this function; * matches any characters");
}

void add_time_flags(CLI::App& app, Options& options) {
  app.add_option("--since", options.since,
                 "Only calls that started since then: 10m, 2h, 1d, or 2026-05-01T10:00:00Z")
      ->check(make_since_check());
  app.add_option("--min-duration", options.min_duration,
                 "Only calls that took at least this long, like 5ms")
      ->check(make_duration_check());
}

void add_sort_flag(CLI::App& app, Options& options, const std::string& fields) {
  add_text_flag(app, "--sort", options.sort, "Sort by a field: " + fields);
}

void add_limit_flag(CLI::App& app, Options& options) {
  app.add_option("--limit", options.limit, "Maximum number of rows; 0 = all")
      ->check(make_whole_number_check(0, UINT64_MAX))
      ->capture_default_str();
}

void add_watch_flag(CLI::App& app, Options& options) {
  app.add_option_function<std::vector<double>>(
         "--watch",
         [&options](const std::vector<double>& seconds) {
           options.watch_seconds = seconds.empty() ? kDefaultWatchSeconds : seconds.front();
         },
         "Refresh every SECONDS (default 2) until interrupted")
      ->expected(0, 1)
      ->type_name("[SECONDS]")
      ->check(make_seconds_check(kShortestWatchSeconds));
}

CLI::Option* add_interpreter_flag(CLI::App& app, std::function<void()> show) {
  return app.add_flag_callback(
      "--interpreter-frames", std::move(show),
      "Also show the Python interpreter's own frames, like _PyEval_Vector");
}

Format find_format(const Options& options) {
  if (options.format_name == "json") return Format::kJson;
  return options.format_name == "csv" ? Format::kCsv : Format::kTable;
}

std::chrono::nanoseconds find_timeout(const Options& options) {
  return to_nanoseconds(options.timeout_seconds.value_or(kTimeoutSeconds));
}

std::chrono::nanoseconds find_change_timeout(const Options& options) {
  return to_nanoseconds(options.timeout_seconds.value_or(kChangeTimeoutSeconds));
}

Result<v1::Filter> make_filter(const Options& options, uint64_t now_unix_ns) {
  v1::Filter filter;
  filter.set_pid(options.pid);
  filter.set_container(options.container);
  filter.set_pod(options.pod);
  filter.set_category(options.category);
  filter.set_function(options.function);
  if (!options.since.empty()) {
    ASSIGN_OR_RETURN(const uint64_t since_ns, parse_since_unix_ns(options.since, now_unix_ns));
    filter.set_since_unix_ns(since_ns);
  }
  if (!options.min_duration.empty()) {
    ASSIGN_OR_RETURN(const uint64_t shortest_ns, parse_duration_ns(options.min_duration));
    filter.set_min_duration_ns(shortest_ns);
  }
  return filter;
}

bool has_filter(const Options& options) {
  return options.pid != 0 || !options.container.empty() || !options.pod.empty() ||
         !options.category.empty() || !options.function.empty() || !options.since.empty() ||
         !options.min_duration.empty();
}

}  // namespace gpuperf::client
