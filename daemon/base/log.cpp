#include "daemon/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <unistd.h>

#include <cstdlib>

#include "daemon/base/journal.h"

namespace gpuperf {
namespace {

bool is_plain(unsigned char c) { return c > ' ' && c != '"' && c != '=' && c != '\\' && c != 0x7f; }

void append_value(std::string& line, std::string_view value) {
  bool plain = !value.empty();
  for (const char c : value) plain = plain && is_plain(static_cast<unsigned char>(c));
  if (plain) {
    line += value;
    return;
  }
  line += '"';
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      line += '\\';
      line += c;
    } else if (byte < ' ' || byte == 0x7f) {
      line += fmt::format("\\x{:02x}", byte);
    } else {
      line += c;
    }
  }
  line += '"';
}

bool write_to_journal(spdlog::level::level_enum level, std::string_view line, LogEvent event,
                      std::initializer_list<LogField> fields) {
  static const bool kIsJournal =
      is_journal_stream(STDERR_FILENO, std::getenv("JOURNAL_STREAM"));  // stays what it is
  return kIsJournal && send_to_journal(make_journal_entry(level, line, event, fields));
}

void write(spdlog::level::level_enum level, LogEvent event,
           std::initializer_list<LogField> fields) {
  if (!spdlog::should_log(level)) return;
  const std::string line = format_log_line(event.text, fields);
  if (!write_to_journal(level, line, event, fields)) spdlog::log(level, "{}", line);
}

}  // namespace

void set_up_log(std::string_view level) {
  constexpr const char* kName = "gpuperfd";
  if (const auto known = spdlog::get(kName)) {  // a reload changes the level alone
    known->set_level(spdlog::level::from_str(std::string(level)));
    return;
  }
  auto logger = spdlog::stderr_logger_mt(kName);
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");
  logger->set_level(spdlog::level::from_str(std::string(level)));
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

std::string format_log_line(std::string_view event, std::initializer_list<LogField> fields) {
  std::string line(event);
  for (const LogField& field : fields) {
    line += ' ';
    line += field.key;
    line += '=';
    append_value(line, field.value);
  }
  return line;
}

void log_debug(LogEvent event, std::initializer_list<LogField> fields) {
  write(spdlog::level::debug, event, fields);
}
void log_info(LogEvent event, std::initializer_list<LogField> fields) {
  write(spdlog::level::info, event, fields);
}
void log_warn(LogEvent event, std::initializer_list<LogField> fields) {
  write(spdlog::level::warn, event, fields);
}
void log_error(LogEvent event, std::initializer_list<LogField> fields) {
  write(spdlog::level::err, event, fields);
}

void LogLimiter::set_burst(uint32_t burst_per_second) {
  const MutexLock lock(mutex_);
  burst_ = burst_per_second;
}

LogLimiter::Decision LogLimiter::admit(int64_t now_mono_ns) {
  const MutexLock lock(mutex_);
  if (now_mono_ns - window_start_mono_ns_ >= 1'000'000'000) {
    window_start_mono_ns_ = now_mono_ns;
    used_ = 0;
  }
  if (used_ >= burst_) {
    ++suppressed_;
    return {};
  }
  ++used_;
  return {.allowed = true, .suppressed_count = std::exchange(suppressed_, 0)};
}

}  // namespace gpuperf
