#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace gpuperf::client {

struct ProgramResult {
  int exit_code = -1;  // -1 = ended by a signal
  std::string out;     // what was left to read
  std::string err;
};

struct ProgramOptions {
  std::string program = GPUPERFCTL_PATH;
  std::map<std::string, std::string> environment;  // beside PATH, TZ=UTC and TERM
  std::string input;                               // standard input
  bool terminal = false;                           // standard output is a terminal of this size
  unsigned short terminal_columns = 0;
  unsigned short terminal_rows = 0;
  std::string output_file;  // standard output goes here instead
};

// The real program in a process of its own. Everything that could wait for ever has a limit, after
// which the program is killed and the test fails instead of hanging.
class Program {
 public:
  explicit Program(std::vector<std::string> arguments, ProgramOptions options = {});
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Output up to and including `text`; ends early, short of it, when the output ends.
  std::string read_until(const std::string& text);
  void send_signal(int number);
  // As a reader that leaves does.
  void close_output();
  // Reads to the end and waits.
  ProgramResult finish();

 private:
  bool read_more(std::string& out);

  pid_t pid_ = -1;
  int out_fd_ = -1;
  int err_fd_ = -1;
  std::string unread_;
  std::string err_;
};

ProgramResult run_program(std::vector<std::string> arguments, ProgramOptions options = {});

}  // namespace gpuperf::client
