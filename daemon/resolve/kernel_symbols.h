#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "daemon/model/snapshot.h"
#include "daemon/resolve/code_address.h"

namespace gpuperf {

// Names the kernel's code at addresses, modules included.
//
// Thread: one at a time. Reads /proc/kallsyms when first asked (some 50 ms) and again when an
// address lies in no function known, at most once a minute: modules come. Memory: 16 bytes and the
// name for each function, some 6 MB. Where the kernel hides its addresses
// (kernel.kptr_restrict), frames hold the address alone.
class KernelSymbols {
 public:
  explicit KernelSymbols(std::string path = "/proc/kallsyms") : path_(std::move(path)) {}

  // One frame for each of `addresses`. `module` is "[kernel]", or the module as "[nvidia]".
  std::vector<StackFrame> find_frames(std::span<const CodeAddress> addresses, int64_t now_mono_ns);

 private:
  struct Entry {
    uint64_t address = 0;
    uint32_t name_offset = 0;  // in names_
    uint16_t name_length = 0;
    uint16_t module = 0;  // in modules_
  };

  void read();
  StackFrame find_frame(const CodeAddress& code) const;

  const std::string path_;
  std::vector<Entry> entries_;  // by address
  std::string names_;
  std::vector<std::string> modules_;
  int64_t read_mono_ns_ = 0;  // 0 = never
};

}  // namespace gpuperf
