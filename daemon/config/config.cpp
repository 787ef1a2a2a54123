#include "daemon/config/config.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "daemon/base/nearest_name.h"
#include "daemon/config/config_merge.h"
#include "daemon/config/error_text.h"
#include "daemon/config/json_document.h"
#include "daemon/config/probe_config.h"
#include "daemon/config/qos_rule.h"
#include "daemon/config/settings_table.h"

namespace gpuperf {
namespace {

constexpr std::string_view kLibrariesKey = "libraries";
constexpr std::string_view kShippedKey = "shipped_functions";
constexpr std::string_view kSchemaKey = "$schema";  // for editors; not looked at

bool contains(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

std::optional<ConfigError> find_text_fault(std::string_view text) {
  if (text.size() > kConfigMaxBytes) {
    return ConfigError{"$",
                       "the file has " + std::to_string(text.size()) + " bytes, at most " +
                           std::to_string(kConfigMaxBytes) + " are read",
                       "keep only the functions you want to see"};
  }
  if (text.find_first_not_of(" \t\r\n") == text.npos)
    return ConfigError{"$", "the file is empty", "the smallest configuration is {}"};
  return std::nullopt;
}

ConfigError unknown_key_error(std::string_view key) {
  std::vector<std::string_view> known(settings_sections().begin(), settings_sections().end());
  for (const BuiltInSection& section : built_in_sections()) known.push_back(section.key);
  known.push_back(kLibrariesKey);
  known.push_back(kShippedKey);
  return {
      json_child_path("$", key), "unknown key",
      hint_for_unknown(
          key, known,
          "a section of functions ends in \"_func_sym\" or \"_sym\"; sections of settings are " +
              join_names(settings_sections()))};
}

// The file's top level. Keys are handled in file order, so that errors come in that order too.
class TopLevel {
 public:
  explicit TopLevel(std::vector<ConfigError>& errors) : errors_(errors) {}

  void parse(const JsonObject& root, Config& config) {
    for (const JsonMember& member : root) {
      if (find_section_category(member.key)) section_keys_.push_back(member.key);
    }
    config.probes.libraries = parse_libraries(nullptr, section_keys_, errors_);
    for (const JsonMember& member : root) parse_member(member, config);
    if (entries_ == 0) {
      errors_.push_back({"$", "no function to probe",
                         R"(add a section such as "cuda_func_sym": {"cudaMalloc": "cudaMalloc"}, )"
                         R"(or "shipped_functions": true)"});
    }
  }

 private:
  void parse_member(const JsonMember& member, Config& config) {
    if (const auto category = find_section_category(member.key)) {
      check_unique_category(*category, member.key);
      parse_probe_section(member.key, member.value, config.probes.probes, errors_);
      const auto* object = std::get_if<JsonObject>(&member.value.value);
      // A section that is no object has its error already.
      entries_ += object ? object->size() : 1;
    } else if (contains(settings_sections(), member.key)) {
      parse_settings_section(member.key, member.value, config.settings, errors_);
    } else if (member.key == kLibrariesKey) {
      config.probes.libraries = parse_libraries(&member.value, section_keys_, errors_);
    } else if (member.key == kShippedKey) {
      if (std::holds_alternative<bool>(member.value.value)) return;
      errors_.push_back({"$.shipped_functions",
                         "must be true or false, is " + describe_node(member.value),
                         "true also probes the functions that gpuperf ships"});
    } else if (member.key != kSchemaKey) {
      errors_.push_back(unknown_key_error(member.key));
    }
  }

  // "cuda_func_sym" and "cuda_sym" would mix their functions under one name.
  void check_unique_category(std::string_view category, std::string_view key) {
    const auto [first, is_first] = key_of_category_.try_emplace(category, key);
    // An empty category has its own error.
    if (is_first || first->second == key || category.empty()) return;
    errors_.push_back({json_child_path("$", key),
                       "same category (" + quote_for_message(category) + ") as " +
                           json_child_path("$", first->second),
                       "merge the two sections"});
  }

  std::vector<ConfigError>& errors_;
  std::vector<std::string_view> section_keys_;
  std::map<std::string_view, std::string_view> key_of_category_;
  size_t entries_ = 0;  // of all probe sections, faulty ones included
};

// What no setting shows by itself: over TCP nothing but certificates says who calls.
std::optional<ConfigError> find_grpc_fault(const Settings& settings) {
  const auto& grpc = settings.grpc;
  if (grpc.listen.empty() || grpc.listen.starts_with("unix:")) return std::nullopt;
  std::vector<std::string_view> missing;
  if (grpc.cert_file.empty()) missing.push_back("grpc.cert_file");
  if (grpc.key_file.empty()) missing.push_back("grpc.key_file");
  if (grpc.client_ca_file.empty()) missing.push_back("grpc.client_ca_file");
  if (missing.empty()) return std::nullopt;
  return ConfigError{"$.grpc.listen",
                     "TCP needs certificates on both sides; not set: " + join_names(missing),
                     "set them, or listen on a Unix socket: unix:/run/gpuperf/api.sock"};
}

std::optional<ConfigError> find_qos_fault(const Settings& settings) {
  if (settings.qos.rules.size() <= kMaxQosRules) return std::nullopt;
  return ConfigError{"$.qos.rules", "has " + std::to_string(settings.qos.rules.size()) + " rules",
                     "at most " + std::to_string(kMaxQosRules) + " are watched; remove some"};
}

// The file's object; nothing when it has none, which is reported.
std::optional<JsonObject> parse_file(std::string_view text, std::vector<ConfigError>& errors) {
  if (std::optional<ConfigError> fault = find_text_fault(text)) {
    errors.push_back(*std::move(fault));
    return std::nullopt;
  }
  std::optional<JsonNode> root = parse_json_document(text, errors);
  if (!root) return std::nullopt;
  if (auto* object = std::get_if<JsonObject>(&root->value)) return std::move(*object);
  errors.push_back({"$", "must be an object, is " + describe_node(*root),
                    "put the whole configuration in one pair of braces"});
  return std::nullopt;
}

// Unless the files say so, only those that name no functions mean the shipped ones.
bool wants_shipped_functions(const JsonObject& root) {
  for (const JsonMember& member : root) {
    if (member.key != kShippedKey) continue;
    const bool* wanted = std::get_if<bool>(&member.value.value);
    return !wanted || *wanted;  // anything else is reported where it is parsed
  }
  return std::ranges::none_of(
      root, [](const JsonMember& member) { return find_section_category(member.key).has_value(); });
}

JsonObject add_shipped_functions(const JsonObject& root) {
  std::vector<ConfigError> errors;  // none: a test parses the shipped text
  JsonObject merged = parse_file(default_config_text(), errors).value_or(JsonObject{});
  merge_config(merged, root, [](const std::string&, const JsonNode*, const JsonNode&) {});
  return merged;
}

// The key of the section that was probably meant, a letter or two away.
std::optional<std::string_view> find_meant_section(std::string_view category) {
  std::vector<std::string_view> names;
  std::vector<std::string_view> keys;  // of the names
  for (const BuiltInSection& known : built_in_sections()) {
    for (const size_t end : {known.key.rfind("_func_sym"), known.key.rfind("_sym")}) {
      if (end == known.key.npos) continue;
      names.push_back(known.key.substr(0, end));
      keys.push_back(known.key);
    }
  }
  const auto nearest = find_misspelt_name(category, names);
  if (!nearest) return std::nullopt;
  return keys[std::ranges::find(names, *nearest) - names.begin()];
}

// Of sections whose functions are looked for in executables only because nothing else is said.
void add_section_warnings(const JsonObject& root, const ConfigMerge& merge, Config& config) {
  for (const JsonMember& member : root) {
    const auto category = find_section_category(member.key);
    if (!category || config.probes.libraries.contains(std::string(*category))) continue;
    const bool names_libraries = std::ranges::any_of(
        config.probes.probes,
        [&](const ProbeSpec& spec) { return spec.category == *category && !spec.library.empty(); });
    auto warning = find_section_warning(member.key);
    if (names_libraries || !warning || !find_meant_section(*category)) continue;
    warning->file = merge.find_file(warning->path);
    config.warnings.push_back(*std::move(warning));
  }
}

}  // namespace

std::optional<ConfigError> find_section_warning(std::string_view section) {
  const std::string_view category = find_section_category(section).value_or(section);
  std::vector<std::string_view> keys;
  for (const BuiltInSection& known : built_in_sections()) {
    if (*find_section_category(known.key) == category) return std::nullopt;
    keys.push_back(known.key);
  }
  const auto meant = find_meant_section(category);
  return ConfigError{json_child_path("$", section),
                     "unknown section: its functions are looked for in executables only",
                     (meant ? "did you mean \"" + std::string(*meant) + "\"?"
                            : "gpuperf knows " + join_names(keys) + ";") +
                         " to keep it, list its libraries under \"libraries\""};
}

std::variant<ProbeSpec, std::vector<ConfigError>> parse_probe(std::string_view section,
                                                              std::string_view name,
                                                              std::string_view value_json) {
  const std::string path = json_child_path(json_child_path("$", section), name);
  std::vector<ConfigError> errors;
  if (value_json.size() > kConfigMaxBytes) {
    return std::vector<ConfigError>{
        {path, "must be at most 1 MiB long", "write only what is needed"}};
  }
  const std::optional<JsonNode> value = parse_json_document(value_json, errors);
  // Paths in the value begin where the value stands.
  for (ConfigError& error : errors) {
    if (error.path.starts_with('$')) error.path.replace(0, 1, path);
  }
  if (!value) {
    errors.back().hint += R"(; a symbol is written in quotes: "cudaMalloc")";
    return errors;
  }
  std::optional<ProbeSpec> spec = parse_one_probe(section, name, *value, errors);
  if (!spec || !errors.empty()) return errors;
  return *std::move(spec);
}

std::variant<Config, std::vector<ConfigError>> parse_config(std::string_view text) {
  const ConfigFile file{.path = "", .text = std::string(text)};
  return parse_config(std::span(&file, 1));
}

std::variant<Config, std::vector<ConfigError>> parse_config(std::span<const ConfigFile> files) {
  std::vector<ConfigError> errors;
  ConfigMerge merge;
  bool is_complete = true;  // otherwise much would only seem to be missing
  for (const ConfigFile& file : files) {
    const size_t errors_before = errors.size();
    const auto object = parse_file(file.text, errors);
    if (object) merge.add(*object, file.path);
    is_complete = is_complete && object;
    for (size_t i = errors_before; i < errors.size(); ++i) errors[i].file = file.path;
  }
  if (!is_complete) return errors;
  JsonObject root = merge.root();
  if (wants_shipped_functions(root)) root = add_shipped_functions(root);
  const size_t errors_before = errors.size();
  Config config;
  TopLevel(errors).parse(root, config);
  for (const auto find_fault : {find_grpc_fault, find_qos_fault}) {
    if (auto fault = find_fault(config.settings)) errors.push_back(*std::move(fault));
  }
  for (size_t i = errors_before; i < errors.size(); ++i)
    errors[i].file = merge.find_file(errors[i].path);
  if (!errors.empty()) return errors;
  config.files.assign(files.begin(), files.end());
  config.warnings = merge.conflicts();
  add_section_warnings(root, merge, config);
  return config;
}

}  // namespace gpuperf
