#include "walk.h"

#include <algorithm>
#include <cstring>

#include "tests/workloads/truth.h"

namespace workload {
namespace {

template <typename Items, typename Render>
std::string join(const Items& items, Render render) {
  std::string text = "[";
  for (const auto& item : items) text += (text.size() > 1 ? "," : "") + render(item);
  return text + "]";
}

std::string render_module(const Module& module) {
  return "{\"path\":\"" + module.path + "\",\"bias\":" + std::to_string(module.bias) +
         ",\"symbols\":\"" + module.symbols + "\"}";
}

std::string render_address(uintptr_t address) { return std::to_string(address); }

}  // namespace

std::vector<Module>& loaded_modules() {
  static std::vector<Module> modules;
  return modules;
}

// Its own frame is the first of the stack that it reads: left out.
[[gnu::noipa]] void print_own_stack(const Walk* walk) {
  uintptr_t addresses[kMaxFrames + 64];
  const std::span<uintptr_t> own(addresses, read_own_stack(addresses, std::size(addresses)));
  const std::span<const uintptr_t> callers = own.subspan(own.empty() ? 0 : 1);
  const std::span<const uintptr_t> start(walk->start, walk->start_count);
  std::vector<const char*> frames(walk->names, walk->names + walk->depth);
  std::reverse(frames.begin(), frames.end());

  print_line("{\"sample\":" + std::to_string(walk->sample) + ",\"pid\":" +
             std::to_string(getpid()) + ",\"tid\":" + std::to_string(gettid()) + ",\"frames\":" +
             join(frames, [](const char* name) { return "\"" + std::string(name) + "\""; }) +
             ",\"addresses\":" + join(callers, render_address) +
             ",\"start\":" + join(start, render_address) +
             ",\"modules\":" + join(loaded_modules(), render_module) + "}");
}

[[gnu::noipa]] void note_start(Walk* walk) {
  uintptr_t addresses[kMaxStartFrames + 2];
  const size_t count = read_own_stack(addresses, std::size(addresses));
  // The first two are this function and its caller.
  walk->start_count = count < 2 ? 0 : count - 2;
  std::copy_n(addresses + 2, walk->start_count, walk->start);
}

bool begin_walk(Walk* walk, Request& request, uint32_t max_steps) {
  const uint64_t sample = request.next_sample.fetch_add(1);
  if (sample > request.last_sample) return false;
  sleep_ns(request.pause_ns);
  walk->sample = sample;
  walk->random = (request.seed + 1) * 0x9E3779B97F4A7C15u ^ (sample << 17) ^ sample;
  for (int i = 0; i < 4; ++i) (void)next_random(walk);  // seeds that are alike part ways
  walk->steps_left = static_cast<uint32_t>(next_random(walk) % (max_steps + 1));
  return true;
}

extern "C" [[gnu::noipa]] uint64_t walk_once(Walk* walk) {
  const Frame frame(walk, __func__);
  return take_step(walk) + 1;
}

extern "C" [[gnu::noipa]] void walk_all(Walk* walk, Request& request, uint32_t max_steps) {
  const Frame frame(walk, __func__);
  while (begin_walk(walk, request, max_steps)) (void)walk_once(walk);
}

}  // namespace workload
