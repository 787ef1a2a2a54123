#include "daemon/state/kernel_texts.h"

#include <algorithm>
#include <utility>

#include "daemon/base/demangle.h"
#include "daemon/model/kernel_name.h"

namespace gpuperf {
const KernelTextPtr& KernelTexts::get_other() {
  static const KernelTextPtr kOther = std::make_shared<const KernelText>(
      KernelText{.serial = 0, .mangled = "", .full = "other", .brief = "other"});
  return kOther;
}

size_t KernelTexts::get_bytes(const std::string& mangled, const KernelText& text) {
  constexpr size_t kEntryBytes = 160;  // the two objects and the table's own
  return 2 * mangled.size() + text.full.size() + text.brief.size() + kEntryBytes;
}

KernelTextPtr KernelTexts::get(const std::string& mangled, bool is_cut, uint32_t uid) {
  loop_thread_.check();
  const auto found = texts_.find(mangled);
  if (found != texts_.end()) return found->second.text;
  // Before it costs anything; what the demangled name is longer is added to it.
  const size_t first_bytes = std::max(get_bytes(mangled, {}), min_bytes_);
  if (!find_room({.uid = uid}, first_bytes)) {
    drops_.add(DropCause::kKernelNamesFull);
    return get_other();
  }
  KernelText text{
      .serial = next_serial_++, .mangled = mangled, .full = demangle(mangled), .brief = {}};
  if (is_cut) text.full += "…";
  text.brief = shorten_kernel_name(text.full);
  text.is_nccl = is_nccl_kernel(text.brief);
  cut_kernel_name(text.full, kMaxFullBytes);
  const size_t bytes = std::max(get_bytes(mangled, text), first_bytes);
  shares_.add({.uid = uid}, bytes - first_bytes);
  const Entry entry{std::make_shared<const KernelText>(std::move(text)), uid, bytes};
  return texts_.emplace(mangled, entry).first->second.text;
}

// And takes it.
bool KernelTexts::find_room(Shares::Holder holder, size_t bytes) {
  const auto take = [&] {
    return texts_.size() < max_names_ && shares_.take(holder, bytes) == Shares::Verdict::kTaken;
  };
  if (take()) return true;
  if (!std::exchange(may_sweep_, false)) return false;
  sweep();
  return take();
}

void KernelTexts::sweep() {
  // If anyone else holds one, it is the loop or a snapshot; then keeping it is right.
  std::erase_if(texts_, [this](const auto& entry) {
    if (entry.second.text.use_count() > 1) return false;
    shares_.give_back({.uid = entry.second.uid}, entry.second.bytes);
    return true;
  });
}

}  // namespace gpuperf
