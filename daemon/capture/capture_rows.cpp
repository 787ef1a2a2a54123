// What a capture holds once: processes, threads, functions, kernels, stacks, operations.

#include <algorithm>

#include "daemon/base/demangle.h"
#include "daemon/capture/capture_builder.h"
#include "daemon/model/api_names.h"
#include "daemon/model/kernel_name.h"

namespace gpuperf {
namespace {

// "cudaLaunchKernelExC", "cuMemcpyHtoDAsync": calls whose hits are looked for.
bool may_launch_by_name(std::string_view name) {
  if (!name.starts_with("cu")) return false;
  name.remove_prefix(name.starts_with("cuda") ? 4 : 2);
  for (const std::string_view start : {"Launch", "GraphLaunch", "Memcpy", "Memset"}) {
    if (name.starts_with(start)) return !name.starts_with("LaunchHostFunc");
  }
  return false;
}

bool is_target(const CaptureScope& scope, const ProcessKey& process) {
  return scope.all_processes ||
         std::ranges::any_of(scope.processes, [&process](const ProcessKey& wanted) {
           return is_same_process(wanted, process);
         });
}

uint32_t& get_slot(std::vector<uint32_t>& indices, uint32_t id) {
  if (id >= indices.size()) indices.resize(id + size_t{1}, kTraceNone);
  return indices[id];
}

// Beside kTraceNone, which is "not looked at yet".
constexpr uint32_t kLeftOut = kTraceNone - 1;

}  // namespace

uint32_t CaptureBuilder::get_process(Epoch& epoch, uint32_t index) {
  uint32_t& slot = get_slot(epoch.processes, index);
  if (slot == kLeftOut) return kNoIndex;
  if (slot != kTraceNone) return slot;
  const TraceProcess& traced = epoch.tables->processes[index];
  if (!is_target(scope_, traced.process)) {
    slot = kLeftOut;
    return kNoIndex;
  }
  const auto same = [&traced](const CaptureProcess& row) {
    return is_same_process(row.process, traced.process);
  };
  const auto found = std::ranges::find_if(capture_.processes, same);
  slot = static_cast<uint32_t>(found - capture_.processes.begin());
  if (found == capture_.processes.end()) {
    capture_.processes.push_back(
        {.process = traced.process, .owner = names_.get_owner(traced.process)});
    processes_.emplace_back();
  }
  CaptureProcess& row = capture_.processes[slot];
  // The probes' word is the exact one.
  row.process.start_boot_ns = std::max(row.process.start_boot_ns, traced.process.start_boot_ns);
  row.is_injected |= traced.is_injected;
  uint64_t& error_ns = processes_[slot].options.clock_error_ns;
  error_ns = std::max(error_ns, traced.clock_error_ns);
  return slot;
}

uint32_t CaptureBuilder::get_stream(Epoch& epoch, uint32_t index, uint32_t process_index) {
  uint32_t& slot = get_slot(epoch.streams, index);
  if (slot != kTraceNone) return slot;
  const TracePlace place = index < epoch.tables->places.size() ? epoch.tables->places[index]
                                                               : TracePlace{.stream = UINT32_MAX};
  const auto same_device = [&place](const CaptureDevice& device) {
    return device.uuid == place.device_uuid;
  };
  const auto device = std::ranges::find_if(capture_.devices, same_device);
  const auto device_index = static_cast<uint32_t>(device - capture_.devices.begin());
  if (device == capture_.devices.end()) {
    capture_.devices.push_back({.uuid = place.device_uuid, .number = place.device});
  }
  const CaptureStream stream{.process = process_index,
                             .device = device_index,
                             .context = place.context,
                             .stream = place.stream};
  const auto found = std::ranges::find(capture_.streams, stream);
  slot = static_cast<uint32_t>(found - capture_.streams.begin());
  if (found == capture_.streams.end()) capture_.streams.push_back(stream);
  return slot;
}

uint32_t CaptureBuilder::get_shape(Epoch& epoch, uint32_t index) {
  if (index >= epoch.tables->shapes.size()) return kNoIndex;
  uint32_t& slot = get_slot(epoch.shapes, index);
  if (slot != kTraceNone) return slot;
  const LaunchShape& shape = epoch.tables->shapes[index];
  slot = static_cast<uint32_t>(capture_.shapes.size());
  capture_.shapes.push_back({.grid = shape.grid,
                             .block = shape.block,
                             .shared_memory_bytes = shape.shared_memory_bytes,
                             .registers_per_thread = shape.registers_per_thread});
  return slot;
}

uint32_t CaptureBuilder::get_kernel(Epoch& epoch, uint32_t index) {
  if (index >= epoch.tables->names.size()) return kNoIndex;
  uint32_t& slot = get_slot(epoch.kernels, index);
  if (slot != kTraceNone) return slot;
  const std::string& mangled = *epoch.tables->names[index];
  const auto [known, is_new] =
      kernels_.try_emplace(mangled, static_cast<uint32_t>(capture_.kernels.size()));
  slot = known->second;
  if (is_new) {
    const std::string name = demangle(mangled);
    capture_.kernels.push_back({.name = name, .short_name = shorten_kernel_name(name)});
  }
  return slot;
}

// 0 = none.
uint32_t CaptureBuilder::get_captured(Epoch& epoch, uint32_t index) {
  if (index == 0 || index >= epoch.tables->captured.size()) return 0;
  uint32_t& slot = get_slot(epoch.captured, index);
  if (slot != kTraceNone) return slot;
  const auto found = std::ranges::find(captured_, epoch.tables->captured[index]);
  slot = static_cast<uint32_t>(found - captured_.begin());
  if (found == captured_.end()) captured_.push_back(epoch.tables->captured[index]);
  return slot;
}

uint32_t CaptureBuilder::get_thread(uint32_t process_index, uint32_t tid) {
  const auto [known, is_new] =
      threads_.try_emplace({process_index, tid}, static_cast<uint32_t>(capture_.threads.size()));
  if (is_new) {
    const uint32_t pid = capture_.processes[process_index].process.pid;
    capture_.threads.push_back(
        {.process = process_index, .tid = tid, .comm = names_.read_thread_comm(pid, tid)});
  }
  return known->second;
}

uint32_t CaptureBuilder::get_function(const std::string& category, const std::string& name) {
  const auto [known, is_new] =
      functions_.try_emplace({category, name}, static_cast<uint32_t>(capture_.functions.size()));
  if (is_new) capture_.functions.push_back({.category = category, .name = name});
  return known->second;
}

uint32_t CaptureBuilder::get_plain_name(std::string_view name) {
  const std::string_view plain = get_plain_api_name(name);
  const auto known = plain_names_.find(plain);
  if (known != plain_names_.end()) return known->second;
  const auto index = static_cast<uint32_t>(plain_names_.size());
  plain_names_.emplace(plain, index);
  return index;
}

std::string_view CaptureBuilder::get_plain_text(uint32_t plain_name) const {
  const auto name =
      std::ranges::find(plain_names_, plain_name, [](const auto& entry) { return entry.second; });
  return name == plain_names_.end() ? "launch" : std::string_view(name->first);
}

const CaptureBuilder::FunctionFacts& CaptureBuilder::get_probed(uint32_t function_id) {
  const auto [known, is_new] = probed_functions_.try_emplace(function_id);
  if (!is_new) return known->second;
  FunctionFacts& facts = known->second;
  if (function_id < names_.functions->size()) {
    const Function& function = (*names_.functions)[function_id];
    facts.function = get_function(function.category, function.name);
    facts.plain_name = get_plain_name(function.symbol);
  } else {
    facts.function = get_function("", "function " + std::to_string(function_id));
  }
  return facts;
}

const CaptureBuilder::FunctionFacts& CaptureBuilder::get_api(bool is_driver, uint32_t callback_id) {
  const auto [known, is_new] =
      apis_.try_emplace(static_cast<uint64_t>(callback_id) << 1 | (is_driver ? 1 : 0));
  if (!is_new) return known->second;
  const std::string name = get_api_name(is_driver, callback_id);
  const std::string plain(get_plain_api_name(name));
  const bool may_launch = may_launch_by_name(plain);
  known->second = {.function = get_function("cuda", plain),
                   .plain_name = get_plain_name(plain),
                   .may_launch = may_launch,
                   .launches_kernels = may_launch && plain.find("Launch") != std::string::npos};
  return known->second;
}

uint32_t CaptureBuilder::get_stack(uint32_t process_index, uint64_t stack_id,
                                   const StackPtr& known_stack) {
  if (stack_id == 0) return kNoIndex;
  const auto [known, is_new] =
      stacks_.try_emplace(stack_id, static_cast<uint32_t>(stack_keys_.size()));
  if (is_new) {
    stack_keys_.push_back(
        {.process = capture_.processes[process_index].process, .stack_id = stack_id});
  }
  if (known_stack != nullptr) stack_keys_[known->second].known = known_stack;
  return known->second;
}

// The chain of the site's calls; innermost.
uint32_t CaptureBuilder::get_operation(const TraceSite& site) {
  uint32_t parent = kNoIndex;
  for (size_t i = 0; i < site.functions.size(); ++i) {
    CaptureOperation row{.parent = parent, .function = get_probed(site.functions[i]).function};
    if (i == site.shape_at) row.shape = site.shape;
    const auto found = std::ranges::find(capture_.operations, row);
    parent = static_cast<uint32_t>(found - capture_.operations.begin());
    if (found == capture_.operations.end()) capture_.operations.push_back(row);
  }
  return parent;
}

void CaptureBuilder::set_site(CaptureLaunch& launch, uint32_t process_index, uint64_t site_id) {
  const auto site = std::ranges::lower_bound(window_.sites, site_id, {}, &TraceSite::site_id);
  if (site == window_.sites.end() || site->site_id != site_id) return;
  launch.stack = get_stack(process_index, site->stack_id);
  const auto [known, is_new] = operations_.try_emplace(site_id, kNoIndex);
  if (is_new) known->second = get_operation(*site);
  launch.operation = known->second;
}

}  // namespace gpuperf
