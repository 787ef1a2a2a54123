#include "daemon/base/journal.h"

#define SD_JOURNAL_SUPPRESS_LOCATION  // the place in our code is always the same one
#include <sys/stat.h>
#include <sys/uio.h>
#include <systemd/sd-journal.h>

#include <cctype>

namespace gpuperf {
namespace {

int get_priority(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::trace:
    case spdlog::level::debug:
      return 7;
    case spdlog::level::info:
      return 6;
    case spdlog::level::warn:
      return 4;
    case spdlog::level::err:
      return 3;
    case spdlog::level::critical:
    case spdlog::level::off:
    case spdlog::level::n_levels:
      return 2;
  }
  return 2;
}

// "share_ratio" -> "GPUPERF_SHARE_RATIO". Keys are ours: letters, digits and underscores.
std::string make_name(std::string_view key) {
  std::string name = "GPUPERF_";
  for (const char c : key) name += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

}  // namespace

bool is_journal_stream(int fd, const char* journal_stream) {
  struct stat found {};
  if (journal_stream == nullptr || fstat(fd, &found) != 0) return false;
  return fmt::format("{}:{}", found.st_dev, found.st_ino) == journal_stream;
}

std::vector<std::string> make_journal_entry(spdlog::level::level_enum level, std::string_view line,
                                            LogEvent event,
                                            std::initializer_list<LogField> fields) {
  std::vector<std::string> entry = {fmt::format("MESSAGE={}", line),
                                    fmt::format("PRIORITY={}", get_priority(level)),
                                    "SYSLOG_IDENTIFIER=gpuperfd"};
  if (!event.id.empty()) entry.push_back(fmt::format("MESSAGE_ID={}", event.id));
  for (const LogField& field : fields) {
    entry.push_back(fmt::format("{}={}", make_name(field.key), field.value));
  }
  return entry;
}

bool send_to_journal(const std::vector<std::string>& entry) {
  std::vector<iovec> parts;
  parts.reserve(entry.size());
  for (const std::string& field : entry) {
    parts.push_back({.iov_base = const_cast<char*>(field.data()), .iov_len = field.size()});
  }
  return sd_journal_sendv(parts.data(), static_cast<int>(parts.size())) == 0;
}

}  // namespace gpuperf
