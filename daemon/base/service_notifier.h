#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace gpuperf {

// Tells systemd what the daemon does (sd_notify(3), Type=notify); nothing where NOTIFY_SOCKET is
// not set.
//
// Thread: one. Each call is one datagram that does not wait for an answer. What cannot be told is
// not told: a service manager that hears nothing acts by itself, and says so.
class ServiceNotifier {
 public:
  // How often tell_alive() is awaited: half of what WATCHDOG_USEC allows, so that one that is late
  // does no harm. Empty = nobody watches.
  static std::optional<std::chrono::milliseconds> find_alive_period();

  void tell_ready() { tell("READY=1"); }  // started, or done with a reload
  void tell_reloading();
  void tell_stopping() { tell("STOPPING=1"); }
  void tell_alive() { tell("WATCHDOG=1"); }
  // One line for `systemctl status`; told when it differs from the last one. Control characters
  // become blanks, and what is beyond 500 bytes is cut off.
  void tell_status(std::string_view status);

 private:
  static void tell(const std::string& message);

  std::string last_status_;
};

}  // namespace gpuperf
