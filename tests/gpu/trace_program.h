#pragma once

// What the programs whose call paths are planted share: orders by a pipe, the truth of their
// launches.

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <time.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>

#include "tests/gpu/launch_truth.h"

inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::_Exit(9);
}

inline uint64_t read_mono_ns() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// The truth library that LAUNCH_TRUTH names; without it everything here does nothing.
class Truth {
 public:
  // Call on the main thread, after CUDA is up.
  void start() {
    const char* path = std::getenv("LAUNCH_TRUTH");
    if (path == nullptr) return;
    void* library = dlopen(path, RTLD_NOW);
    const char* error = dlerror();
    if (library != nullptr) {
      mark_ = reinterpret_cast<decltype(&truth_mark)>(dlsym(library, "truth_mark"));
      dump_ = reinterpret_cast<decltype(&truth_dump)>(dlsym(library, "truth_dump"));
      error =
          reinterpret_cast<decltype(&truth_start)>(dlsym(library, "truth_start"))("libcupti.so.13");
    }
    if (error == nullptr) return;
    std::fprintf(stderr, "launch truth: %s\n", error);
    std::_Exit(8);
  }
  void mark(int marker) const {
    if (mark_ != nullptr) mark_(marker);
  }
  long dump(const std::string& path, uint64_t start_mono_ns) const {
    return dump_ != nullptr ? dump_(path.c_str(), start_mono_ns) : 0;
  }

 private:
  decltype(&truth_mark) mark_ = nullptr;
  decltype(&truth_dump) dump_ = nullptr;
};

// Says "ready", then does what each line of the pipe asks for and answers with one line of JSON.
using Orders = std::map<std::string, std::function<std::string(std::istream&)>>;
inline int serve(const char* in_path, const char* out_path, const Orders& orders) {
  std::ifstream in(in_path);
  FILE* out = std::fopen(out_path, "w");
  if (!in || out == nullptr) return 8;
  std::fprintf(out, "ready\n");
  std::fflush(out);
  for (std::string text; std::getline(in, text);) {
    std::istringstream line(text);
    std::string word;
    line >> word;
    const auto order = orders.find(word);
    std::fprintf(out, "%s\n", order != orders.end() ? order->second(line).c_str() : "{}");
    std::fflush(out);
  }
  std::fclose(out);
  return 0;
}
