#include "client/output.h"

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <errno.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <string>

namespace gpuperf::client {
namespace {

bool wants_colour() {
  const char* no_colour = getenv("NO_COLOR");
  const char* term = getenv("TERM");
  const bool refused = no_colour != nullptr && *no_colour != '\0';
  return !refused && (term == nullptr || std::string_view(term) != "dumb");
}

// As the locale says, by the order in which C libraries look for it.
bool expects_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string locale = absl::AsciiStrToLower(value);
    return absl::StrContains(locale, "utf-8") || absl::StrContains(locale, "utf8");
  }
  return false;
}

struct winsize read_window(int fd) {
  struct winsize window = {};
  if (ioctl(fd, TIOCGWINSZ, &window) != 0) return {};
  return window;
}

}  // namespace

Output::Output(int fd) : fd_(fd) {
  style_.terminal = isatty(fd) == 1;
  style_.colour = style_.terminal && wants_colour();
  style_.utf8 = style_.terminal && expects_utf8();
}

Status Output::write(std::string_view text) const {
  while (!text.empty()) {
    const ssize_t written = ::write(fd_, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EPIPE) {
      return absl::CancelledError("standard output was closed");
    } else if (errno != EINTR) {
      return absl::InternalError(fmt::format(
          "cannot write to standard output: {}; the answer is incomplete", strerror(errno)));
    }
  }
  return absl::OkStatus();
}

TextStyle Output::read_style() const {
  TextStyle style = style_;
  if (style.terminal) style.columns = read_window(fd_).ws_col;
  return style;
}

int Output::read_rows() const { return style_.terminal ? read_window(fd_).ws_row : 0; }

}  // namespace gpuperf::client
