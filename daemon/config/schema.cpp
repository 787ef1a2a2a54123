#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "bpf/records.h"
#include "daemon/config/argument_list.h"
#include "daemon/config/argument_type.h"
#include "daemon/config/config.h"
#include "daemon/config/error_text.h"
#include "daemon/config/probe_config.h"
#include "daemon/config/settings_table.h"
#include "daemon/model/step_role.h"

namespace gpuperf {
namespace {

using Json = nlohmann::ordered_json;

// A double without fraction is written as an integer: 100, not 100.0.
Json number_json(double number) {
  constexpr double kExactBelow = 9007199254740992;  // 2^53
  if (std::floor(number) == number && std::abs(number) < kExactBelow)
    return static_cast<int64_t>(number);
  return number;
}

// The value of a row's field, as JSON.
struct FieldValue {
  Settings& settings;
  Json operator()(const IntegerSetting& kind) const { return kind.field(settings); }
  Json operator()(const NumberSetting& kind) const { return number_json(kind.field(settings)); }
  Json operator()(const SwitchSetting& kind) const { return kind.field(settings); }
  Json operator()(const ChoiceSetting& kind) const { return kind.field(settings); }
  Json operator()(const TextSetting& kind) const { return kind.field(settings); }
  Json operator()(const MapSetting& kind) const { return kind.field(settings); }
  Json operator()(const NumberMapSetting& kind) const {
    Json numbers = Json::object();
    for (const auto& [name, number] : kind.field(settings)) numbers[name] = number_json(number);
    return numbers;
  }
};

Json value_of(const SettingRow& row, Settings settings) {
  return std::visit(FieldValue{settings}, row.kind);
}

struct TypeSchema {
  Json operator()(const IntegerSetting& kind) const {
    return {{"type", "integer"}, {"minimum", kind.min}, {"maximum", kind.max}};
  }
  Json operator()(const NumberSetting& kind) const {
    return {
        {"type", "number"}, {"minimum", number_json(kind.min)}, {"maximum", number_json(kind.max)}};
  }
  Json operator()(const SwitchSetting&) const { return {{"type", "boolean"}}; }
  Json operator()(const ChoiceSetting& kind) const {
    Json choices = Json::array();
    for (const std::string_view choice : kind.choices) choices.push_back(choice);
    return {{"type", "string"}, {"enum", std::move(choices)}};
  }
  Json operator()(const TextSetting& kind) const {
    return {{"type", "string"}, {"pattern", kind.schema_pattern}};
  }
  Json operator()(const MapSetting& kind) const {
    return {{"type", "object"},
            {"propertyNames", {{"pattern", kind.name_pattern}}},
            {"additionalProperties", {{"type", "string"}}}};
  }
  Json operator()(const NumberMapSetting& kind) const {
    return {{"type", "object"},
            {"propertyNames", {{"minLength", 1}}},
            {"additionalProperties",
             {{"type", "number"},
              {"minimum", number_json(kind.min)},
              {"maximum", number_json(kind.max)}}}};
  }
};

// The place of a row's key in the object of its section: "otlp.endpoint" is nested. `descend` makes
// one step down.
template <typename Descend>
Json& find_place(Json& section, std::string_view key, Descend descend) {
  Json* object = &section;
  for (size_t dot = key.find('.'); dot != key.npos; dot = key.find('.')) {
    object = &descend(*object, std::string(key.substr(0, dot)));
    key.remove_prefix(dot + 1);
  }
  return (*object)[std::string(key)];
}

// A reference that other keywords may stand beside: draft 7 ignores what is beside a plain $ref.
Json refer_to(const std::string& definition) {
  const Json reference = {{"$ref", "#/definitions/" + definition}};
  return {{"allOf", Json::array({reference})}};
}

Json settings_section_schema(std::string_view section) {
  Json keys = Json::object();
  for (const SettingRow& row : setting_rows()) {
    if (row.section != section) continue;
    Json schema = {{"description", row.help}};
    schema.update(std::visit(TypeSchema{}, row.kind));
    schema["default"] = value_of(row, Settings{});
    const auto descend = [](Json& object, const std::string& key) -> Json& {
      if (!object.contains(key)) {
        object[key] = {
            {"type", "object"}, {"additionalProperties", false}, {"properties", Json::object()}};
      }
      return object[key]["properties"];
    };
    find_place(keys, row.key, descend) = std::move(schema);
  }
  return {{"type", "object"}, {"additionalProperties", false}, {"properties", std::move(keys)}};
}

Json argument_key_schema(std::string_view key) {
  if (key == "name")
    return {{"type", "string"}, {"minLength", 1}, {"maxLength", kArgumentNameMaxBytes}};
  if (key == "arg") return {{"type", "integer"}, {"minimum", 0}, {"maximum", kArgumentMax}};
  if (key == "type") return {{"type", "string"}, {"pattern", argument_type_pattern()}};
  if (key == "deref") {
    return {{"type", "array"},
            {"minItems", 1},
            {"maxItems", GPUPERF_CHAIN},
            {"items", {{"type", "integer"}}}};
  }
  return {{"type", "boolean"}, {"default", false}};
}

// A decoder's name, or a typed list.
Json arguments_schema() {
  Json names = Json::array();
  for (const std::string_view name : argument_decoder_names()) names.push_back(name);
  Json keys = Json::object();
  for (const ArgumentKeyRow& row : argument_key_rows()) {
    Json schema = {{"description", row.help}};
    schema.update(argument_key_schema(row.key));
    keys[std::string(row.key)] = std::move(schema);
  }
  const Json item = {{"type", "object"},
                     {"additionalProperties", false},
                     {"required", Json::array({"name", "arg", "type"})},
                     {"properties", std::move(keys)}};
  const Json list = {
      {"type", "array"}, {"minItems", 1}, {"maxItems", GPUPERF_VALUES}, {"items", item}};
  const Json name = {{"enum", std::move(names)}};
  return {{"anyOf", Json::array({name, list})}};
}

Json probe_key_schema(std::string_view key) {
  if (key == "symbol" || key == "library") return refer_to(std::string(key));
  if (key == "slow_threshold_ms")
    return {{"type", "number"}, {"minimum", 0}, {"maximum", number_json(kThresholdMaxMs)}};
  if (key == "args") return arguments_schema();
  if (key == "role") {
    Json names = Json::array();
    for (const StepRoleRow& row : step_role_rows()) names.push_back(row.name);
    return {{"enum", std::move(names)}};
  }
  if (key == "may_throw") return {{"type", "boolean"}};
  return {{"type", "boolean"}, {"default", key == "probe"}};
}

Json probe_schema() {
  Json keys = Json::object();
  for (const ProbeKeyRow& row : probe_key_rows()) {
    Json schema = {{"description", row.help}};
    schema.update(probe_key_schema(row.key));
    keys[std::string(row.key)] = std::move(schema);
  }
  Json object = {
      {"type", "object"}, {"additionalProperties", false}, {"properties", std::move(keys)}};
  const Json symbol = {{"$ref", "#/definitions/symbol"}};
  return {{"anyOf", Json::array({symbol, std::move(object)})}};
}

Json definitions() {
  return {
      {"symbol",
       {{"description",
         "Symbol as the library exports it (cudaMalloc), with * for any characters (cudnn*), a C++ "
         "name without its parameters (torch::nn::LinearImpl::forward), or a static probe "
         "(provider:name)."},
        {"type", "string"},
        {"minLength", 1},
        // With "::" anything but parameters, else at most one colon and no spaces.
        {"pattern",
         R"(^(?=.*[^*: ])((?=.*::)([^()]|operator\(\)|\(anonymous namespace\))+|[^\s:]+(:[^\s:]+)?)$)"}}},
      {"library",
       {{"description", "Glob on the file name, or absolute path (a glob too)."},
        {"type", "string"},
        {"pattern", "^(/.*|[^/]+)$"}}},
      {"probe", probe_schema()},
      {"section",
       {{"description", "Display name -> symbol, or an object with one."},
        {"type", "object"},
        {"propertyNames", {{"minLength", 1}}},
        {"additionalProperties", {{"$ref", "#/definitions/probe"}}}}},
      {"library_list",
       {{"type", "array"}, {"minItems", 1}, {"items", {{"$ref", "#/definitions/library"}}}}},
  };
}

// `libraries` takes sections by their key or by their category.
Json libraries_schema() {
  Json properties = Json::object();
  for (const BuiltInSection& section : built_in_sections()) {
    Json schema = refer_to("library_list");
    if (!section.libraries.empty()) schema["default"] = section.libraries;
    properties[std::string(section.key)] = schema;
  }
  return {{"description",
           "Section -> libraries to look for its symbols in; replaces the built-in ones."},
          {"type", "object"},
          {"properties", std::move(properties)},
          {"additionalProperties", {{"$ref", "#/definitions/library_list"}}}};
}

std::string dump(const Json& json) { return json.dump(2) + "\n"; }

// A table cell must not end early.
std::string escape_cell(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

}  // namespace

std::string render_settings_json(const Settings& settings) {
  Json root = Json::object();
  for (const SettingRow& row : setting_rows()) {
    const auto descend = [](Json& object, const std::string& key) -> Json& { return object[key]; };
    find_place(root[std::string(row.section)], row.key, descend) = value_of(row, settings);
  }
  return dump(root);
}

std::string render_config_schema() {
  Json properties = Json::object();
  properties["$schema"] = {{"description", "This schema, for editors."}, {"type", "string"}};
  for (const BuiltInSection& section : built_in_sections()) {
    Json schema = {{"description", section.help}};
    schema.update(refer_to("section"));
    properties[std::string(section.key)] = std::move(schema);
  }
  properties["libraries"] = libraries_schema();
  properties["shipped_functions"] = {
      {"description",
       "Whether the functions shipped with gpuperf are also probed, with this file's changes to "
       "them. Default: only if no section lists functions."},
      {"type", "boolean"}};
  for (const std::string_view section : settings_sections())
    properties[std::string(section)] = settings_section_schema(section);
  return dump({{"$schema", "http://json-schema.org/draft-07/schema#"},
               {"title", "gpuperf configuration"},
               {"description",
                "Functions to probe and settings of gpuperfd. `gpuperfd --check --config FILE` "
                "checks more than a schema can."},
               {"type", "object"},
               {"additionalProperties", false},
               {"properties", std::move(properties)},
               {"patternProperties",
                {{"^(?!_func_sym$)[A-Za-z0-9_.-]+_sym$", {{"$ref", "#/definitions/section"}}}}},
               {"definitions", definitions()}});
}

std::string render_settings_reference() {
  std::string table =
      "| setting | must be | default | changed by | meaning |\n|---|---|---|---|---|\n";
  for (const SettingRow& row : setting_rows()) {
    table += "| `" + std::string(row.section) + "." + std::string(row.key) + "` | " +
             escape_cell(describe_expected(row)) + " | `" + value_of(row, Settings{}).dump() +
             "` | " + (row.effect == Effect::kReload ? "reload" : "restart") + " | " +
             escape_cell(row.help) + " |\n";
  }
  return table;
}

}  // namespace gpuperf
