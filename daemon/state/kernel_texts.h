#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "daemon/base/thread_checker.h"
#include "daemon/model/drops.h"
#include "daemon/model/gpu_rows.h"

namespace gpuperf {

// A demangled kernel name as tables and labels show it: without return type, parameters and
// namespaces, also inside template arguments: "void at::native::reduce<512, at::Sum<float> >(int)"
// is "reduce<512, Sum<float>>". At most kMaxBriefBytes, cut at the end of a character.
std::string shorten_kernel_name(std::string_view demangled);
inline constexpr size_t kMaxBriefBytes = 256;

// Every kernel name once, demangled once, whatever session sent it.
//
// Thread: loop only. Bounds: `max_names` and `max_bytes` of text; when full, names that nobody
// holds any longer leave, looked for at most once between two calls of `allow_sweep`. A name that
// finds no room is get_other(), counted (kKernelNamesFull).
class KernelTexts {
 public:
  static constexpr size_t kMaxNames = 16'384;
  static constexpr size_t kMaxBytes = size_t{16} << 20;
  static constexpr size_t kMaxFullBytes = 4'096;  // of one; longer ones end in "…"

  explicit KernelTexts(DropCounters& drops, size_t max_names = kMaxNames,
                       size_t max_bytes = kMaxBytes)
      : max_names_(max_names), max_bytes_(max_bytes), drops_(drops) {}

  // `is_cut`: the sender had to cut it, so that it cannot be demangled.
  KernelTextPtr get(const std::string& mangled, bool is_cut);
  void allow_sweep() {
    loop_thread_.check();
    may_sweep_ = true;
  }

  // What stands for all names without room: serial 0.
  static const KernelTextPtr& get_other();

 private:
  static size_t get_bytes(const std::string& mangled, const KernelText& text);
  void sweep();

  // Set once in the constructor.
  const size_t max_names_;
  const size_t max_bytes_;
  DropCounters& drops_;
  // Loop thread only.
  ThreadChecker loop_thread_;
  std::unordered_map<std::string, KernelTextPtr> texts_;  // by mangled name
  size_t bytes_ = 0;
  uint64_t next_serial_ = 1;
  bool may_sweep_ = true;
};

}  // namespace gpuperf
