#pragma once

// A tree like /proc with processes we invent, and the files they map.

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/unit/files.h"

namespace gpuperf {

constexpr uint64_t kBase = 0x7f0000000000;  // where files are mapped

class FakeProc {
 public:
  FakeProc() { std::filesystem::create_directories(proc()); }

  std::string proc() const { return base_ / "proc"; }
  // Where a process's own "/" lies.
  std::filesystem::path root(uint32_t pid) const { return base_ / ("root" + std::to_string(pid)); }

  // `executable` as the process sees it; the process starts at tick `start_ticks`.
  void add_process(uint32_t pid, const std::string& executable, uint64_t start_ticks = 1) {
    std::filesystem::create_directories(directory(pid) / "map_files");
    std::filesystem::create_directories(root(pid));
    std::filesystem::create_directory_symlink(root(pid), directory(pid) / "root");
    std::filesystem::create_symlink(executable, directory(pid) / "exe");
    write(pid, "maps", "");
    write_status(pid, ::geteuid());
    std::string stat = std::to_string(pid) + " (a) b c) S";
    for (int field = 4; field <= 21; ++field) stat += " 0";
    write(pid, "stat", stat + " " + std::to_string(start_ticks) + " 0 0\n");
  }

  // A process of that user and his group, with another pid in a pid namespace of its own where
  // there is one.
  void write_status(uint32_t pid, uint32_t uid, uint32_t inner_pid = 0) {
    const std::string id = "\t" + std::to_string(uid);
    std::string pids = "\t" + std::to_string(pid);
    if (inner_pid != 0) pids += "\t" + std::to_string(inner_pid);
    write(pid, "status",
          "Name:\ta\nUid:" + id + id + id + id + "\nGid:" + id + id + id + id +
              "\nGroups:\t\nNSpid:" + pids + "\n");
  }

  void remove_process(uint32_t pid) { std::filesystem::remove_all(directory(pid)); }

  void write(uint32_t pid, const std::string& name, const std::string& text) {
    std::ofstream(directory(pid) / name, std::ios::binary) << text;
  }

  // Makes a file the process sees as `path`; returns where it really lies.
  std::filesystem::path add_file(uint32_t pid, const std::string& path,
                                 const std::string& content) {
    const std::filesystem::path real = root(pid) / path.substr(1);
    std::filesystem::create_directories(real.parent_path());
    std::ofstream(real, std::ios::binary) << content;
    return real;
  }

  // Appends an executable mapping of `real`, shown as `shown`, to the maps; returns its range.
  std::string map(uint32_t pid, const std::filesystem::path& real, const std::string& shown,
                  uint64_t start = 0x7f0000000000, uint64_t length = 0x1000, uint64_t offset = 0) {
    struct stat found {};
    if (::stat(real.c_str(), &found) != 0) throw std::runtime_error("stat " + real.string());
    char range[64];
    std::snprintf(range, sizeof range, "%lx-%lx", start, start + length);
    char line[128];
    std::snprintf(line, sizeof line, "%s r-xp %08lx %02x:%02x %lu                    ", range,
                  offset, major(found.st_dev), minor(found.st_dev), found.st_ino);
    std::ofstream(directory(pid) / "maps", std::ios::app) << line << shown << "\n";
    return range;
  }

  std::filesystem::path directory(uint32_t pid) const {
    return std::filesystem::path(proc()) / std::to_string(pid);
  }

 private:
  TempFolder base_;
};

}  // namespace gpuperf
