#pragma once

// A real Python that runs python_stacks/main.py: what it says of its threads' frames, and its
// runtime as found from outside.

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/unwind/python_runtime.h"

namespace gpuperf {

struct ReportedFrame {
  std::string function;
  std::string file;
  uint32_t line = 0;
  bool operator==(const ReportedFrame&) const = default;
};

struct ReportedThread {
  uint64_t ident = 0;  // pthread_self()
  std::string name;
  std::vector<ReportedFrame> frames;  // innermost first
};

// A command that runs a Python, with its environment: run by a shell.
struct PythonCommand {
  std::string name;
  std::string command;
};

// Those named in the environment's GPUPERF_PYTHONS, a line "NAME COMMAND" each, and the
// distribution's.
std::vector<PythonCommand> list_python_commands();

// The process lives until this is destroyed; its threads block in C code.
class PythonProcess {
 public:
  explicit PythonProcess(const PythonCommand& command);
  ~PythonProcess();
  PythonProcess(const PythonProcess&) = delete;
  PythonProcess& operator=(const PythonProcess&) = delete;

  // Until all threads block.
  Result<std::vector<ReportedThread>> read_report();
  // NotFound = none of its mapped files is a Python.
  Result<PythonRuntime> find_runtime() const;

  uint32_t pid() const { return static_cast<uint32_t>(pid_); }

 private:
  pid_t pid_ = -1;
  int input_ = -1;   // its standard input
  int output_ = -1;  // its standard output
};

}  // namespace gpuperf
