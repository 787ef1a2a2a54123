#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "daemon/base/shares.h"
#include "daemon/base/thread_checker.h"
#include "daemon/model/drops.h"
#include "daemon/model/gpu_rows.h"

namespace gpuperf {

// Every kernel name once, demangled once, whatever session sent it.
//
// Thread: loop only. Bounds: `max_names` and `max_bytes` of text, an eighth of which is kept for
// root's processes; what one user's first sent, Shares bounds. When full, names that nobody holds
// any longer leave, looked for at most once between two calls of `allow_sweep`; `sweep` lets them
// leave earlier. A name that finds no room is get_other(), counted (kKernelNamesFull).
class KernelTexts {
 public:
  static constexpr size_t kMaxNames = 16'384;
  static constexpr size_t kMaxBytes = size_t{16} << 20;
  static constexpr size_t kMaxFullBytes = 4'096;  // of one; longer ones end in "…"

  explicit KernelTexts(DropCounters& drops, size_t max_names = kMaxNames,
                       size_t max_bytes = kMaxBytes)
      : max_names_(max_names),
        max_bytes_(max_bytes),
        min_bytes_(max_bytes / max_names),
        drops_(drops),
        shares_({.total = max_bytes, .kept_for_root = max_bytes / 8}) {}

  // `is_cut`: the sender had to cut it, so that it cannot be demangled. `uid`: whose process.
  KernelTextPtr get(const std::string& mangled, bool is_cut, uint32_t uid = 0);
  void allow_sweep() {
    loop_thread_.check();
    may_sweep_ = true;
  }

  // Lets go of what nobody holds any longer.
  void sweep();

  uint64_t used_bytes() const { return shares_.used(); }
  uint64_t max_bytes() const { return max_bytes_; }

  // What stands for all names without room: serial 0.
  static const KernelTextPtr& get_other();

 private:
  struct Entry {
    KernelTextPtr text;
    uint32_t uid = 0;
    size_t bytes = 0;  // of shares_
  };

  static size_t get_bytes(const std::string& mangled, const KernelText& text);
  bool find_room(Shares::Holder holder, size_t bytes);

  // Set once in the constructor.
  const size_t max_names_;
  const size_t max_bytes_;
  const size_t min_bytes_;  // counted for a name: whoever has all names has all bytes
  DropCounters& drops_;
  // Loop thread only.
  ThreadChecker loop_thread_;
  std::unordered_map<std::string, Entry> texts_;  // by mangled name
  Shares shares_;                                 // of bytes
  uint64_t next_serial_ = 1;
  bool may_sweep_ = true;
};

}  // namespace gpuperf
