#pragma once

// What a workload knows about its own calls, for tests to compare with what gpuperf saw.

#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>

namespace workload {

struct FunctionTruth {
  uint64_t calls = 0;
  std::map<int, uint64_t> errors;  // code -> count
};

using Truth = std::map<std::string, FunctionTruth>;

// Counts one call that returned `status`; 0 is no error.
inline void count_call(FunctionTruth& truth, int status) {
  truth.calls += 1;
  if (status != 0) truth.errors[status] += 1;
}

inline void merge_truth(Truth& truth, const Truth& other) {
  for (const auto& [name, function] : other) {
    truth[name].calls += function.calls;
    for (const auto& [code, count] : function.errors) truth[name].errors[code] += count;
  }
}

// {"cudaMalloc":{"calls":3,"errors":{"100":3}}}
inline std::string render_truth(const Truth& truth) {
  std::string text = "{";
  for (const auto& [name, function] : truth) {
    if (text.size() > 1) text += ",";
    text += "\"" + name + "\":{\"calls\":" + std::to_string(function.calls) + ",\"errors\":{";
    bool first = true;
    for (const auto& [code, count] : function.errors) {
      if (!first) text += ",";
      first = false;
      text += "\"" + std::to_string(code) + "\":" + std::to_string(count);
    }
    text += "}}";
  }
  return text + "}";
}

inline uint64_t now_mono_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

// Sleeps the whole time, whatever signals arrive.
inline void sleep_ns(uint64_t duration_ns) {
  timespec left{static_cast<time_t>(duration_ns / 1'000'000'000u),
                static_cast<long>(duration_ns % 1'000'000'000u)};
  while (nanosleep(&left, &left) != 0) {
  }
}

// Returns once `path` exists; an empty path returns at once.
inline void wait_for_file(const std::string& path) {
  while (!path.empty() && access(path.c_str(), F_OK) != 0) sleep_ns(1'000'000);
}

// Writes one line in a single write, so that lines of two processes never mix.
inline void print_line(const std::string& line) {
  const std::string text = line + "\n";
  if (write(STDOUT_FILENO, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    perror("write to standard output");
  }
}

}  // namespace workload
