#pragma once

// What the cases of no_harm share: the functions under test in one language, and the account of the
// calls made.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <span>
#include <string>

#include "harm_target.h"
#include "truth.h"

namespace workload {

struct Target {
  uint64_t (*leaf)(uint64_t index) = nullptr;
  uint64_t (*call)(harm_callback callback, void* argument) = nullptr;
  uint64_t (*outer)(harm_callback callback, void* argument) = nullptr;
  std::string prefix;  // of the functions' names in the account: "harm_"
};

class Case {
 public:
  Case(Target target, uint64_t times, uint64_t threads, std::string library)
      : target(std::move(target)), times(times), threads(threads), library(std::move(library)) {}

  const Target target;
  const uint64_t times;
  const uint64_t threads;
  const std::string library;  // path to open, of the cases that open one

  // Counts calls made by this program and its children alike.
  void count(const std::string& function, uint64_t calls) {
    truth_[target.prefix + function].calls += calls;
  }
  // Counts calls that never return, which are calls too.
  void count_abandoned(const std::string& function, uint64_t calls) {
    count(function, calls);
    abandoned_[target.prefix + function] += calls;
  }
  void call_leaf() {
    expect(target.leaf(41) == 42, "leaf(41) is 42");
    count("leaf", 1);
  }

  // Ends the program with exit code 1 when a check of its own fails.
  static void expect(bool holds, const char* what) {
    if (holds) return;
    fprintf(stderr, "no_harm: not so: %s\n", what);
    exit(1);
  }

  const Truth& truth() const { return truth_; }
  const std::map<std::string, uint64_t>& abandoned() const { return abandoned_; }

 private:
  Truth truth_;
  std::map<std::string, uint64_t> abandoned_;
};

struct CaseRow {
  const char* name;
  bool c;    // runs with the C functions
  bool cpp;  // runs with the C++ functions
  void (*run)(Case& the_case);
};
std::span<const CaseRow> exit_cases();   // no_harm_exits.cpp
std::span<const CaseRow> stack_cases();  // no_harm_stacks.cpp
std::span<const CaseRow> file_cases();   // no_harm_files.cpp

}  // namespace workload
