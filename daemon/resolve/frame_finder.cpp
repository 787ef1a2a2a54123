#include "daemon/resolve/frame_finder.h"

#include <malloc.h>

#include <algorithm>
#include <utility>

#include "daemon/base/demangle.h"
#include "daemon/probe/proc_text.h"

namespace gpuperf {

FrameFinder::FrameFinder(Options options, const Clock& clock)
    : options_(std::move(options)),
      clock_(clock),
      views_(options_.maps_bytes),
      tables_(options_.table_bytes),
      names_(options_.name_bytes) {}

std::vector<StackFrame> FrameFinder::find_frames(const ProcessKey& process,
                                                 const std::vector<uint64_t>& addresses) {
  const std::shared_ptr<View> view = find_view(process, addresses);
  std::vector<StackFrame> frames;
  frames.reserve(addresses.size());
  for (const uint64_t address : addresses) {
    frames.push_back(view ? find_frame(process, *view, address) : StackFrame{.address = address});
  }
  return frames;
}

void FrameFinder::prefetch(const ProcessKey& process) { (void)find_view(process, {}); }

// The mapping of the call before a return address: that address may be where the next one begins.
FrameFinder::Module* FrameFinder::find_module(View& view, uint64_t address) {
  const auto after = std::ranges::lower_bound(
      view.modules, address, {}, [](const Module& m) { return m.mapping.start_address; });
  if (after == view.modules.begin()) return nullptr;
  Module& module = *std::prev(after);
  return address <= module.mapping.end_address ? &module : nullptr;
}

bool FrameFinder::is_stale(View& view, const std::vector<uint64_t>& addresses) const {
  const std::chrono::nanoseconds age(clock_.mono_ns() - view.read_mono_ns);
  if (age >= kMapsMaxAge) return true;
  if (age < kMapsMinAge) return false;
  return std::ranges::any_of(
      addresses, [&view](uint64_t address) { return find_module(view, address) == nullptr; });
}

std::shared_ptr<FrameFinder::View> FrameFinder::find_view(const ProcessKey& process,
                                                          const std::vector<uint64_t>& addresses) {
  std::shared_ptr<View>* const kept = views_.find(process);
  std::shared_ptr<View> old = kept != nullptr ? *kept : nullptr;
  if (old && !is_stale(*old, addresses)) return old;
  std::shared_ptr<View> fresh = read_view(process, old.get());
  if (!fresh) return old;
  size_t bytes = sizeof(View);
  for (const Module& module : fresh->modules) {
    bytes += sizeof(Module) + module.mapping.path.capacity();
  }
  // Not kept when it is larger than all room: then it serves this call only.
  (void)views_.put(process, fresh, bytes);
  return fresh;
}

// Null when the process is gone: exiting ones have no mappings left, and the pid may have a new
// owner.
std::shared_ptr<FrameFinder::View> FrameFinder::read_view(const ProcessKey& process,
                                                          const View* old) const {
  Result<ProcessMaps> maps = read_executable_maps(options_.proc_root, process.pid);
  if (!maps.ok() || maps->entries.empty()) return nullptr;
  // Asked after reading: alive now means that it was the one whose mappings were read.
  if (!is_running_since(options_.proc_root, process.pid, process.start_boot_ns)) return nullptr;
  auto view = std::make_shared<View>();
  view->read_mono_ns = clock_.mono_ns();
  view->modules.reserve(maps->entries.size());
  for (MapEntry& entry : maps->entries) view->modules.push_back({.mapping = std::move(entry)});
  std::ranges::sort(view->modules, {}, [](const Module& m) { return m.mapping.start_address; });
  if (old == nullptr) return view;
  // What was opened earlier still names the file's table when it cannot be opened any more.
  auto before = old->modules.begin();
  for (Module& module : view->modules) {
    while (before != old->modules.end() &&
           before->mapping.start_address < module.mapping.start_address) {
      ++before;
    }
    if (before == old->modules.end()) break;
    if (before->mapping == module.mapping) module.identity = before->identity;
  }
  return view;
}

// Opens the file once for each reading of the mappings: it may have been replaced since.
std::optional<OpenedFile> FrameFinder::identify(const ProcessKey& process, Module& module) const {
  if (module.state != Module::State::kNotTried) return std::nullopt;
  Result<OpenedFile> opened = open_mapped_file(options_.proc_root, process.pid, module.mapping);
  module.state = opened.ok() ? Module::State::kOpened : Module::State::kFailed;
  if (!opened.ok()) return std::nullopt;
  module.identity = opened->identity;
  return *std::move(opened);
}

FrameFinder::TablePtr FrameFinder::find_table(const ProcessKey& process, const Module& module,
                                              std::optional<OpenedFile> opened) {
  if (!module.identity) return nullptr;
  if (const TablePtr* kept = tables_.find(*module.identity)) return *kept;
  if (module.state == Module::State::kFailed) return nullptr;
  if (!opened) {
    Result<OpenedFile> again = open_mapped_file(options_.proc_root, process.pid, module.mapping);
    if (!again.ok() || again->identity != *module.identity) return nullptr;
    opened = *std::move(again);
  }
  auto table = std::make_shared<const AddressTable>(
      AddressTable::load(opened->fd.get(), options_.table_bytes));
  // What was read to make it is twice its size and would stay with the allocator.
  (void)malloc_trim(0);
  // Kept also when it is empty: not an ELF file, or without symbols.
  (void)tables_.put(*module.identity, table, table->size_bytes());
  return table;
}

FrameFinder::NamedCode FrameFinder::name_code(const ProcessKey& process, Module& module,
                                              uint64_t call_offset) {
  std::optional<OpenedFile> opened = identify(process, module);
  const auto key = std::pair(module.identity.value_or(FileIdentity()), call_offset);
  if (module.identity) {
    if (const NamedCode* known = names_.find(key)) return *known;
  }
  const TablePtr table = find_table(process, module, std::move(opened));
  if (table == nullptr) return {.offset_bytes = call_offset + 1};
  const std::optional<uint64_t> vaddr = table->find_vaddr(call_offset);
  NamedCode named{.offset_bytes = vaddr.value_or(call_offset) + 1};
  const auto function = vaddr ? table->find_function(*vaddr) : std::nullopt;
  if (function) {
    named.symbol = demangle(function->name);
    named.offset_bytes = *vaddr + 1 - function->vaddr;
  }
  constexpr size_t kEntryBytes = 200;  // key, nodes of map and list, string
  (void)names_.put(key, named, kEntryBytes + named.symbol.capacity());
  return named;
}

StackFrame FrameFinder::find_frame(const ProcessKey& process, View& view, uint64_t address) {
  StackFrame frame{.address = address};
  Module* const module = find_module(view, address);
  if (module == nullptr || module->mapping.path.empty()) return frame;
  const MapEntry& mapping = module->mapping;
  frame.module = mapping.path;
  if (mapping.file.inode == 0) {
    frame.offset_bytes = address - mapping.start_address;  // "[vdso]"
    return frame;
  }
  // The call instruction: the return address may already be the next function's.
  const uint64_t call_offset = address - 1 - mapping.start_address + mapping.offset_bytes;
  NamedCode named = name_code(process, *module, call_offset);
  frame.symbol = std::move(named.symbol);
  frame.offset_bytes = named.offset_bytes;
  return frame;
}

}  // namespace gpuperf
