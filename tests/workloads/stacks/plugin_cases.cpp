// Code that comes and goes: two plugins, one after the other, most often at the same address.

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "walk.h"

namespace workload {
namespace {

constexpr uint32_t kMaxSteps = 10;
constexpr uint64_t kSamplesPerPlugin = 10;

Step g_entry = nullptr;  // of the plugin that is loaded

[[noreturn]] void fail(const std::string& what) {
  fprintf(stderr, "stack_cases: %s\n", what.c_str());
  exit(1);
}

void* load(const std::string& path, const std::string& symbols) {
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) fail(dlerror());
  g_entry = reinterpret_cast<Step>(dlsym(handle, "plugin_entry"));
  link_map* map = nullptr;
  if (g_entry == nullptr || dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) fail(dlerror());
  loaded_modules().resize(1);
  loaded_modules().push_back({.path = path, .bias = map->l_addr, .symbols = symbols});
  return handle;
}

// Until then what is mapped may not be known yet to those who take the stacks. Not for ever: the
// record may have been dropped.
void wait_until_reported(const std::string& path, uint64_t sample) {
  constexpr useconds_t kPeriodUs = 2'000;
  constexpr int kMaxLooks = 1'500;  // 3 s
  uint64_t reported = 0;
  for (int i = 0; !path.empty() && reported < sample && i < kMaxLooks; ++i) {
    usleep(kPeriodUs);
    std::ifstream(path) >> reported;
  }
}

}  // namespace

extern "C" {

// What a plugin calls.
[[gnu::noipa]] uint64_t walk_on_from_plugin(Walk* walk) {
  const Frame frame(walk, __func__);
  return take_step(walk) + 1;
}

[[gnu::noipa]] uint64_t call_plugin(Walk* walk) {
  const Frame frame(walk, __func__);
  return g_entry(walk) + 1;
}

// The samples of one plugin, from its coming to its going: right after the last.
[[gnu::noipa]] static void walk_with_plugin(Walk* walk, Request& request, const std::string& path,
                                            const std::string& symbols) {
  const Frame frame(walk, __func__);
  void* const handle = load(path, symbols);
  const uint64_t last_sample = request.last_sample;
  const uint64_t first_sample = request.next_sample;
  request.last_sample = first_sample;
  walk_all(walk, request, kMaxSteps);
  wait_until_reported(request.reported_path, first_sample);
  request.next_sample = first_sample + 1;
  request.last_sample = std::min(last_sample, first_sample + kSamplesPerPlugin - 1);
  walk_all(walk, request, kMaxSteps);
  request.next_sample = request.last_sample + 1;
  request.last_sample = last_sample;
  dlclose(handle);
}

// Arguments: the two plugins' paths, and a third where they take turns, in place of their own.
[[gnu::noipa]] void run_plugin(Walk* walk, Request& request) {
  const Frame frame(walk, __func__);
  if (request.arguments.size() < 2) fail("plugin: the two plugins are not given");
  std::vector<Step> steps(ordinary_steps().begin(), ordinary_steps().end());
  steps.insert(steps.end(), steps.size() / 2, call_plugin);
  walk->steps = steps;
  walk->back = walk_on_from_plugin;
  for (size_t turn = 0; request.next_sample <= request.last_sample; ++turn) {
    const std::string& plugin = request.arguments[turn % 2];
    if (request.arguments.size() == 2) {
      walk_with_plugin(walk, request, plugin, plugin);
      continue;
    }
    const std::string path = std::filesystem::absolute(request.arguments[2]);
    std::filesystem::copy_file(plugin, path + ".new");
    std::filesystem::rename(path + ".new", path);
    walk_with_plugin(walk, request, path, plugin);
  }
}

}  // extern "C"

std::span<const CaseRow> plugin_cases() {
  static constexpr CaseRow kCases[] = {{"plugin", run_plugin}};
  return kCases;
}

}  // namespace workload
