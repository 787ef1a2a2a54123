#include "daemon/resolve/mapping_cache.h"

#include <algorithm>
#include <utility>

#include "daemon/base/proc_text.h"

namespace gpuperf {

MappingCache::MappingCache(ProcFiles proc, size_t max_bytes, const Clock& clock)
    : proc_(std::move(proc)), clock_(clock), views_(max_bytes) {}

MappedCode* MappingCache::View::find(uint64_t address) {
  const auto after = std::ranges::upper_bound(
      codes, address, {}, [](const MappedCode& code) { return code.mapping.start_address; });
  if (after == codes.begin()) return nullptr;
  MappedCode& code = *std::prev(after);
  return address < code.mapping.end_address ? &code : nullptr;
}

bool MappingCache::is_stale(View& view, std::span<const CodeAddress> addresses,
                            const MappingVersion& version) const {
  if (version.number != 0) return view.source != version.mappings;
  const std::chrono::nanoseconds age(clock_.mono_ns() - view.read_mono_ns);
  if (age >= kMaxAge) return true;
  if (age < kMinAge) return false;
  return std::ranges::any_of(addresses, [&view](const CodeAddress& code) {
    return view.find(get_looked_up_address(code)) == nullptr;
  });
}

std::shared_ptr<MappingCache::View> MappingCache::find_view(const ProcessKey& process,
                                                            std::span<const CodeAddress> addresses,
                                                            const MappingVersion& version) {
  const Key key(version.number, version.number == 0 ? process : ProcessKey());
  std::shared_ptr<View>* const kept = views_.find(key);
  std::shared_ptr<View> old = kept != nullptr ? *kept : nullptr;
  if (old) note_use(*old, process);
  if (old && !is_stale(*old, addresses, version)) return old;
  std::shared_ptr<View> fresh;
  if (version.number == 0) {
    fresh = read_view(process, old.get());
  } else if (version.mappings) {
    fresh = make_view(*version.mappings, old.get());
    fresh->source = version.mappings;
  }
  if (!fresh) return old;
  note_use(*fresh, process);
  size_t bytes = sizeof(View);
  for (const MappedCode& code : fresh->codes) {
    bytes += sizeof(MappedCode) + code.mapping.path.capacity();
  }
  // Not kept when it is larger than all room: then it serves this call only.
  (void)views_.put(key, fresh, bytes);
  return fresh;
}

void MappingCache::note_use(View& view, const ProcessKey& process) const {
  view.used_mono_ns = clock_.mono_ns();
  view.process = process;
}

void MappingCache::forget_gone(const std::function<bool(const ProcessKey&)>& is_running) {
  const int64_t now_mono_ns = clock_.mono_ns();
  views_.erase_if([&](const Key&, const std::shared_ptr<View>& view) {
    return std::chrono::nanoseconds(now_mono_ns - view->used_mono_ns) >= kKeepGone &&
           !is_running(view->process);
  });
}

// Null when the process is gone: exiting ones have no mappings left, and the pid may have a new
// owner.
std::shared_ptr<MappingCache::View> MappingCache::read_view(const ProcessKey& process,
                                                            const View* old) const {
  Result<ProcessMaps> maps = read_executable_maps(proc_, process.pid);
  if (!maps.ok() || maps->entries.empty()) return nullptr;
  // Asked after reading: alive now means that it was the one whose mappings were read.
  if (!is_running_since(proc_.root(), process.pid, process.start_boot_ns)) return nullptr;
  auto view = make_view(std::move(maps->entries), old);
  view->read_mono_ns = clock_.mono_ns();
  return view;
}

std::shared_ptr<MappingCache::View> MappingCache::make_view(std::vector<MapEntry> entries,
                                                            const View* old) {
  auto view = std::make_shared<View>();
  view->codes.reserve(entries.size());
  for (MapEntry& entry : entries) view->codes.push_back({.mapping = std::move(entry)});
  std::ranges::sort(view->codes, {},
                    [](const MappedCode& code) { return code.mapping.start_address; });
  if (old == nullptr) return view;
  // What was opened earlier still names the file's code when it cannot be opened any more.
  auto before = old->codes.begin();
  for (MappedCode& code : view->codes) {
    while (before != old->codes.end() &&
           before->mapping.start_address < code.mapping.start_address) {
      ++before;
    }
    if (before == old->codes.end()) break;
    if (before->mapping == code.mapping) code.code_id = before->code_id;
  }
  return view;
}

}  // namespace gpuperf
