#pragma once

// What a shell may offer for the word under the cursor, read off the commands themselves: it cannot
// fall behind them.

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace gpuperf::client {

struct Candidate {
  std::string text;
  std::string description;  // empty = none
};

// What the daemon has a name or number for.
enum class KnownKind { kFunction, kCategory, kProcess, kCapture, kSlowCall };

// Asked for only when a word may be one of them. `address` as on the command line, empty = not
// given.
using ListKnown = std::function<std::vector<Candidate>(KnownKind kind, const std::string& address)>;

// `words` follow the program's name; the last is the one under the cursor, perhaps empty. No
// candidate begins otherwise than it does. None = perhaps a file.
std::vector<Candidate> find_candidates(const CLI::App& root, const std::vector<std::string>& words,
                                       const ListKnown& list_known);

// The script a shell loads, for "bash", "zsh" or "fish".
std::string_view get_completion_script(std::string_view shell);

}  // namespace gpuperf::client
