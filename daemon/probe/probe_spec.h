#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/model/argument_plan.h"

namespace gpuperf {

// How a symbol of the configuration is written.
enum class SymbolForm {
  kExact,      // as the file spells it
  kWildcard,   // `*` matches any run of characters; each match is a function of its own, named by
               // its symbol
  kDemangled,  // a C++ name without its parameters: every overload counts as the one function
  kUsdt,       // "provider:name", a static probe: counted at entry
};
// The form a symbol has by its spelling: "::" demangled, one ":" USDT, "*" wildcard (demangled
// names may hold `*` too: then the pattern is on the demangled name).
SymbolForm find_symbol_form(std::string_view symbol);

// One function somebody wants probed, as the configuration says it.
struct ProbeSpec {
  std::string category;  // section name without "_func_sym" or "_sym"
  std::string function;  // display name
  std::string symbol;
  SymbolForm form = SymbolForm::kExact;
  std::string library;                        // glob or path; empty = the section's libraries
  std::optional<uint64_t> slow_threshold_ns;  // empty = slow.default_threshold_ms
  bool enabled = true;
  bool is_sampled = false;  // probed in short windows only, while there is an overhead budget
  // Whether a C++ exception may pass through it: then it gets no return probe. Empty = by category:
  // the C interfaces of CUDA, cuBLAS, cuDNN and NCCL let none through.
  std::optional<bool> may_throw;
  // From `args`; null = the built-in decoder of the symbol where there is one, else raw.
  std::shared_ptr<const ArgumentPlan> arguments;
  bool raw_arguments = false;  // "args": "raw": no decoder even where there is one
  bool operator==(const ProbeSpec&) const = default;
};

// Functions added or removed at run time.
struct ProbeOverride {
  std::string category;  // empty = every one
  std::string function;  // display name; `*` matches any run of characters
  bool enabled = false;
  bool operator==(const ProbeOverride&) const = default;
};

// A threshold set at run time.
struct ThresholdOverride {
  std::string category;                  // empty = every one
  std::string function;                  // display name; `*` matches any run of characters
  std::optional<uint64_t> threshold_ns;  // 0 = never slow by it; empty = as configured
  bool operator==(const ThresholdOverride&) const = default;
};

// The probe sections of a configuration.
struct ProbeConfig {
  std::vector<ProbeSpec> probes;              // in file order, then those added at run time
  std::vector<ProbeOverride> overrides;       // the last that matches decides
  std::vector<ThresholdOverride> thresholds;  // likewise
  // Category -> globs on the file name, or absolute paths (globs too). A category without an entry
  // here matches the executables of watched processes.
  std::map<std::string, std::vector<std::string>> libraries;
  bool operator==(const ProbeConfig&) const = default;
};

}  // namespace gpuperf
