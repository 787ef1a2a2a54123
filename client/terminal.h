#pragma once

#include <termios.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "client/output.h"
#include "client/status.h"

namespace gpuperf::client {

enum class KeyKind { kCharacter, kUp, kDown, kPageUp, kPageDown, kEnter, kEscape, kBackspace };

struct Key {
  KeyKind kind = KeyKind::kCharacter;
  char character = '\0';
  bool operator==(const Key&) const = default;
};

// The keys behind bytes that a terminal sent at once; what is none of them is left out.
std::vector<Key> parse_keys(std::string_view bytes);

// The whole of a terminal, until the end of its life: the alternate screen, which leaves what was
// there alone, without a cursor; keys come one by one and are not shown. Ctrl-C stays a signal.
//
// Thread: one. Borrows the output. Does not own the descriptors.
class FullScreen {
 public:
  // Null where `input_fd` or the output is no terminal.
  static Result<std::unique_ptr<FullScreen>> open(const Output& output, int input_fd);
  ~FullScreen();
  FullScreen(const FullScreen&) = delete;
  FullScreen& operator=(const FullScreen&) = delete;

  // The keys pressed since the last call. Empty at the end of the input, too.
  std::vector<Key> read_keys();
  // Whether the terminal has gone.
  bool has_ended() const { return has_ended_; }

 private:
  FullScreen(const Output& output, int input_fd, const termios& before)
      : output_(output), input_fd_(input_fd), before_(before) {}

  // Set once in the constructor.
  const Output& output_;
  const int input_fd_;
  const termios before_;
  bool has_ended_ = false;
};

}  // namespace gpuperf::client
