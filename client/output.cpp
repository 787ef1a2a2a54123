#include "client/output.h"

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

struct winsize read_window(int fd) {
  struct winsize window = {};
  if (ioctl(fd, TIOCGWINSZ, &window) != 0) return {};
  return window;
}

}  // namespace

Output::Output(int fd) : fd_(fd) {
  style_.terminal = isatty(fd) == 1;
  style_.colour = style_.terminal && wants_colour();
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
