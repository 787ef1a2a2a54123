#include "daemon/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>

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

void log_info(std::string_view event, std::initializer_list<LogField> fields) {
  spdlog::info("{}", format_log_line(event, fields));
}
void log_warn(std::string_view event, std::initializer_list<LogField> fields) {
  spdlog::warn("{}", format_log_line(event, fields));
}
void log_error(std::string_view event, std::initializer_list<LogField> fields) {
  spdlog::error("{}", format_log_line(event, fields));
}

void LogLimiter::set_burst(uint32_t burst_per_second) {
  const std::lock_guard lock(mutex_);
  burst_ = burst_per_second;
}

LogLimiter::Decision LogLimiter::admit(int64_t now_mono_ns) {
  const std::lock_guard lock(mutex_);
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
