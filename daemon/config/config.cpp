#include "daemon/config/config.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "daemon/config/error_text.h"
#include "daemon/config/json_document.h"
#include "daemon/config/probe_config.h"
#include "daemon/config/settings_table.h"

namespace gpuperf {
namespace {

constexpr std::string_view kLibrariesKey = "libraries";
constexpr std::string_view kSchemaKey = "$schema";  // for editors; not looked at

bool contains(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

std::optional<ConfigError> find_text_fault(std::string_view text) {
  constexpr std::string_view kEmptyHint =
      R"(the smallest configuration is {"cuda_func_sym": {"cudaMalloc": "cudaMalloc"}})";
  if (text.size() > kConfigMaxBytes) {
    return ConfigError{"$",
                       "the file has " + std::to_string(text.size()) + " bytes, at most " +
                           std::to_string(kConfigMaxBytes) + " are read",
                       "keep only the functions you want to see"};
  }
  if (text.find_first_not_of(" \t\r\n") == text.npos)
    return ConfigError{"$", "the file is empty", std::string(kEmptyHint)};
  return std::nullopt;
}

ConfigError unknown_key_error(std::string_view key) {
  std::vector<std::string_view> known(settings_sections().begin(), settings_sections().end());
  for (const BuiltInSection& section : built_in_sections()) known.push_back(section.key);
  known.push_back(kLibrariesKey);
  return {json_child_path("$", key), "unknown key",
          hint_for_unknown(key, known,
                           "a probe section ends in \"_func_sym\" or \"_sym\"; settings stand in " +
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
                         R"(add a section such as "cuda_func_sym": {"cudaMalloc": "cudaMalloc"})"});
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
                     "over TCP both sides must show a certificate; not set: " + join_names(missing),
                     "set them, or listen on a Unix socket: unix:/run/gpuperf/api.sock"};
}

}  // namespace

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
  if (std::optional<ConfigError> fault = find_text_fault(text))
    return std::vector<ConfigError>{*std::move(fault)};
  std::vector<ConfigError> errors;
  const std::optional<JsonNode> root = parse_json_document(text, errors);
  if (!root) return errors;
  const auto* object = std::get_if<JsonObject>(&root->value);
  if (!object) {
    errors.push_back({"$", "must be an object, is " + describe_node(*root),
                      "the whole configuration stands in one pair of braces"});
    return errors;
  }
  Config config;
  TopLevel(errors).parse(*object, config);
  if (auto fault = find_grpc_fault(config.settings)) errors.push_back(*std::move(fault));
  if (!errors.empty()) return errors;
  config.text = text;
  return config;
}

}  // namespace gpuperf
