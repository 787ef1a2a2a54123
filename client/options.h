#pragma once

// The flags that several commands share. A command declares only those that it obeys: a filter
// that is accepted and ignored would be a wrong answer.

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "client/address.h"
#include "client/render.h"
#include "client/status.h"
#include "gpuperf/v1/observe.pb.h"

namespace CLI {
class App;
class Option;
class Validator;
}  // namespace CLI

namespace gpuperf::client {

// How long captures may take: they are read, after others'.
inline constexpr double kRenderSeconds = 120;

struct Options {
  // Every command.
  std::string format_name = "table";
  std::string address;
  TlsFiles tls;
  std::optional<double> timeout_seconds;  // empty = as the kind of call needs
  // Filters; empty or 0 = not asked.
  uint32_t pid = 0;
  std::string container;
  std::string pod;
  std::string category;
  std::string function;
  std::string since;
  std::string min_duration;
  // Lists.
  std::string sort;
  uint64_t limit = 0;  // 0 = every row
  std::optional<double> watch_seconds;
};

void add_connection_flags(CLI::App& app, Options& options);
void add_process_flags(CLI::App& app, Options& options);   // --pid --container --pod
void add_function_flags(CLI::App& app, Options& options);  // --category --function
void add_time_flags(CLI::App& app, Options& options);      // --since --min-duration
void add_sort_flag(CLI::App& app, Options& options, const std::string& fields);
void add_limit_flag(CLI::App& app, Options& options);
void add_watch_flag(CLI::App& app, Options& options);
// --interpreter-frames, of all that shows stacks.
CLI::Option* add_interpreter_flag(CLI::App& app, std::function<void()> show);

// Of a command that lists when it stands alone, and so has flags: before another subcommand they
// would be accepted and ignored.
void refuse_list_flags(const CLI::App& app);

// For texts and numbers of a command's own.
CLI::Validator make_text_check();
CLI::Validator make_whole_number_check(uint64_t least, uint64_t most);

Format find_format(const Options& options);
std::chrono::nanoseconds find_timeout(const Options& options);
// A change is answered when it is in force, and attaching takes its time.
std::chrono::nanoseconds find_change_timeout(const Options& options);
// The filter as of `now_unix_ns`: "--since 10m" moves on in a watch.
Result<v1::Filter> make_filter(const Options& options, uint64_t now_unix_ns);
bool has_filter(const Options& options);

}  // namespace gpuperf::client
