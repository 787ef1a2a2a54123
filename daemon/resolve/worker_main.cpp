#include "daemon/resolve/worker_main.h"

#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "daemon/attach/attach_process.h"
#include "daemon/base/worker_side.h"
#include "daemon/resolve/dwarf_process.h"
#include "daemon/unwind/memory_process.h"

namespace gpuperf {
namespace {

// As DwarfWorker, ProcessReader and ProcessAttacher write them.
std::string get_text(std::span<char* const> words, size_t index) {
  return index < words.size() ? words[index] : "";
}

uint64_t get_number(std::span<char* const> words, size_t index) {
  return index < words.size() ? std::strtoull(words[index], nullptr, 10) : 0;
}

void run_role(std::string_view role, pid_t parent, std::span<char* const> arguments) {
  if (role == "dwarf") {
    run_dwarf_process({.parent = parent,
                       .memory_bytes = get_number(arguments, 0),
                       .idle = std::chrono::milliseconds(get_number(arguments, 1))});
  }
  if (role == "memory") run_memory_process(parent, get_text(arguments, 0));
  if (role == "attach") run_attach_process(parent, get_text(arguments, 0));
  if (role == "files") run_mapped_files_process(parent, get_text(arguments, 0));
}

}  // namespace

void run_if_worker(std::span<char* const> words) {
  constexpr size_t kRole = 2, kParent = 3;
  if (words.size() <= kParent || words[1] != kWorkerArgument) return;
  run_role(words[kRole], static_cast<pid_t>(get_number(words, kParent)),
           words.subspan(kParent + 1));
  ::_exit(2);  // no such role
}

}  // namespace gpuperf
