#include "daemon/slow/slow_call_namer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "daemon/base/demangle.h"

namespace gpuperf {
namespace {

// The argument that is the address of a kernel's host function.
std::optional<uint64_t> find_kernel_function(const Function& function, const SlowCallEvent& event) {
  if (!function.arguments || !event.values) return std::nullopt;
  const auto& fields = function.arguments->fields;
  for (size_t i = 0; i < std::min<size_t>(fields.size(), GPUPERF_VALUES); ++i) {
    if (fields[i].format != ArgumentFormat::kKernelFunction) continue;
    if ((event.values->unread >> i & 1) == 0) return event.values->values[i];
  }
  return std::nullopt;
}

// What is to be named, in the order set_stacks takes it: the caller's stack, the launched kernel's
// host function, then two stacks for each wait.
std::vector<StackRequest> list_requests(const Function& function, const SlowCallEvent& event) {
  std::vector<StackRequest> requests(2);
  if (event.live_stack) {
    requests[0] = StackInFlight{.process = event.process, .live = *event.live_stack};
  } else if (event.stack_id != 0) {
    requests[0] = TakenStack{event.stack_id};
  }
  if (const auto kernel = find_kernel_function(function, event)) {
    requests[1] = SingleFrame{.process = event.process, .address = *kernel};
  }
  for (const Wait& wait : event.waits) {
    StackRequest& kernel = requests.emplace_back();
    if (!wait.kernel_stack.empty()) kernel = KernelStack{wait.kernel_stack};
    StackRequest& waker = requests.emplace_back();
    if (wait.waker.stack_id != 0) waker = TakenStack{wait.waker.stack_id};
  }
  return requests;
}

bool is_any_asked(const std::vector<StackRequest>& requests) {
  return std::ranges::any_of(requests, [](const StackRequest& request) {
    return !std::holds_alternative<std::monostate>(request);
  });
}

std::vector<NamedCalls> name_children(const FunctionList& functions, const SlowCallEvent& event) {
  std::vector<NamedCalls> children;
  for (const ChildCalls& child : event.children) {
    NamedCalls named{.function = "other", .calls = child.calls, .total_ns = child.total_ns};
    if (child.function_id < functions.size()) {
      named.category = functions[child.function_id].category;
      named.function = functions[child.function_id].name;
    }
    children.push_back(std::move(named));
  }
  std::ranges::stable_sort(children, std::ranges::greater(), &NamedCalls::total_ns);
  return children;
}

}  // namespace

SlowCallNamer::SlowCallNamer(const Sources& sources, OnNamed on_named)
    : sources_(sources), on_named_(std::move(on_named)) {}

void SlowCallNamer::take(SlowCallEvent event) {
  const auto functions = sources_.functions.get();
  if (event.function_id >= functions->size()) return;  // cannot be: cookies are our own ids
  const Function& function = (*functions)[event.function_id];
  const auto start_unix_ns = static_cast<uint64_t>(
      sources_.clock.unix_from_mono_ns(static_cast<int64_t>(event.start_mono_ns)));
  auto call = std::make_shared<SlowCall>(SlowCall{.category = function.category,
                                                  .function = function.name,
                                                  .status = function.status,
                                                  .start_unix_ns = start_unix_ns,
                                                  .event = std::move(event)});
  std::vector<StackRequest> requests = list_requests(function, call->event);
  const size_t count = requests.size();
  if (is_any_asked(requests)) {
    const auto on_resolved = [this, call](Symbolizer::Stacks stacks) {
      sources_.loop.post([this, call, stacks = std::move(stacks)]() mutable {
        set_stacks(*call, std::move(stacks));
      });
    };
    if (sources_.post_resolve(call->event.process, std::move(requests), on_resolved)) return;
    sources_.drops.add(DropCause::kSymbolsQueueFull);
  }
  set_stacks(*call, Symbolizer::Stacks(count));
}

void SlowCallNamer::set_stacks(SlowCall& call, Symbolizer::Stacks stacks) {
  call.user_stack = std::move(stacks[0]);
  std::optional<std::string> kernel_symbol;
  const auto& place = get_frames(stacks[1]);
  if (!place.empty() && !place.back().symbol.empty()) kernel_symbol = place.back().symbol;
  for (size_t i = 2; i + 1 < stacks.size(); i += 2) {
    call.wait_stacks.push_back({.kernel = std::move(stacks[i]), .waker = std::move(stacks[i + 1])});
  }
  finish(std::move(call), kernel_symbol);
}

void SlowCallNamer::finish(SlowCall call, const std::optional<std::string>& kernel_symbol) {
  const auto functions = sources_.functions.get();
  if (call.event.values) {
    const ArgumentNames names{.find_kernel = [&](uint64_t handle) -> std::optional<std::string> {
                                const auto name =
                                    sources_.kernel_names.find(call.event.process, handle);
                                return name ? std::optional(demangle(*name)) : std::nullopt;
                              },
                              .find_symbol = [&](uint64_t) { return kernel_symbol; }};
    call.arguments = render_arguments((*functions)[call.event.function_id].arguments.get(),
                                      *call.event.values, names);
  }
  call.children = name_children(*functions, call.event);
  for (const uint32_t id : call.event.outer) {
    if (id < functions->size()) call.outer.push_back((*functions)[id].name);
  }
  on_named_(std::move(call));
}

}  // namespace gpuperf
