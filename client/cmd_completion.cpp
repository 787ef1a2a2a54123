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
constexpr uint64_t kMostSlowCalls = 100;  // newest first

std::vector<Candidate> list_functions(Connection& connection, bool categories) {
  v1::ListFunctionsRequest request;
  request.set_sort("function");
  std::vector<Candidate> found;
  const auto rows = read_pages(connection, kListFunctions, request, kMostNames);
  if (!rows.ok()) return found;
  for (const auto& row : *rows) {
    found.push_back(categories ? Candidate{row.category(), ""}
                               : Candidate{row.function(), row.category()});
  }
  return found;
}

std::vector<Candidate> list_processes(Connection& connection) {
  std::vector<Candidate> found;
  const auto rows = read_pages(connection, kListProcesses, v1::ListProcessesRequest(), kMostNames);
  if (!rows.ok()) return found;
  for (const auto& row : *rows) {
    if (!row.exited()) found.push_back({std::to_string(row.pid()), row.comm()});
  }
  return found;
}

std::vector<Candidate> list_captures(Connection& connection) {
  std::vector<Candidate> found;
  const auto rows = read_pages(connection, kListCaptures, v1::ListCapturesRequest(), kMostNames);
  if (!rows.ok()) return found;
  for (const auto& row : *rows) {
    const std::string when = format_local_time(row.start_unix_ns());
    found.push_back({std::to_string(row.id()),
                     row.name().empty() ? when : fmt::format("{}, {}", row.name(), when)});
  }
  return found;
}

std::vector<Candidate> list_slow_calls(Connection& connection) {
  v1::ListSlowCallsRequest request;
  request.set_sort("start_unix_ns");
  std::vector<Candidate> found;
  const auto rows = read_pages(connection, kListSlowCalls, request, kMostSlowCalls);
  if (!rows.ok()) return found;
  for (const auto& row : *rows) {
    found.push_back({std::to_string(row.id()),
                     fmt::format("{} {}", row.function(), format_duration(row.duration_ns()))});
  }
  return found;
}

// Nothing when there is no daemon: a completion is no place for errors.
std::vector<Candidate> list_known(KnownKind kind, const std::string& address, const TlsFiles& tls) {
  const auto connection = Connection::open(address, tls, kPatience, nullptr);
  if (!connection.ok()) return {};
  switch (kind) {
    case KnownKind::kFunction:
    case KnownKind::kCategory:
      return list_functions(**connection, kind == KnownKind::kCategory);
    case KnownKind::kProcess:
      return list_processes(**connection);
    case KnownKind::kCapture:
      return list_captures(**connection);
    case KnownKind::kSlowCall:
      return list_slow_calls(**connection);
  }
  return {};
}

Status write_candidates(const Invocation& invocation, const CLI::App& root,
                        const std::vector<std::string>& words) {
  const ListKnown ask = [&invocation](KnownKind kind, const std::string& address) {
    return list_known(kind, address.empty() ? invocation.options.address : address,
                      invocation.options.tls);
  };
  std::string text;
  for (const Candidate& candidate : find_candidates(root, words, ask)) {
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
    app.add_subcommand(shell, fmt::format("Print the completion script for {}", shell))
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
