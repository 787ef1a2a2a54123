#pragma once

// The daemon's log: one line per event, key=value, to stderr. Where stderr is the journal, each
// event is an entry with a field for each key (journal.h).
//
// Any thread. Values with spaces, quotes or control characters are quoted, so a hostile process
// name cannot forge a line.

#include <spdlog/spdlog.h>

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "daemon/base/mutex.h"

namespace gpuperf {

struct LogField {
  std::string_view key;
  std::string value;
};

// What happened, in words. `id`, 32 hexadecimal digits, for events that programs look for: the
// journal's MESSAGE_ID, which stays when the words change. docs/operations.md lists them.
struct LogEvent {
  // NOLINTNEXTLINE(google-explicit-constructor): most events are words and nothing else
  constexpr LogEvent(const char* words, std::string_view stable_id = {})
      : text(words), id(stable_id) {}
  std::string_view text;
  std::string_view id;
};

// Again: changes the level. level: trace, debug, info, warn, error. An unknown level is the
// caller's bug: config checks it.
void set_up_log(std::string_view level);

// Renders "event key=value key=\"quoted value\"".
std::string format_log_line(std::string_view event, std::initializer_list<LogField> fields);

void log_debug(LogEvent event, std::initializer_list<LogField> fields = {});
void log_info(LogEvent event, std::initializer_list<LogField> fields = {});
void log_warn(LogEvent event, std::initializer_list<LogField> fields = {});
void log_error(LogEvent event, std::initializer_list<LogField> fields = {});

// Lets `burst` events through per second and says how many it held back since the last one let
// through. Any thread.
class LogLimiter {
 public:
  explicit LogLimiter(uint32_t burst_per_second) : burst_(burst_per_second) {}
  struct Decision {
    bool allowed = false;
    uint64_t suppressed_count = 0;  // held back since the last allowed one; set when allowed
  };
  Decision admit(int64_t now_mono_ns);
  void set_burst(uint32_t burst_per_second);

 private:
  Mutex mutex_;
  uint32_t burst_ ABSL_GUARDED_BY(mutex_);
  int64_t window_start_mono_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  uint32_t used_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t suppressed_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace gpuperf
