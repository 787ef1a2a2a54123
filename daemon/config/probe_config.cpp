#include "daemon/config/probe_config.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "daemon/config/error_text.h"
#include "daemon/config/settings_table.h"

namespace gpuperf {
namespace {

constexpr size_t kNameMaxBytes = 256;      // a metrics label and a column of a table
constexpr size_t kSymbolMaxBytes = 4096;   // the longest mangled names of libtorch are near 2000
constexpr size_t kLibraryMaxBytes = 4095;  // PATH_MAX without its terminating zero

constexpr ProbeKeyRow kProbeKeys[] = {
    {"symbol", "Symbol as the library exports it; needed."},
    {"library", "Glob on the file name, or absolute path, in place of the section's libraries."},
    {"slow_threshold_ms",
     "A call at least this long is slow, in place of slow.default_threshold_ms. 0: never."},
    {"args", "How arguments are shown; \"raw\": the six argument registers."},
    {"probe", "false: known by name, not probed."},
};

constexpr std::string_view kArgumentDecoders[] = {"raw"};

constexpr std::string_view kSymbolHint = "`nm -D LIBRARY` lists the symbols a library exports";
constexpr std::string_view kLibraryHint =
    "write a glob on the file name (\"libfoo.so*\") or an absolute path (\"/opt/foo/libfoo.so\")";

// Where a fault goes, and under which path.
struct Place {
  std::string path;
  std::vector<ConfigError>& errors;

  void report(std::string message, std::string_view hint) const {
    errors.push_back({path, std::move(message), std::string(hint)});
  }
  Place child(std::string_view key) const { return {json_child_path(path, key), errors}; }
};

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

std::string limit_text(size_t max_bytes) {
  return "must be at most " + std::to_string(max_bytes) + " bytes long";
}

std::optional<std::string> read_symbol(const JsonNode& node, const Place& place) {
  const auto* symbol = std::get_if<std::string>(&node.value);
  if (!symbol) {
    place.report("must be a symbol, is " + describe_node(node), kSymbolHint);
  } else if (symbol->empty()) {
    place.report("must name a symbol, is empty", kSymbolHint);
  } else if (symbol->size() > kSymbolMaxBytes) {
    place.report(limit_text(kSymbolMaxBytes), kSymbolHint);
  } else if (has_control_character(*symbol) || std::ranges::any_of(*symbol, is_space)) {
    place.report("must be a symbol without spaces, is " + quote_for_message(*symbol), kSymbolHint);
  } else if (symbol->find('*') != symbol->npos) {
    place.report("wildcards are not supported in this version: " + quote_for_message(*symbol),
                 "name each function in an entry of its own");
  } else if (symbol->find("::") != symbol->npos) {
    place.report(
        "demangled C++ names are not supported in this version: " + quote_for_message(*symbol),
        "write the mangled name, as `nm -D LIBRARY` prints it");
  } else {
    return *symbol;
  }
  return std::nullopt;
}

std::optional<std::string> read_library(const JsonNode& node, const Place& place) {
  const auto* library = std::get_if<std::string>(&node.value);
  if (!library) {
    place.report("must be a glob or an absolute path, is " + describe_node(node), kLibraryHint);
  } else if (library->empty()) {
    place.report("must name a library, is empty", kLibraryHint);
  } else if (library->size() > kLibraryMaxBytes) {
    place.report(limit_text(kLibraryMaxBytes), kLibraryHint);
  } else if (has_control_character(*library)) {
    place.report("holds a control character: " + quote_for_message(*library), kLibraryHint);
  } else if (library->find('/') != library->npos && !library->starts_with('/')) {
    place.report("is neither a file name nor an absolute path: " + quote_for_message(*library),
                 kLibraryHint);
  } else {
    return *library;
  }
  return std::nullopt;
}

void read_threshold(const JsonNode& node, const Place& place, ProbeSpec& spec) {
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
               "in milliseconds; with 0 the function has no slow calls");
}

void check_argument_decoder(const JsonNode& node, const Place& place) {
  const auto* name = std::get_if<std::string>(&node.value);
  if (name && std::ranges::find(kArgumentDecoders, *name) != std::end(kArgumentDecoders)) return;
  if (std::holds_alternative<JsonArray>(node.value)) {
    place.report("typed argument lists are not supported in this version",
                 "leave it out, or write \"raw\" for the six argument registers");
    return;
  }
  place.report("must be the name of an argument decoder, is " + describe_node(node),
               "known: " + join_names(kArgumentDecoders));
}

std::vector<std::string_view> probe_keys() {
  std::vector<std::string_view> keys;
  for (const ProbeKeyRow& row : kProbeKeys) keys.push_back(row.key);
  return keys;
}

// One member of a probe that is written as an object.
void read_probe_member(const JsonMember& member, const Place& place, ProbeSpec& spec) {
  if (member.key == "symbol") {
    spec.symbol = read_symbol(member.value, place).value_or("");
  } else if (member.key == "library") {
    spec.library = read_library(member.value, place).value_or("");
  } else if (member.key == "slow_threshold_ms") {
    read_threshold(member.value, place, spec);
  } else if (member.key == "args") {
    check_argument_decoder(member.value, place);
  } else if (member.key == "probe") {
    if (const auto* enabled = std::get_if<bool>(&member.value.value)) {
      spec.enabled = *enabled;
    } else {
      place.report("must be true or false, is " + describe_node(member.value),
                   "with false the function is known by name and not probed");
    }
  } else {
    const std::vector<std::string_view> keys = probe_keys();
    place.report("unknown key",
                 hint_for_unknown(member.key, keys, "a probe holds " + join_names(keys)));
  }
}

// Fills in all but category and function.
void read_probe(const JsonNode& node, const Place& place, ProbeSpec& spec) {
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
  for (const JsonMember& member : *object) {
    has_symbol = has_symbol || member.key == "symbol";
    read_probe_member(member, place.child(member.key), spec);
  }
  if (!has_symbol) place.report("has no symbol", R"(add "symbol": "name of the function")");
}

void check_display_name(std::string_view name, const Place& place) {
  constexpr std::string_view kHint = "the key is the name under which the function is shown";
  if (name.empty()) place.report("the display name is empty", kHint);
  if (name.size() > kNameMaxBytes)
    place.report("the display name " + limit_text(kNameMaxBytes), kHint);
  if (has_control_character(name))
    place.report("the display name holds a control character", kHint);
}

bool is_category_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

void check_category(std::string_view category, const Place& place) {
  if (category.empty()) {
    place.report("the section has no name before its ending",
                 "write what the functions belong to: \"mylib_func_sym\"");
  } else if (category.size() > kNameMaxBytes) {
    place.report("the section's name " + limit_text(kNameMaxBytes), "shorten it");
  } else if (!std::ranges::all_of(category, is_category_character)) {
    place.report("the section's name must be letters, digits, '_', '-' and '.'",
                 "it becomes the category of its functions in tables, filters and metrics");
  }
}

// The list of one section under `libraries`; empty when it has a fault.
std::vector<std::string> read_library_list(const JsonNode& node, const Place& place) {
  const auto* array = std::get_if<JsonArray>(&node.value);
  if (!array) {
    place.report("must be a list of globs or absolute paths, is " + describe_node(node),
                 R"(write ["libfoo.so*"])");
    return {};
  }
  if (array->empty()) {
    place.report("must hold at least one glob or absolute path, is empty",
                 "leave the section out here for its built-in libraries");
    return {};
  }
  std::vector<std::string> globs;
  for (size_t i = 0; i < array->size(); ++i) {
    const Place item{place.path + "[" + std::to_string(i) + "]", place.errors};
    if (std::optional<std::string> glob = read_library((*array)[i], item))
      globs.push_back(*std::move(glob));
  }
  return globs;
}

}  // namespace

