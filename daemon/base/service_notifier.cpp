#include "daemon/base/service_notifier.h"

#include <systemd/sd-daemon.h>

#include <algorithm>

#include "daemon/base/clock.h"

namespace gpuperf {
namespace {

constexpr size_t kMaxStatusBytes = 500;  // some lines of a terminal

// At a character's begin: systemd refuses what is not UTF-8.
std::string_view cut_text(std::string_view text) {
  if (text.size() <= kMaxStatusBytes) return text;
  size_t end = kMaxStatusBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}

}  // namespace

std::optional<std::chrono::milliseconds> ServiceNotifier::find_alive_period() {
  uint64_t limit_us = 0;
  if (sd_watchdog_enabled(/*unset_environment=*/0, &limit_us) <= 0) return std::nullopt;
  const auto half = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::microseconds(limit_us / 2));
  return std::max(half, std::chrono::milliseconds(1));
}

void ServiceNotifier::tell_reloading() {
  const int64_t now_us = SystemClock().mono_ns() / 1000;
  tell("RELOADING=1\nMONOTONIC_USEC=" + std::to_string(now_us));
}

void ServiceNotifier::tell_status(std::string_view status) {
  std::string line(cut_text(status));
  for (char& c : line) {
    if (const auto byte = static_cast<unsigned char>(c); byte < ' ' || byte == 0x7f) c = ' ';
  }
  if (line == last_status_) return;
  last_status_ = std::move(line);
  tell("STATUS=" + last_status_);
}

void ServiceNotifier::tell(const std::string& message) {
  (void)sd_notify(/*unset_environment=*/0, message.c_str());  // the class comment says why
}

}  // namespace gpuperf
