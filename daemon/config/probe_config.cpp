#include "daemon/config/probe_config.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "daemon/config/argument_list.h"
#include "daemon/config/error_text.h"
#include "daemon/config/fault_place.h"
#include "daemon/config/settings_table.h"
#include "daemon/config/symbol_text.h"
#include "daemon/model/step_role.h"
#include "daemon/probe/arguments/argument_decoders.h"

namespace gpuperf {
namespace {

constexpr size_t kNameMaxBytes = 256;      // a metrics label and a column of a table
constexpr size_t kLibraryMaxBytes = 4095;  // PATH_MAX without its terminating zero

constexpr ProbeKeyRow kProbeKeys[] = {
    {"symbol",
     "Symbol as the library exports it, a pattern with * for any characters, a C++ name without "
     "its parameters, or a static probe as provider:name. Required, unless the shipped functions "
     "or an earlier file define it."},
    {"library",
     "Glob on the file name, or absolute path; replaces the section's libraries for this "
     "function."},
    {"slow_threshold_ms",
     "A call that takes at least this long is slow; replaces slow.default_threshold_ms. 0: never."},
    {"args",
     "How arguments are decoded: the name of a built-in decoder, a list of typed arguments, or "
     "\"raw\" for the six argument registers. Default: the function's built-in decoder, if it has "
     "one."},
    {"role",
     "What its calls say about the steps of an inference or training loop: step, step_part, "
     "step_wait, backward, optimizer or operator; see docs/steps.md. Then each call is reported."},
    {"probe", "false: the function is configured but disabled."},
    {"sample",
     "true: the function is probed in short windows only, and its other calls are estimated from "
     "them. For functions whose calls are so short and frequent that a probe costs more than "
     "overhead.budget_percent. Without a budget it is probed all the time."},
    {"may_throw",
     "Whether a C++ exception may pass through the function. If so, it is timed at its own returns "
     "and tail jumps, or only counted, because a return probe would abort the program. Default: "
     "false for the C functions of the cuda, cublas, cudnn and nccl sections, true for all others "
     "and for C++ names."},
};

constexpr std::string_view kLibraryHint =
    "write a glob on the file name (\"libfoo.so*\") or an absolute path (\"/opt/foo/libfoo.so\")";

std::string limit_text(size_t max_bytes) {
  return "must be at most " + std::to_string(max_bytes) + " bytes long";
}

std::optional<std::string> read_library(const JsonNode& node, const FaultPlace& place) {
  const auto* library = std::get_if<std::string>(&node.value);
  if (!library) {
    place.report("must be a glob or an absolute path, is " + describe_node(node), kLibraryHint);
  } else if (library->empty()) {
    place.report("must name a library, is empty", kLibraryHint);
  } else if (library->size() > kLibraryMaxBytes) {
    place.report(limit_text(kLibraryMaxBytes), kLibraryHint);
  } else if (has_control_character(*library)) {
    place.report("contains a control character: " + quote_for_message(*library), kLibraryHint);
  } else if (library->find('/') != library->npos && !library->starts_with('/')) {
    place.report("is neither a file name nor an absolute path: " + quote_for_message(*library),
                 kLibraryHint);
  } else {
    return *library;
  }
  return std::nullopt;
}

void read_threshold(const JsonNode& node, const FaultPlace& place, ProbeSpec& spec) {
  double threshold_ms = -1;
  if (const auto* number = std::get_if<uint64_t>(&node.value))
    threshold_ms = static_cast<double>(*number);
  if (const auto* number = std::get_if<double>(&node.value)) threshold_ms = *number;
  if (threshold_ms >= 0 && threshold_ms <= kThresholdMaxMs) {
    spec.slow_threshold_ns = threshold_ns_from_ms(threshold_ms);
    return;
  }
  place.report("must be a number from 0 to " + format_number(kThresholdMaxMs) + ", is " +
                   describe_node(node),
               "give milliseconds; with 0 the function has no slow calls");
}

std::optional<bool> read_switch(const JsonNode& node, const FaultPlace& place,
                                std::string_view hint) {
  if (const auto* value = std::get_if<bool>(&node.value)) return *value;
  place.report("must be true or false, is " + describe_node(node), hint);
  return std::nullopt;
}

StepRole read_role(const JsonNode& node, const FaultPlace& place) {
  const auto* name = std::get_if<std::string>(&node.value);
  const auto role = name ? find_step_role(*name) : std::nullopt;
  if (role) return *role;
  std::vector<std::string_view> names;
  for (const StepRoleRow& row : step_role_rows()) names.push_back(row.name);
  place.report("must be one of " + join_names(names) + ", is " + describe_node(node),
               "docs/steps.md says what each is for");
  return StepRole::kNone;
}

// A role is part of the plan: it decides what the kernel reports.
void set_role(StepRole role, ProbeSpec& spec) {
  if (role == StepRole::kNone) return;
  spec.arguments = add_role(spec.arguments ? *spec.arguments : ArgumentPlan(), role);
}

std::vector<std::string_view> probe_keys() {
  std::vector<std::string_view> keys;
  for (const ProbeKeyRow& row : kProbeKeys) keys.push_back(row.key);
  return keys;
}

// One member of a probe that is written as an object.
void read_probe_member(const JsonMember& member, const FaultPlace& place, ProbeSpec& spec,
                       StepRole& role) {
  if (member.key == "symbol") {
    spec.symbol = read_symbol(member.value, place).value_or("");
  } else if (member.key == "library") {
    spec.library = read_library(member.value, place).value_or("");
  } else if (member.key == "slow_threshold_ms") {
    read_threshold(member.value, place, spec);
  } else if (member.key == "args") {
    read_arguments(member.value, place, spec);
  } else if (member.key == "role") {
    role = read_role(member.value, place);
  } else if (member.key == "probe") {
    spec.enabled =
        read_switch(member.value, place, "false keeps the function configured but disabled")
            .value_or(true);
  } else if (member.key == "sample") {
    spec.is_sampled =
        read_switch(member.value, place, "true counts it in short windows only").value_or(false);
  } else if (member.key == "may_throw") {
    spec.may_throw = read_switch(member.value, place,
                                 "write false only if no C++ exception can ever pass through: one "
                                 "that does aborts the program");
  } else {
    const std::vector<std::string_view> keys = probe_keys();
    place.report("unknown key",
                 hint_for_unknown(member.key, keys, "the keys of a probe are " + join_names(keys)));
  }
}

// A static probe is a place in the code and no function: no arguments by their position, no end.
void check_static_probe(const JsonObject& object, const FaultPlace& place) {
  for (const JsonMember& member : object) {
    if (member.key == "args")
      place.child(member.key)
          .report("a static probe (provider:name) has no arguments to decode",
                  "remove this key, or probe the function that contains the static probe");
    if (member.key == "role")
      place.child(member.key)
          .report("a static probe (provider:name) is only counted, so it cannot be a step",
                  "remove this key, or probe the function that contains the static probe");
    if (member.key == "slow_threshold_ms")
      place.child(member.key)
          .report("a static probe (provider:name) is only counted, so it has no threshold",
                  "remove this key, or probe the function that contains the static probe");
  }
}

// Fills in all but category, function and form.
void read_probe(const JsonNode& node, const FaultPlace& place, ProbeSpec& spec) {
  if (std::holds_alternative<std::string>(node.value)) {
    spec.symbol = read_symbol(node, place).value_or("");
    return;
  }
  const auto* object = std::get_if<JsonObject>(&node.value);
  if (!object) {
    place.report("must be a symbol or an object with one, is " + describe_node(node),
                 R"(write "cudaMalloc" or {"symbol": "cudaMalloc", "slow_threshold_ms": 5})");
    return;
  }
  bool has_symbol = false;
  StepRole role = StepRole::kNone;
  for (const JsonMember& member : *object) {
    has_symbol = has_symbol || member.key == "symbol";
    read_probe_member(member, place.child(member.key), spec, role);
  }
  set_role(role, spec);
  if (!has_symbol) place.report("has no symbol", R"(add "symbol": "name of the function")");
  if (find_symbol_form(spec.symbol) == SymbolForm::kUsdt) check_static_probe(*object, place);
}

void check_display_name(std::string_view name, const FaultPlace& place) {
  constexpr std::string_view kHint = "use the function's display name as the key";
  if (name.empty()) place.report("the display name is empty", kHint);
  if (name.size() > kNameMaxBytes)
    place.report("the display name " + limit_text(kNameMaxBytes), kHint);
  if (has_control_character(name))
    place.report("the display name contains a control character", kHint);
}

// One entry of a section; nothing when it has a fault.
std::optional<ProbeSpec> read_named_probe(std::string_view category, std::string_view name,
                                          const JsonNode& value, const FaultPlace& place) {
  const size_t errors_before = place.errors.size();
  check_display_name(name, place);
  ProbeSpec spec{.category = std::string(category), .function = std::string(name)};
  read_probe(value, place, spec);
  spec.form = find_symbol_form(spec.symbol);
  if (place.errors.size() != errors_before) return std::nullopt;
  return spec;
}

bool is_category_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

void check_category(std::string_view category, const FaultPlace& place) {
  if (category.empty()) {
    place.report("the section has no name before its ending",
                 "start it with what the functions belong to: \"mylib_func_sym\"");
  } else if (category.size() > kNameMaxBytes) {
    place.report("the section's name " + limit_text(kNameMaxBytes), "shorten it");
  } else if (!std::ranges::all_of(category, is_category_character)) {
    place.report("the section's name must be letters, digits, '_', '-' and '.'",
                 "it becomes the category of its functions in tables, filters and metrics");
  }
}

// The list of one section under `libraries`; empty when it has a fault.
std::vector<std::string> read_library_list(const JsonNode& node, const FaultPlace& place) {
  const auto* array = std::get_if<JsonArray>(&node.value);
  if (!array) {
    place.report("must be a list of globs or absolute paths, is " + describe_node(node),
                 R"(write ["libfoo.so*"])");
    return {};
  }
  if (array->empty()) {
    place.report("must contain at least one glob or absolute path, is empty",
                 "remove the section here to use its built-in libraries");
    return {};
  }
  std::vector<std::string> globs;
  for (size_t i = 0; i < array->size(); ++i) {
    if (std::optional<std::string> glob = read_library((*array)[i], place.item(i)))
      globs.push_back(*std::move(glob));
  }
  return globs;
}

}  // namespace

const std::vector<BuiltInSection>& built_in_sections() {
  // The names with a hyphen are those of libraries in Python wheels repaired by auditwheel.
  // cuDNN: libcudnn forwards to libcudnn_graph, _ops, _cnn and _adv, which export the same names.
  // All are probed, since a program may link either; the kernel side counts a call of a function
  // that directly contains a call of the same function in another file once.
  static const std::vector<BuiltInSection> kSections = {
      {"cuda_func_sym",
       "Functions of the CUDA runtime and driver.",
       {"libcudart.so*", "libcudart-*.so*", "libcuda.so*"}},
      {"cublas_func_sym",
       "Functions of cuBLAS and cuBLASLt.",
       {"libcublas.so*", "libcublas-*.so*", "libcublasLt.so*", "libcublasLt-*.so*"}},
      {"cudnn_func_sym", "Functions of cuDNN.", {"libcudnn*.so*"}},
      {"nccl_func_sym", "Functions of NCCL.", {"libnccl.so*", "libnccl-*.so*"}},
      {"libtorch_func_sym",
       "Functions of PyTorch, by C++ name or mangled name.",
       {"libtorch*.so*", "libc10*.so*"}},
      {"llama_func_sym",
       "Functions of llama.cpp: the steps of its inference loop.",
       {"libllama.*so*"}},
      {"ggml_func_sym",
       "Functions of ggml, which llama.cpp and others compute with: the operators of a step.",
       {"libggml*.so*"}},
      {"custom_sym",
       "Any function, in the libraries listed in libraries.custom_sym or in the executables of "
       "watched processes.",
       {}},
  };
  return kSections;
}

std::span<const ProbeKeyRow> probe_key_rows() { return kProbeKeys; }

std::optional<std::string_view> find_section_category(std::string_view key) {
  for (const std::string_view ending : {"_func_sym", "_sym"}) {
    if (key.ends_with(ending)) return key.substr(0, key.size() - ending.size());
  }
  return std::nullopt;
}

void parse_probe_section(std::string_view key, const JsonNode& node, std::vector<ProbeSpec>& probes,
                         std::vector<ConfigError>& errors) {
  const FaultPlace place{json_child_path("$", key), errors};
  const std::string_view category = find_section_category(key).value_or("");
  check_category(category, place);
  const auto* object = std::get_if<JsonObject>(&node.value);
  if (!object) {
    place.report("must be an object of display name -> symbol, is " + describe_node(node),
                 R"(write {"cudaMalloc": "cudaMalloc"})");
    return;
  }
  for (const JsonMember& member : *object) {
    if (auto spec = read_named_probe(category, member.key, member.value, place.child(member.key)))
      probes.push_back(*std::move(spec));
  }
}

std::optional<ProbeSpec> parse_one_probe(std::string_view section, std::string_view name,
                                         const JsonNode& value, std::vector<ConfigError>& errors) {
  const FaultPlace place{json_child_path("$", section), errors};
  const std::string_view category = find_section_category(section).value_or(section);
  const size_t errors_before = errors.size();
  check_category(category, place);
  auto spec = read_named_probe(category, name, value, place.child(name));
  return errors.size() == errors_before ? std::move(spec) : std::nullopt;
}

std::map<std::string, std::vector<std::string>> parse_libraries(
    const JsonNode* node, std::span<const std::string_view> section_keys,
    std::vector<ConfigError>& errors) {
  std::map<std::string, std::vector<std::string>> libraries;
  std::map<std::string_view, std::string_view> category_of;  // accepted key -> category
  std::vector<std::string_view> known(section_keys.begin(), section_keys.end());
  for (const BuiltInSection& section : built_in_sections()) {
    known.push_back(section.key);
    if (section.libraries.empty()) continue;
    libraries[std::string(*find_section_category(section.key))] = {section.libraries.begin(),
                                                                   section.libraries.end()};
  }
  for (const std::string_view key : known) {
    const std::string_view category = *find_section_category(key);
    category_of[key] = category;
    category_of[category] = category;
  }
  if (!node) return libraries;

  const FaultPlace place{"$.libraries", errors};
  const auto* object = std::get_if<JsonObject>(&node->value);
  if (!object) {
    place.report("must be an object of section -> list, is " + describe_node(*node),
                 R"(write {"custom_sym": ["libfoo.so*"]})");
    return libraries;
  }
  std::map<std::string_view, std::string_view> given;  // category -> key that gave it
  for (const JsonMember& member : *object) {
    const FaultPlace entry = place.child(member.key);
    const auto found = category_of.find(member.key);
    if (found == category_of.end()) {
      entry.report("no section of this name",
                   hint_for_unknown(member.key, known,
                                    "use the name of a section of functions in this file"));
      continue;
    }
    const auto [first, is_first] = given.try_emplace(found->second, member.key);
    if (!is_first && first->second != member.key) {
      entry.report("same section as " + json_child_path(place.path, first->second),
                   "merge the two lists");
    }
    libraries[std::string(found->second)] = read_library_list(member.value, entry);
  }
  return libraries;
}

uint64_t threshold_ns_from_ms(double threshold_ms) {
  if (threshold_ms <= 0) return 0;
  return std::max<uint64_t>(1, static_cast<uint64_t>(std::llround(threshold_ms * 1e6)));
}

}  // namespace gpuperf
