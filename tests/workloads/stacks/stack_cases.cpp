// Calls stack_target from stacks that it knows: see walk.h for what it prints. The cases are those
// of the tables below; the ways to compile and link it are in CMakeLists.txt.

#include <link.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "tests/workloads/options.h"
#include "tests/workloads/truth.h"
#include "walk.h"

using namespace workload;

namespace {

const CaseRow& find_case(const std::string& name) {
#ifdef GPUPERF_STATIC_PROGRAM
  const std::span<const CaseRow> tables[] = {path_cases(), sharing_cases(), signal_cases(),
                                             process_cases(), code_cases()};
#else
  const std::span<const CaseRow> tables[] = {path_cases(),    sharing_cases(), signal_cases(),
                                             process_cases(), code_cases(),    plugin_cases()};
#endif
  for (const auto& table : tables) {
    for (const CaseRow& row : table) {
      if (name == row.name) return row;
    }
  }
  fprintf(stderr, "stack_cases: no case is named %s\n", name.c_str());
  exit(2);
}

void note_program() {
  char path[4096] = "";
  if (readlink("/proc/self/exe", path, sizeof path - 1) < 0) perror("/proc/self/exe");
  uintptr_t bias = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* result) {
        *static_cast<uintptr_t*>(result) = info->dlpi_addr;
        return 1;  // the first is the program
      },
      &bias);
  loaded_modules().push_back({.path = path, .bias = bias, .symbols = path});
}

// Calls without a stack that counts, so that a test sees when its reader is there.
void warm_up_until(const std::string& path) {
  while (!path.empty() && access(path.c_str(), F_OK) != 0) {
    (void)stack_target(0);
    sleep_ns(10'000'000);
  }
}

std::vector<std::string> split_words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options(argc, argv,
                        {{"--case", "ordinary"},
                         {"--samples", "100"},  // the last one's number
                         {"--first-sample", "1"},
                         {"--pause-us", "2500"},  // before each sample
                         {"--target-us", "50"},   // how long stack_target takes
                         {"--seed", "1"},
                         {"--threads", "8"},           // of the case with threads
                         {"--argument", ""},           // of the case: words
                         {"--wait-for-file", ""},      // warm-up calls until it exists
                         {"--reported-file", ""},      // plugin: has the last sample reported
                         {"--linger-for-file", ""}});  // exit once it exists
  Request request{.last_sample = options.get_count("--samples"),
                  .pause_ns = options.get_count("--pause-us") * 1000,
                  .target_ns = options.get_count("--target-us") * 1000,
                  .seed = options.get_count("--seed"),
                  .threads = options.get_count("--threads"),
                  .arguments = split_words(options.get_text("--argument")),
                  .linger_path = options.get_text("--linger-for-file"),
                  .reported_path = options.get_text("--reported-file"),
                  .next_sample = options.get_count("--first-sample")};
  const CaseRow& row = find_case(options.get_text("--case"));
  set_stack_target_ns(request.target_ns);
  note_program();
  warm_up_until(options.get_text("--wait-for-file"));

  Walk walk;
  const Frame frame(&walk, __func__);
  note_start(&walk);
  row.run(&walk, request);

  wait_for_file(request.linger_path);
  return 0;
}
