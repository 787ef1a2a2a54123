#pragma once

#include <string_view>

#include "client/status.h"
#include "client/table.h"

namespace gpuperf::client {

// Standard output: what it can show, and writing all of a text to it.
//
// Thread: one. Does not own the descriptor.
// When the reader has gone (a closed pipe) write() answers kCancelled: the program ends quietly.
// Not here: errors; they are one line on standard error, written by main.
class Output {
 public:
  explicit Output(int fd);

  Status write(std::string_view text) const;

  int fd() const { return fd_; }
  bool is_terminal() const { return style_.terminal; }
  // Read anew at each call, because windows are resized.
  TextStyle read_style() const;
  // Lines of the terminal; 0 = unlimited.
  int read_rows() const;

 private:
  // Set once in the constructor.
  int fd_;
  TextStyle style_;
};

}  // namespace gpuperf::client
