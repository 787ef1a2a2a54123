// Makes calls of known length, nested and recursive too, and measures each one twice: inside, from
// the function's first to its last instruction of ours, and outside, around the call, so that what
// gpuperf measures must lie between the two (a probe's own time falls outside of the first, and
// inside of the second). Prints one JSON line, durations in nanoseconds:
//   {"program":"timed_calls","pid":71,"timed_leaf":{"calls":2000,
//     "inside":{"total":..,"self":..,"min":..,"max":..,"p50":..,"p90":..,"p99":..,"p999":..},
//     "outside":{...}},"timed_outer":{...},"timed_recurse":{...}}

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "options.h"
#include "truth.h"

using namespace workload;

namespace {

// A call's own time, and that of the measured calls made inside it. `self` is smallest when the
// calls inside are taken as long as their callers saw them.
struct Inner {
  uint64_t inside_ns = 0;
  uint64_t children_inside_ns = 0;
  uint64_t children_outside_ns = 0;
};

struct Lengths {
  std::vector<uint64_t> inside_ns, outside_ns;
  uint64_t inside_self_ns = 0, outside_self_ns = 0;
};

struct Lengths g_leaf, g_outer, g_inner, g_recurse;

void spin(uint64_t start_ns, uint64_t duration_ns) {
  while (now_mono_ns() < start_ns + duration_ns) {
  }
}

// Calls, measures outside, and adds the call to `lengths` and to the caller's children.
template <typename Function, typename... Arguments>
void measure(Lengths& lengths, Inner* caller, Function function, Arguments... arguments) {
  const uint64_t start_ns = now_mono_ns();
  const Inner inner = function(arguments...);
  const uint64_t outside_ns = now_mono_ns() - start_ns;
  lengths.inside_ns.push_back(inner.inside_ns);
  lengths.outside_ns.push_back(outside_ns);
  lengths.inside_self_ns += inner.inside_ns - inner.children_outside_ns;
  lengths.outside_self_ns += outside_ns - inner.children_inside_ns;
  if (caller == nullptr) return;
  caller->children_inside_ns += inner.inside_ns;
  caller->children_outside_ns += outside_ns;
}

}  // namespace

extern "C" {

Inner timed_leaf(uint64_t spin_ns) {
  const uint64_t start_ns = now_mono_ns();
  spin(start_ns, spin_ns);
  return {.inside_ns = now_mono_ns() - start_ns};
}

Inner timed_inner(uint64_t spin_ns) {
  const uint64_t start_ns = now_mono_ns();
  spin(start_ns, spin_ns);
  return {.inside_ns = now_mono_ns() - start_ns};
}

// Spins before, between and after its inner calls.
Inner timed_outer(uint64_t spin_ns, uint64_t inner_calls) {
  Inner own;
  const uint64_t start_ns = now_mono_ns();
  spin(start_ns, spin_ns);
  for (uint64_t i = 0; i < inner_calls; ++i) {
    measure(g_inner, &own, timed_inner, spin_ns);
    spin(now_mono_ns(), spin_ns);
  }
  own.inside_ns = now_mono_ns() - start_ns;
  return own;
}

Inner timed_recurse(uint64_t spin_ns, uint64_t depth) {
  Inner own;
  const uint64_t start_ns = now_mono_ns();
  spin(start_ns, spin_ns);
  if (depth > 1) measure(g_recurse, &own, timed_recurse, spin_ns, depth - 1);
  own.inside_ns = now_mono_ns() - start_ns;
  return own;
}

}  // extern "C"

namespace {

// The smallest duration that `quantile` of all do not exceed.
uint64_t get_quantile(const std::vector<uint64_t>& sorted, double quantile) {
  const auto rank = static_cast<size_t>(std::ceil(quantile * static_cast<double>(sorted.size())));
  return sorted[std::clamp<size_t>(rank, 1, sorted.size()) - 1];
}

std::string render(std::vector<uint64_t> durations_ns, uint64_t self_ns) {
  std::ranges::sort(durations_ns);
  uint64_t total_ns = 0;
  for (const uint64_t duration_ns : durations_ns) total_ns += duration_ns;
  std::string text = "{\"total\":" + std::to_string(total_ns) +
                     ",\"self\":" + std::to_string(self_ns) +
                     ",\"min\":" + std::to_string(durations_ns.front()) +
                     ",\"max\":" + std::to_string(durations_ns.back());
  for (const auto& [name, quantile] :
       {std::pair{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p999", 0.999}}) {
    text +=
        ",\"" + std::string(name) + "\":" + std::to_string(get_quantile(durations_ns, quantile));
  }
  return text + "}";
}

std::string render(const std::string& name, const Lengths& lengths) {
  return ",\"" + name + "\":{\"calls\":" + std::to_string(lengths.inside_ns.size()) +
         ",\"inside\":" + render(lengths.inside_ns, lengths.inside_self_ns) +
         ",\"outside\":" + render(lengths.outside_ns, lengths.outside_self_ns) + "}";
}

}  // namespace

int main(int argc, char** argv) {
  const Options options(argc, argv,
                        {{"--calls", "2000"},  // of timed_leaf; of the others a tenth
                         {"--shortest-ns", "20000"},
                         {"--longest-ns", "500000"},
                         {"--seed", "1"},
                         {"--wait-for-file", ""},      // begin once it exists
                         {"--linger-for-file", ""}});  // exit once it exists
  const uint64_t calls = options.get_count("--calls");
  const auto shortest_ns = static_cast<double>(options.get_count("--shortest-ns"));
  const auto longest_ns = static_cast<double>(options.get_count("--longest-ns"));
  for (Lengths* lengths : {&g_leaf, &g_outer, &g_inner, &g_recurse}) {
    lengths->inside_ns.reserve(calls + 1);
    lengths->outside_ns.reserve(calls + 1);
  }
  wait_for_file(options.get_text("--wait-for-file"));

  // Every power of two as likely as every other: the quantiles lie far apart.
  std::mt19937_64 random(options.get_count("--seed"));
  std::uniform_real_distribution<double> exponent(std::log(shortest_ns), std::log(longest_ns));
  for (uint64_t i = 0; i < calls; ++i) {
    measure(g_leaf, nullptr, timed_leaf, static_cast<uint64_t>(std::exp(exponent(random))));
  }
  const auto short_ns = static_cast<uint64_t>(shortest_ns);
  for (uint64_t i = 0; i < calls / 10; ++i) measure(g_outer, nullptr, timed_outer, short_ns, 3ul);
  for (uint64_t i = 0; i < calls / 100; ++i) {
    measure(g_recurse, nullptr, timed_recurse, short_ns, 10ul);
  }

  print_line("{\"program\":\"timed_calls\",\"pid\":" + std::to_string(getpid()) +
             render("timed_leaf", g_leaf) + render("timed_outer", g_outer) +
             render("timed_inner", g_inner) + render("timed_recurse", g_recurse) + "}");
  wait_for_file(options.get_text("--linger-for-file"));
  return 0;
}
