#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <string>

#include "daemon/base/fd.h"
#include "daemon/config/config.h"

namespace gpuperf {
namespace {

std::string describe_file_type(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "no regular file";
}

// In the order of their names. Hidden files are none: editors and ConfigMaps leave some.
Result<std::vector<std::string>> list_drop_ins(const std::filesystem::path& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::filesystem::path& path = entry->path();
    if (path.extension() != ".json" || path.filename().string().starts_with('.')) continue;
    paths.push_back(path.string());
  }
  if (error && error != std::errc::no_such_file_or_directory)
    return errno_status(error.value(), folder.string() + ": read drop-in configurations");
  if (paths.size() > kConfigMaxDropIns) {
    return absl::InvalidArgumentError(folder.string() + ": has " + std::to_string(paths.size()) +
                                      " files, at most " + std::to_string(kConfigMaxDropIns) +
                                      " are read; merge some of them");
  }
  std::ranges::sort(paths);
  return paths;
}

}  // namespace

Result<std::string> read_config_file(const std::string& path) {
  const std::string what = path + ": read configuration";
  // O_NONBLOCK: opening a pipe without a writer must not wait; regular files do not care.
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.valid()) return errno_status(errno, what);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return errno_status(errno, what);
  if (!S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(what + ": is " + describe_file_type(status.st_mode) +
                                      ", must be a regular file");
  }
  std::string text;
  std::array<char, 65536> chunk;
  for (;;) {
    const ssize_t bytes = ::read(file.get(), chunk.data(), chunk.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return errno_status(errno, what);
    if (bytes == 0) return text;
    text.append(chunk.data(), static_cast<size_t>(bytes));
    // A growing file, or one whose size the kernel makes up (/proc), is stopped here.
    if (text.size() > kConfigMaxBytes) {
      return absl::InvalidArgumentError(what + ": is larger than " +
                                        std::to_string(kConfigMaxBytes) +
                                        " bytes; keep only the functions you want to see");
    }
  }
}

Result<std::vector<ConfigFile>> read_config_files(const ConfigPlace& place) {
  std::vector<std::string> paths;
  if (!place.may_be_missing || ::access(place.path.c_str(), F_OK) == 0) paths.push_back(place.path);
  ASSIGN_OR_RETURN(const std::vector<std::string> drop_ins,
                   list_drop_ins(std::filesystem::path(place.path).parent_path() / "conf.d"));
  paths.insert(paths.end(), drop_ins.begin(), drop_ins.end());
  std::vector<ConfigFile> files;
  for (const std::string& each : paths) {
    ASSIGN_OR_RETURN(std::string text, read_config_file(each));
    files.push_back({each, std::move(text)});
  }
  return files;
}

std::string render_config_error(std::string_view file, const ConfigError& error) {
  std::string line(error.file.empty() ? file : error.file);
  line.append(": ").append(error.path).append(": ").append(error.message);
  if (!error.hint.empty()) line.append("; hint: ").append(error.hint);
  return line;
}

std::string render_config_errors(std::string_view file, std::span<const ConfigError> errors) {
  std::string lines;
  for (const ConfigError& error : errors) lines += render_config_error(file, error) + "\n";
  return lines;
}

}  // namespace gpuperf
