#include "client/terminal.h"

#include <errno.h>
#include <fmt/format.h>
#include <string.h>
#include <unistd.h>

#include <array>
#include <utility>

namespace gpuperf::client {
namespace {

constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l";
constexpr std::string_view kLeave = "\x1b[?25h\x1b[?1049l";

// What terminals send, in the normal and in the application mode of the cursor keys.
constexpr std::array<std::pair<std::string_view, KeyKind>, 6> kSequences = {
    {{"\x1b[A", KeyKind::kUp},
     {"\x1bOA", KeyKind::kUp},
     {"\x1b[B", KeyKind::kDown},
     {"\x1bOB", KeyKind::kDown},
     {"\x1b[5~", KeyKind::kPageUp},
     {"\x1b[6~", KeyKind::kPageDown}}};

// Bytes of the escape sequence that the text begins with.
size_t measure_sequence(std::string_view bytes) {
  if (bytes.size() < 2 || (bytes[1] != '[' && bytes[1] != 'O')) return 1;
  size_t end = 2;
  while (end < bytes.size() && (bytes[end] < '@' || bytes[end] > '~')) ++end;
  return std::min(end + 1, bytes.size());
}

}  // namespace

std::vector<Key> parse_keys(std::string_view bytes) {
  std::vector<Key> keys;
  while (!bytes.empty()) {
    const char first = bytes[0];
    size_t size = 1;
    if (first == '\x1b') {
      size = measure_sequence(bytes);
      if (size == 1) keys.push_back({KeyKind::kEscape});
      for (const auto& [sequence, kind] : kSequences) {
        if (bytes.substr(0, size) == sequence) keys.push_back({kind});
      }
    } else if (first == '\r' || first == '\n') {
      keys.push_back({KeyKind::kEnter});
    } else if (first == '\x7f' || first == '\b') {
      keys.push_back({KeyKind::kBackspace});
    } else if (first >= ' ') {
      keys.push_back({KeyKind::kCharacter, first});
    }
    bytes.remove_prefix(size);
  }
  return keys;
}

Result<std::unique_ptr<FullScreen>> FullScreen::open(const Output& output, int input_fd) {
  termios before = {};
  if (!output.is_terminal() || tcgetattr(input_fd, &before) != 0) return nullptr;
  termios raw = before;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  raw.c_cc[VMIN] = 0;  // a read never waits
  raw.c_cc[VTIME] = 0;
  if (tcsetattr(input_fd, TCSANOW, &raw) != 0) {
    return absl::InternalError(
        fmt::format("cannot read single keys from the terminal: {}", strerror(errno)));
  }
  std::unique_ptr<FullScreen> screen(new FullScreen(output, input_fd, before));
  RETURN_IF_ERROR(output.write(kEnter));
  return screen;
}

FullScreen::~FullScreen() {
  (void)output_.write(kLeave);  // a terminal that has gone needs nothing back
  (void)tcsetattr(input_fd_, TCSANOW, &before_);
}

std::vector<Key> FullScreen::read_keys() {
  std::array<char, 256> bytes;
  const ssize_t count = read(input_fd_, bytes.data(), bytes.size());
  if (count <= 0) {
    has_ended_ = count < 0 && errno != EINTR && errno != EAGAIN;
    return {};
  }
  return parse_keys({bytes.data(), static_cast<size_t>(count)});
}

}  // namespace gpuperf::client
