#include "daemon/resolve/frame_finder.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

namespace gpuperf {
namespace {

// The frames of an address in a file mapped as `module`.
FrameGroup make_group(const CodeAddress& code, const std::string& module, const NamedCode& named) {
  FrameGroup group;
  group.reserve(std::max<size_t>(named.sources.size(), 1));
  for (size_t i = 0; i + 1 < named.sources.size(); ++i) {
    const SourceFrame& source = named.sources[i];
    group.push_back({.symbol = source.symbol,
                     .module = module,
                     .address = code.address,
                     .file = source.file,
                     .line = source.line,
                     .is_inlined = true});
  }
  const uint64_t looked_up_back = code.address - get_looked_up_address(code);
  group.push_back({.symbol = named.symbol,
                   .module = module,
                   .offset_bytes = named.vaddr + looked_up_back - named.symbol_vaddr,
                   .address = code.address});
  if (!named.sources.empty()) {
    group.back().file = named.sources.back().file;
    group.back().line = named.sources.back().line;
  }
  return group;
}

}  // namespace

FrameFinder::FrameFinder(const Options& options, const Clock& clock)
    : mappings_(options.proc, options.maps_bytes, clock),
      perf_maps_(options.proc.root(), options.perf_map_bytes, options.count_drop, clock),
      namer_({.proc = options.proc,
              .host_root = options.host_root,
              .table_bytes = options.table_bytes,
              .name_bytes = options.name_bytes,
              .dwarf = options.dwarf,
              .count_drop = options.count_drop}),
      vdso_(VdsoSymbols::load()) {}

std::vector<FrameGroup> FrameFinder::find_frames(const ProcessKey& process,
                                                 std::span<const CodeAddress> addresses,
                                                 const MappingVersion& version) {
  std::vector<FrameGroup> groups(addresses.size());
  const std::shared_ptr<MappingCache::View> view = mappings_.find_view(process, addresses, version);
  std::map<MappedCode*, std::vector<size_t>> in_files;  // indices of addresses
  for (size_t i = 0; i < addresses.size(); ++i) {
    const CodeAddress& code = addresses[i];
    MappedCode* const mapped = view ? view->find(get_looked_up_address(code)) : nullptr;
    if (mapped == nullptr) {
      groups[i] = {{.address = code.address}};
    } else if (is_made_at_run_time(mapped->mapping)) {
      groups[i] = {find_memory_frame(process, mapped->mapping, code)};
    } else if (mapped->mapping.file.inode == 0) {
      groups[i] = {find_vdso_frame(mapped->mapping, code)};
    } else {
      in_files[mapped].push_back(i);
    }
  }
  // File by file, so that each is opened once.
  for (const auto& [mapped, wanted] : in_files) {
    const auto held = version.held.find(mapped->mapping.start_address);
    mapped->held = held == version.held.end() ? nullptr : held->second;
    name_code(process, *mapped, addresses, wanted, groups);
    mapped->held = nullptr;
  }
  return groups;
}

bool FrameFinder::read_ahead(const ProcessKey& process, std::span<const CodeAddress> addresses,
                             const MappingVersion& version) {
  const std::shared_ptr<MappingCache::View> view = mappings_.find_view(process, addresses, version);
  if (view == nullptr) return true;
  return std::ranges::all_of(addresses, [&](const CodeAddress& code) {
    const uint64_t address = get_looked_up_address(code);
    const MappedCode* const mapped = view->find(address);
    return mapped == nullptr || !is_made_at_run_time(mapped->mapping) ||
           perf_maps_.read_ahead(process, address);
  });
}

void FrameFinder::prefetch(const ProcessKey& process, const MappingVersion& version) {
  (void)mappings_.find_view(process, {}, version);
}

StackFrame FrameFinder::find_memory_frame(const ProcessKey& process, const MapEntry& mapping,
                                          const CodeAddress& code) {
  StackFrame frame{.module = mapping.path, .address = code.address};
  if (const auto match = perf_maps_.find(process, get_looked_up_address(code))) {
    frame.symbol = match->name;
    frame.offset_bytes = code.address - match->start_address;
    frame.kind = StackFrameKind::kJit;
  } else if (!frame.module.empty()) {
    frame.offset_bytes = code.address - mapping.start_address;
  }
  return frame;
}

// Also of "[vsyscall]" and the like, which have no names.
StackFrame FrameFinder::find_vdso_frame(const MapEntry& mapping, const CodeAddress& code) const {
  StackFrame frame{.module = mapping.path,
                   .offset_bytes = code.address - mapping.start_address,
                   .address = code.address};
  if (mapping.path != "[vdso]") return frame;
  const auto match = vdso_.find(mapping.end_address - mapping.start_address,
                                get_looked_up_address(code) - mapping.start_address);
  if (!match) return frame;
  frame.symbol = match->symbol;
  frame.offset_bytes -= match->symbol_offset_bytes;
  return frame;
}

void FrameFinder::name_code(const ProcessKey& process, MappedCode& mapped,
                            std::span<const CodeAddress> addresses, std::span<const size_t> wanted,
                            std::vector<FrameGroup>& groups) {
  std::vector<uint64_t> offsets;
  offsets.reserve(wanted.size());
  for (const size_t i : wanted) {
    offsets.push_back(get_looked_up_address(addresses[i]) - mapped.mapping.start_address +
                      mapped.mapping.offset_bytes);
  }
  namer_.name(process.pid, mapped, offsets, [&](size_t index, const NamedCode& named) {
    const size_t i = wanted[index];
    groups[i] = make_group(addresses[i], mapped.mapping.path, named);
  });
}

}  // namespace gpuperf
