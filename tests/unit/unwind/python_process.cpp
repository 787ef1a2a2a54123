#include "tests/unit/unwind/python_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>

#include "daemon/base/fd.h"
#include "daemon/probe/elf/elf_file.h"

namespace gpuperf {
namespace {

constexpr int kReportTimeoutMs = 60'000;

std::string decode_hex(const std::string& text) {
  std::string bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

// What is added to the file's addresses where a part of it is mapped.
std::optional<uint64_t> find_bias(int fd, uint64_t start_address, uint64_t offset_bytes) {
  const Result<ElfFile> file = ElfFile::open(fd);
  if (!file.ok()) return std::nullopt;
  for (const LoadSegment& segment : file->segments()) {
    if (!segment.executable) continue;
    return start_address - offset_bytes - (segment.vaddr - segment.offset_bytes);
  }
  return std::nullopt;
}

}  // namespace

std::vector<PythonCommand> list_python_commands() {
  std::vector<PythonCommand> commands{{"system", "/usr/bin/python3"}};
  const char* const more = std::getenv("GPUPERF_PYTHONS");
  std::istringstream lines(more == nullptr ? "" : more);
  for (PythonCommand command; lines >> command.name && std::getline(lines, command.command);) {
    commands.push_back(command);
  }
  return commands;
}

PythonProcess::PythonProcess(const PythonCommand& command) {
  int input[2];
  int output[2];
  if (pipe2(input, O_CLOEXEC) != 0 || pipe2(output, O_CLOEXEC) != 0) {
    throw std::runtime_error("pipe2");
  }
  const std::filesystem::path here = std::filesystem::path(__FILE__).parent_path();
  const std::string line = "exec env PYTHONDONTWRITEBYTECODE=1 " + command.command + " " +
                           (here / "python_stacks/main.py").string();
  pid_ = fork();
  if (pid_ == 0) {
    dup2(input[0], STDIN_FILENO);
    dup2(output[1], STDOUT_FILENO);
    execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
    _exit(127);
  }
  close(input[0]);
  close(output[1]);
  input_ = input[1];
  output_ = output[0];
}

PythonProcess::~PythonProcess() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  close(input_);
  close(output_);
}

Result<std::vector<ReportedThread>> PythonProcess::read_report() {
  std::string text;
  while (!text.ends_with("end\n")) {
    pollfd wait{.fd = output_, .events = POLLIN};
    char bytes[65536];
    const ssize_t length =
        poll(&wait, 1, kReportTimeoutMs) == 1 ? read(output_, bytes, sizeof bytes) : -1;
    if (length <= 0) return absl::UnavailableError("no report of its threads");
    text.append(bytes, static_cast<size_t>(length));
  }
  std::vector<ReportedThread> threads;
  std::istringstream words(text);
  for (std::string word; words >> word && word != "end";) {
    if (word == "thread") {
      ReportedThread& thread = threads.emplace_back();
      words >> thread.ident >> thread.name;
    } else {
      ReportedFrame& frame = threads.back().frames.emplace_back();
      words >> frame.line >> frame.file >> frame.function;
      frame.file = decode_hex(frame.file);
      frame.function = decode_hex(frame.function);
    }
  }
  return threads;
}

Result<PythonRuntime> PythonProcess::find_runtime() const {
  const std::string folder = "/proc/" + std::to_string(pid_);
  std::ifstream maps(folder + "/maps");
  std::set<std::string> seen;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream fields(line);
    std::string range, rights, offset, device, inode, path;
    fields >> range >> rights >> offset >> device >> inode >> path;
    if (rights.find('x') == std::string::npos || !path.starts_with("/")) continue;
    if (!seen.insert(path).second) continue;
    const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) continue;
    ASSIGN_OR_RETURN(const std::optional<PythonFile> python, find_python(fd.get()));
    const auto bias =
        find_bias(fd.get(), std::stoull(range, nullptr, 16), std::stoull(offset, nullptr, 16));
    if (python && bias) return load_python_runtime(*python, *bias, make_direct_reader(pid()));
  }
  return absl::NotFoundError("no Python among its mapped files");
}

}  // namespace gpuperf
