#pragma once

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/model/capture.h"
#include "daemon/view/call_path.h"

namespace gpuperf {

// Which frame of a path says best where in a program it is.
//
// Thread: one. Borrows the capture and the table, which has no lines.
class Places {
 public:
  Places(const Capture& capture, const PathTable& table);

  // The innermost Python function of the program itself; else of a framework; else machine code
  // that is neither of the C library nor of CUDA's. kNoIndex = the path has no such frame.
  uint32_t find_place(uint32_t path);
  // Whether it leads through a loader of training data.
  bool is_data_loader(uint32_t path) const;

 private:
  const PathTable& table_;
  absl::flat_hash_map<std::string, const StackFrame*> frames_;
  std::vector<uint32_t> places_;  // by path; kNoIndex - 1 = not looked for
};

// Whether a thread that is blocked on a futex in this stack waits for the lock of the Python
// interpreter.
bool waits_for_gil(const Capture& capture, uint32_t stack);

}  // namespace gpuperf
