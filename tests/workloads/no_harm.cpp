// Leaves probed functions in every way that has been seen to kill a workload or to lose calls, many
// times over, and checks itself that it computes what it should. Prints one JSON line; a call that
// never returns is counted under "abandoned" too:
//   {"program":"no_harm","case":"throw","pid":71,"calls":{"cpp_call":{"calls":50,"errors":{}},...},
//    "abandoned":{"cpp_call":50}}
// Calls of children it forks are part of its account. Exit code 1: a check failed.

#include <unistd.h>

#include <string>
#include <vector>

#include "cpp_target.h"
#include "no_harm.h"
#include "options.h"

using namespace workload;

namespace {

const CaseRow* find_case(const std::string& name) {
  for (const auto rows : {exit_cases(), stack_cases(), file_cases()}) {
    for (const CaseRow& row : rows) {
      if (name == row.name) return &row;
    }
  }
  return nullptr;
}

int list_cases() {
  for (const auto rows : {exit_cases(), stack_cases(), file_cases()}) {
    for (const CaseRow& row : rows) {
      if (row.c) print_line(std::string(row.name) + " c");
      if (row.cpp) print_line(std::string(row.name) + " cpp");
    }
  }
  return 0;
}

std::string render_counts(const std::map<std::string, uint64_t>& counts) {
  std::string text = "{";
  for (const auto& [name, count] : counts) {
    if (text.size() > 1) text += ",";
    text += "\"" + name + "\":" + std::to_string(count);
  }
  return text + "}";
}

}  // namespace

int main(int argc, char** argv) {
  const Options options(argc, argv,
                        {{"--list", "no"},  // the cases, with the languages each runs in
                         {"--case", ""},
                         {"--language", "c"},
                         {"--times", "50"},
                         {"--threads", "500"},
                         {"--library", ""},
                         {"--wait-for-file", ""},      // begin once it exists
                         {"--linger-for-file", ""}});  // exit once it exists
  if (options.is_set("--list")) return list_cases();
  const CaseRow* const row = find_case(options.get_text("--case"));
  if (row == nullptr) {
    fprintf(stderr, "no_harm: no case \"%s\"; --list names them\n",
            options.get_text("--case").c_str());
    return 2;
  }
  const bool cpp = options.get_text("--language") == "cpp";
  const Target target = cpp ? Target{demo::leaf, demo::call, demo::outer, "cpp_"}
                            : Target{harm_leaf, harm_call, harm_outer, "harm_"};
  Case the_case(target, options.get_count("--times"), options.get_count("--threads"),
                options.get_text("--library"));
  wait_for_file(options.get_text("--wait-for-file"));

  row->run(the_case);
  // Whatever happened, later calls go on as ever.
  for (int i = 0; i < 10; ++i) the_case.call_leaf();

  print_line("{\"program\":\"no_harm\",\"case\":\"" + std::string(row->name) + "\",\"pid\":" +
             std::to_string(getpid()) + ",\"calls\":" + render_truth(the_case.truth()) +
             ",\"abandoned\":" + render_counts(the_case.abandoned()) + "}");
  wait_for_file(options.get_text("--linger-for-file"));
  return 0;
}
