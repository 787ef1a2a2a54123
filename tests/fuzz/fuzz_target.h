#pragma once

// How a fuzz target is written: a file of tests/fuzz/targets that defines find_fault(), and
// make_seeds() where the unit tests make good inputs by code. Its libraries stand in
// CMakeLists.txt, other good inputs in corpus/TARGET, what once was a fault in regressions/TARGET.

#include <string>
#include <string_view>
#include <vector>

namespace gpuperf::fuzz {

// Why what comes of `bytes` breaks a promise; empty = it does not. Crashes, hangs, leaks, too much
// memory and what the sanitizers see are found without it. Called any number of times, on one
// thread.
std::string find_fault(std::string_view bytes);

// Good inputs to begin with.
std::vector<std::string> make_seeds();

}  // namespace gpuperf::fuzz
