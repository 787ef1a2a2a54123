#include "daemon/slow_call_namer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "daemon/base/demangle.h"
#include "daemon/state/explain.h"

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

// What is to be named, in the order set_frames takes it: the caller's stack, the launched kernel's
// host function (of which a frame's address would lie one byte behind), then two stacks for each
// wait.
std::vector<StackAddresses> list_stacks(const Function& function, const SlowCallEvent& event) {
  std::vector<StackAddresses> stacks{{.process = event.process, .addresses = event.user_stack},
                                     {.process = event.process}};
  if (const auto kernel = find_kernel_function(function, event)) {
    stacks[1].addresses.push_back(*kernel + 1);
  }
  for (const Wait& wait : event.waits) {
    stacks.push_back({.addresses = wait.kernel_stack});
    stacks.push_back({.process = ProcessKey{wait.waker.pid, wait.waker.process_start_boot_ns},
                      .addresses = wait.waker.stack});
  }
  return stacks;
}

Symbolizer::Stacks make_unnamed(const std::vector<StackAddresses>& stacks) {
  Symbolizer::Stacks unnamed;
  for (const StackAddresses& stack : stacks) {
    unnamed.push_back(make_unnamed_frames(stack.addresses));
  }
  return unnamed;
}

bool is_any_known(const std::vector<StackAddresses>& stacks) {
  return std::ranges::any_of(stacks,
                             [](const StackAddresses& stack) { return !stack.addresses.empty(); });
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
  const std::vector<StackAddresses> stacks = list_stacks(function, call->event);
  const auto on_resolved = [this, call](Symbolizer::Stacks named) {
    sources_.loop.post(
        [this, call, named = std::move(named)]() mutable { set_frames(*call, std::move(named)); });
  };
  if (is_any_known(stacks)) {
    if (sources_.symbolizer.post_resolve(stacks, on_resolved)) return;
    sources_.drops.add(DropCause::kSymbolsQueueFull);
  }
  set_frames(*call, make_unnamed(stacks));
}

void SlowCallNamer::set_frames(SlowCall& call, Symbolizer::Stacks stacks) {
  call.user_stack = std::move(stacks[0]);
  std::optional<std::string> kernel_symbol;
  if (!stacks[1].empty() && !stacks[1][0].symbol.empty()) kernel_symbol = stacks[1][0].symbol;
  for (size_t i = 2; i + 1 < stacks.size(); i += 2) {
    call.wait_frames.push_back(
        {.kernel_stack = std::move(stacks[i]), .waker_stack = std::move(stacks[i + 1])});
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
  call.explanation = explain(call);
  on_named_(std::move(call));
}

}  // namespace gpuperf
