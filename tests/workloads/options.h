#pragma once

// Command-line options of the workloads: `--name VALUE` pairs and `--name` flags, no dependency.

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>

namespace workload {

class Options {
 public:
  // Ends the program with exit code 2 on anything not named in `defaults`. An option whose default
  // is "no" is a flag.
  Options(int argc, char** argv, std::map<std::string, std::string> defaults)
      : program_(argv[0]), values_(std::move(defaults)) {
    for (int i = 1; i < argc; ++i) {
      const std::string name = argv[i];
      const auto found = values_.find(name);
      if (found == values_.end()) fail(name + " is not an option");
      if (found->second == "no" || found->second == "yes") {
        found->second = "yes";
      } else if (++i < argc) {
        found->second = argv[i];
      } else {
        fail(name + " needs a value");
      }
    }
  }

  bool is_set(const std::string& name) const { return values_.at(name) == "yes"; }
  const std::string& get_text(const std::string& name) const { return values_.at(name); }
  uint64_t get_count(const std::string& name) const {
    const std::string& text = values_.at(name);
    char* end = nullptr;
    errno = 0;
    const uint64_t value = strtoull(text.c_str(), &end, 10);
    if (text.empty() || text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0) {
      fail(name + " " + text + ": not a whole number");
    }
    return value;
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    fprintf(stderr, "%s: %s\noptions:", program_.c_str(), message.c_str());
    for (const auto& [name, value] : values_) fprintf(stderr, " %s", name.c_str());
    fprintf(stderr, "\n");
    exit(2);
  }

  std::string program_;
  std::map<std::string, std::string> values_;
};

}  // namespace workload