const std::vector<BuiltInSection>& built_in_sections() {
  // The names with a hyphen are those of libraries in Python wheels repaired by auditwheel.
  // cuDNN: only the library that programs link. It forwards to libcudnn_graph, _ops, _cnn and _adv,
  // which export the same names again: probing those too would count each call twice.
  static const std::vector<BuiltInSection> kSections = {
      {"cuda_func_sym",
       "Functions of the CUDA runtime and driver.",
       {"libcudart.so*", "libcudart-*.so*", "libcuda.so*"}},
      {"cublas_func_sym",
       "Functions of cuBLAS and cuBLASLt.",
       {"libcublas.so*", "libcublas-*.so*", "libcublasLt.so*", "libcublasLt-*.so*"}},
      {"cudnn_func_sym", "Functions of cuDNN.", {"libcudnn.so*", "libcudnn-*.so*"}},
      {"nccl_func_sym", "Functions of NCCL.", {"libnccl.so*", "libnccl-*.so*"}},
      {"libtorch_func_sym",
       "Functions of PyTorch, by mangled name.",
       {"libtorch*.so*", "libc10*.so*"}},
      {"custom_sym",
       "Any function: of the libraries named under libraries.custom_sym, or of the executables of "
       "watched processes.",
       {}},
  };
  return kSections;
}

std::span<const ProbeKeyRow> probe_key_rows() { return kProbeKeys; }

std::span<const std::string_view> argument_decoder_names() { return kArgumentDecoders; }

std::optional<std::string_view> find_section_category(std::string_view key) {
  for (const std::string_view ending : {"_func_sym", "_sym"}) {
    if (key.ends_with(ending)) return key.substr(0, key.size() - ending.size());
  }
  return std::nullopt;
}

void parse_probe_section(std::string_view key, const JsonNode& node, std::vector<ProbeSpec>& probes,
                         std::vector<ConfigError>& errors) {
  const Place place{json_child_path("$", key), errors};
  const std::string_view category = find_section_category(key).value_or("");
  check_category(category, place);
  const auto* object = std::get_if<JsonObject>(&node.value);
  if (!object) {
    place.report("must be an object of display name -> symbol, is " + describe_node(node),
                 R"(write {"cudaMalloc": "cudaMalloc"})");
    return;
  }
  for (const JsonMember& member : *object) {
    const size_t errors_before = errors.size();
    const Place probe_place = place.child(member.key);
    check_display_name(member.key, probe_place);
    ProbeSpec spec{.category = std::string(category), .function = member.key};
    read_probe(member.value, probe_place, spec);
    if (errors.size() == errors_before) probes.push_back(std::move(spec));
  }
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

  const Place place{"$.libraries", errors};
  const auto* object = std::get_if<JsonObject>(&node->value);
  if (!object) {
    place.report("must be an object of section -> list, is " + describe_node(*node),
                 R"(write {"custom_sym": ["libfoo.so*"]})");
    return libraries;
  }
  std::map<std::string_view, std::string_view> given;  // category -> key that gave it
  for (const JsonMember& member : *object) {
    const Place entry = place.child(member.key);
    const auto found = category_of.find(member.key);
    if (found == category_of.end()) {
      entry.report("no section of this name",
                   hint_for_unknown(member.key, known, "name a probe section of this file"));
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
