#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bpf/records.h"
#include "daemon/unwind/process_memory.h"

namespace gpuperf {

// A Python string in a process's memory as UTF-8; U+FFFD stands for what is no character (halves of
// surrogate pairs, by which Python keeps bytes of a path that are no UTF-8). nullopt = cannot be
// read, longer than `max_letters`, or not in the form of a string that Python made itself (one
// object, letters behind its head; a subclass of str has another).
std::optional<std::string> read_python_text(const gpuperf_python_layout& layout, uint64_t address,
                                            uint64_t max_letters, const ReadMemory& read);

}  // namespace gpuperf
