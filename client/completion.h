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

// Names the daemon knows, asked for only when a word may be one of them.
struct KnownNames {
  // Each (category, function) that was called; `address` as on the command line, empty = not given.
  std::function<std::vector<std::pair<std::string, std::string>>(const std::string& address)>
      list_functions;
};

// `words` follow the program's name; the last is the one under the cursor, perhaps empty. No
// candidate begins otherwise than it does. None = perhaps a file.
std::vector<Candidate> find_candidates(const CLI::App& root, const std::vector<std::string>& words,
                                       const KnownNames& names);

// The script a shell loads, for "bash", "zsh" or "fish".
std::string_view get_completion_script(std::string_view shell);

}  // namespace gpuperf::client
