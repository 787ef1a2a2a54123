#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/model/function.h"
#include "daemon/model/stack.h"

namespace gpuperf {

// A child process that maps and unmaps code when it is told to. Each call returns when it is done;
// the child lives until this is destroyed.
class CommandedChild {
 public:
  CommandedChild();
  ~CommandedChild();
  CommandedChild(const CommandedChild&) = delete;
  CommandedChild& operator=(const CommandedChild&) = delete;

  uint32_t pid() const { return static_cast<uint32_t>(pid_); }
  ProcessKey key() const;

  // Address of a function of the library.
  uint64_t open_library(const std::string& path, const std::string& function);
  void close_library();
  // Of kMappedBytes, which may be run.
  static constexpr uint64_t kMappedBytes = 65'536;
  uint64_t map_memory();
  // The beginning of a file, one page; address 0 = anywhere.
  uint64_t map_file(const std::string& path, uint64_t address = 0);
  void unmap(uint64_t address);
  // Runs another program, which waits for its input.
  void exec();
  // It has gone for good then.
  void kill();

  // What a thread blocked in a call says of its own stack.
  struct Blocked {
    LiveStack live;
    std::vector<uint64_t> callers;  // by backtrace(), the caller of that call first
  };
  // From then on the child takes no command.
  Blocked block();

 private:
  struct Command {
    char what = 0;
    uint64_t address = 0;
    char text[2][256] = {};
  };
  [[noreturn]] void obey();
  uint64_t send(const Command& command);

  pid_t pid_ = -1;
  int input_[2] = {-1, -1};          // the child's standard input
  int output_[2] = {-1, -1};         // the child's standard output
  struct Report* report_ = nullptr;  // shared with the child
};

}  // namespace gpuperf
