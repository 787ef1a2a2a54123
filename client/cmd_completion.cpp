// gpuperfctl completion bash|zsh|fish: the scripts that shells load. They ask this program, with
// the hidden subcommand `words`, what may come next.

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/completion.h"
#include "client/pages.h"
#include "client/view.h"

namespace gpuperf::client {
namespace {

constexpr std::chrono::seconds kPatience{1};  // somebody has pressed Tab and waits
constexpr uint64_t kMostNames = 1000;

// Nothing when there is no daemon: a completion is no place for errors.
std::vector<std::pair<std::string, std::string>> list_functions(const std::string& address,
                                                                const TlsFiles& tls) {
  const auto connection = Connection::open(address, tls, kPatience, nullptr);
  if (!connection.ok()) return {};
  v1::ListFunctionsRequest request;
  request.set_sort("function");
  const auto rows = read_pages(**connection, kListFunctions, request, kMostNames);
  std::vector<std::pair<std::string, std::string>> functions;
  if (!rows.ok()) return functions;
  for (const auto& row : *rows) functions.emplace_back(row.category(), row.function());
  return functions;
}

Status write_candidates(const Invocation& invocation, const CLI::App& root,
                        const std::vector<std::string>& words) {
  const KnownNames names = {.list_functions = [&invocation](const std::string& address) {
    return list_functions(address.empty() ? invocation.options.address : address,
                          invocation.options.tls);
  }};
  std::string text;
  for (const Candidate& candidate : find_candidates(root, words, names)) {
    text += make_printable(candidate.text);
    if (!candidate.description.empty()) text += "\t" + make_printable(candidate.description);
    text += "\n";
  }
  return invocation.output.write(text);
}

}  // namespace

void declare_completion(CLI::App& app, Invocation& invocation) {
  app.require_subcommand(1);
  for (const char* shell : {"bash", "zsh", "fish"}) {
    app.add_subcommand(shell, fmt::format("The script for {}", shell))
        ->callback([&invocation, shell] {
          invocation.run = [&invocation, shell] {
            return invocation.output.write(get_completion_script(shell));
          };
        });
  }
  CLI::App& words = *app.add_subcommand("words", "What may stand in place of the last word");
  words.group("");  // for the scripts, not for people
  const auto typed = std::make_shared<std::vector<std::string>>();
  words.add_option("WORD", *typed, "What was typed, behind --");
  words.callback([&app, &invocation, typed] {
    invocation.run = [&app, &invocation, typed] {
      return write_candidates(invocation, *app.get_parent(), *typed);
    };
  });
}

}  // namespace gpuperf::client
