#include "daemon/config/settings_table.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/config/address_format.h"
#include "daemon/config/config.h"
#include "daemon/config/error_text.h"
#include "support.h"

namespace gpuperf {
namespace {

using Json = nlohmann::json;

// The place of a row in the settings: "otlp.endpoint" is nested.
Json& find_value(Json& root, const SettingRow& row) {
  Json* object = &root[std::string(row.section)];
  std::string_view key = row.key;
  for (size_t dot = key.find('.'); dot != key.npos; dot = key.find('.')) {
    object = &(*object)[std::string(key.substr(0, dot))];
    key.remove_prefix(dot + 1);
  }
  return (*object)[std::string(key)];
}

std::variant<Config, std::vector<ConfigError>> parse_with(const SettingRow& row,
                                                          const Json& value) {
  Json root = {{"x_sym", {{"f", "f"}}}};
  find_value(root, row) = value;
  return parse_config(root.dump());
}

bool accepts(const SettingRow& row, const Json& value) {
  return std::holds_alternative<Config>(parse_with(row, value));
}

TEST(SettingsTest, AcceptBothEndsOfTheirRangeAndNothingBeyond) {
  for (const SettingRow& row : setting_rows()) {
    SCOPED_TRACE(std::string(row.section) + "." + std::string(row.key));
    if (const auto* integer = std::get_if<IntegerSetting>(&row.kind)) {
      EXPECT_TRUE(accepts(row, integer->min));
      EXPECT_TRUE(accepts(row, integer->max));
      EXPECT_FALSE(accepts(row, integer->max + 1));
      EXPECT_FALSE(accepts(row, static_cast<int64_t>(integer->min) - 1));
      EXPECT_FALSE(accepts(row, static_cast<double>(integer->min) + 0.5));
    } else if (const auto* number = std::get_if<NumberSetting>(&row.kind)) {
      EXPECT_TRUE(accepts(row, number->min));
      EXPECT_TRUE(accepts(row, number->max));
      EXPECT_FALSE(accepts(row, number->max + 1));
      EXPECT_FALSE(accepts(row, number->min - 0.001));
    }
  }
}

TEST(SettingsTest, RefuseEveryOtherType) {
  const std::vector<Json> values = {nullptr, true, 1, "text", Json::array(), Json::object()};
  for (const SettingRow& row : setting_rows()) {
    SCOPED_TRACE(std::string(row.section) + "." + std::string(row.key));
    Json defaults = Json::parse(render_settings_json(Settings{}));
    const Json default_value = find_value(defaults, row);
    for (const Json& value : values) {
      const bool same_type =
          value.type() == default_value.type() || (value.is_number() && default_value.is_number());
      if (same_type) continue;
      EXPECT_FALSE(accepts(row, value)) << value;
    }
  }
}

// Each row writes its own field: a row copied from another one fails here.
TEST(SettingsTest, ReachTheFieldTheyAreNamedAfter) {
  const Json defaults = Json::parse(render_settings_json(Settings{}));
  for (const SettingRow& row : setting_rows()) {
    SCOPED_TRACE(std::string(row.section) + "." + std::string(row.key));
    Json expected = defaults;
    Json& field = find_value(expected, row);
    if (const auto* integer = std::get_if<IntegerSetting>(&row.kind)) field = integer->max;
    if (std::holds_alternative<NumberSetting>(row.kind)) field = 7;
    if (std::holds_alternative<SwitchSetting>(row.kind)) field = !field.get<bool>();
    if (std::holds_alternative<ChoiceSetting>(row.kind)) field = "error";
    if (std::holds_alternative<TextSetting>(row.kind)) field = field == "" ? "/run/other.json" : "";
    if (row.key == "otlp.endpoint") field = "http://[::1]:4317";
    if (std::holds_alternative<MapSetting>(row.kind)) field = {{"a.b", "c"}};
    if (row.section == "qos" && row.key == "rules")
      field = {{"a", "gpuperf_processes > 1: freeze"}};
    if (std::holds_alternative<NumberMapSetting>(row.kind)) field = {{"a*", 7}};

    const auto parsed = parse_with(row, field);

    ASSERT_TRUE(std::holds_alternative<Config>(parsed));
    EXPECT_NE(expected, defaults);
    EXPECT_EQ(Json::parse(render_settings_json(std::get<Config>(parsed).settings)), expected);
  }
}

TEST(SettingsTest, HaveDefaultsThatAreThemselvesAccepted) {
  Json root = Json::parse(render_settings_json(Settings{}));
  root["x_sym"] = {{"f", "f"}};

  const auto parsed = parse_config(root.dump());

  ASSERT_TRUE(std::holds_alternative<Config>(parsed));
  EXPECT_EQ(render_settings_json(std::get<Config>(parsed).settings),
            render_settings_json(Settings{}));
}

TEST(SettingsTest, AreNamedOnceAndExplained) {
  std::set<std::pair<std::string_view, std::string_view>> names;
  for (const SettingRow& row : setting_rows()) {
    EXPECT_TRUE(names.insert({row.section, row.key}).second) << row.section << "." << row.key;
    EXPECT_TRUE(row.help.ends_with('.')) << row.help;
  }
}

TEST(AddressTest, TakesEveryFormOfEndpoint) {
  for (const char* endpoint : {"", "http://collector:4317", "https://collector", "http://[::1]",
                               "https://[::1]:4317/", "http://10.0.0.1:1"}) {
    EXPECT_EQ(find_endpoint_fault(endpoint), std::nullopt) << endpoint;
  }
}

TEST(AddressTest, RefusesOtherEndpointsAndSaysWhatToWrite) {
  const std::pair<const char*, const char*> cases[] = {
      {"collector:4317", "write http://host:4317, or https://host:4317 for TLS"},
      {"http://", "the host is missing: http://host:4317"},
      {"http://host:4318/v1/traces",
       "leave out the path: data is sent over gRPC, to port 4317 as a rule"},
      {"https://me:secret@host:4317",
       "leave out user and password: send a header \"authorization\""},
      {"http://host:0", "port 0 cannot be reached"},
      {"http://host:70000", "the port is not a number from 0 to 65535"},
  };
  for (const auto& [endpoint, hint] : cases) {
    EXPECT_EQ(find_endpoint_fault(endpoint), hint) << endpoint;
  }
}

TEST(AddressTest, TakesEveryFormOfTcpAddress) {
  for (const char* address : {"", "127.0.0.1:9465", "0.0.0.0:0", "localhost:65535", "[::]:1",
                              "[fe80::1]:9465", "gpu-host_7.example.org:80"}) {
    EXPECT_EQ(find_tcp_address_fault(address), std::nullopt) << address;
  }
}

TEST(AddressTest, SaysWhatIsWrongWithATcpAddress) {
  const std::string form = "; write host:port, for example 127.0.0.1:9465 or [::1]:9465";
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"localhost", "no port" + form},
      {":9465", "no host (every interface is 0.0.0.0)" + form},
      {"::1:9465", "an IPv6 address needs brackets" + form},
      {"localhost:", "the port is not a number from 0 to 65535" + form},
      {"localhost:65536", "the port is not a number from 0 to 65535" + form},
      {"localhost:-1", "the port is not a number from 0 to 65535" + form},
      {"localhost: 80", "the port is not a number from 0 to 65535" + form},
      {"[::1:80", "no \"]\" before the port" + form},
      {"[::g]:80", "\"::g\" is not an IPv6 address"},
      {"256.0.0.1:80", "\"256.0.0.1\" is not an IPv4 address"},
      {"local host:80", "\"local host\" is not a host name"},
      {"http://localhost:80", "remove what comes before the host"},
      {"unix:/run/x.sock", "the port is not a number from 0 to 65535" + form},
  };
  for (const auto& [address, fault] : rows) {
    EXPECT_EQ(find_tcp_address_fault(address), fault) << address;
  }
}

TEST(AddressTest, TakesSocketsAndTcpForTheApi) {
  const std::string longest = "unix:/" + std::string(106, 'x');
  const std::vector<std::pair<std::string, std::optional<std::string>>> rows = {
      {"", std::nullopt},
      {"unix:/run/gpuperf/api.sock", std::nullopt},
      {"unix:///run/gpuperf/api.sock", std::nullopt},
      {"[::1]:50051", std::nullopt},
      {longest, std::nullopt},
      {longest + "x", "a socket's path has at most 107 bytes"},
      {"unix:", "the path must be absolute: unix:/run/gpuperf/api.sock"},
      {"unix:/", "the path must name a file: unix:/run/gpuperf/api.sock"},
      {"unix:/run/\x01", "the path contains a control character"},
      {"/run/x.sock", "write unix:/run/x.sock"},
  };
  for (const auto& [address, fault] : rows) {
    EXPECT_EQ(find_rpc_address_fault(address), fault) << address;
  }
}

TEST(FolderTest, TakesAbsolutePathsAndNone) {
  for (const std::string& path :
       {std::string(), std::string("/var/lib/gpuperf"), std::string("/var/lib/gpuperf/"),
        std::string("/ü"), "/" + std::string(3'999, 'x')}) {
    EXPECT_EQ(find_folder_fault(path), std::nullopt) << path;
  }
}

TEST(FolderTest, SaysWhatIsWrongWithAPath) {
  const std::string form = "the path must be absolute and name a folder: /var/lib/gpuperf";
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"gpuperf", form},
      {"./gpuperf", form},
      {"~/gpuperf", form},
      {" /var/lib/gpuperf", form},
      {"/", form},
      {"//", form},
      {"/var/lib\n", "the path contains a control character"},
      {std::string("/var\0lib", 8), "the path contains a control character"},
      {"/" + std::string(4'000, 'x'), "a path has at most 4000 bytes"},
  };
  for (const auto& [path, fault] : rows) {
    EXPECT_EQ(find_folder_fault(path), fault) << path;
  }
}

TEST(FileTest, TakesAbsolutePathsOfFilesAndNone) {
  const std::string form = "the path must be absolute and name a file: /etc/gpuperf/ca.pem";
  const std::vector<std::pair<std::string, std::optional<std::string>>> rows = {
      {"", std::nullopt},
      {"/srv/libgpuperf_injector.so", std::nullopt},
      {"libgpuperf_injector.so", form},
      {"/srv/", form},
      {"/", form},
      {"/srv/\x01", "the path contains a control character"},
      {"/" + std::string(4'000, 'x'), "a path has at most 4000 bytes"},
  };
  for (const auto& [path, fault] : rows) EXPECT_EQ(find_file_fault(path), fault) << path;
}

TEST(CdiSpecSettingTest, TakesFilesThatContainerRuntimesRead) {
  const std::string form =
      "the path must be absolute and end in .json, in a folder that container runtimes read: "
      "/var/run/cdi/gpuperf.json";
  const std::vector<std::pair<std::string, std::optional<std::string>>> rows = {
      {"", std::nullopt},
      {"/var/run/cdi/gpuperf.json", std::nullopt},
      {"/var/run/cdi", form},
      {"/var/run/cdi/gpuperf.yaml", form},
      {"/var/run/cdi/.json", form},
      {"gpuperf.json", form},
      {"/var/\n/gpuperf.json", "the path contains a control character"},
  };
  for (const auto& [path, fault] : rows) EXPECT_EQ(find_cdi_spec_fault(path), fault) << path;
}

TEST(StorageTest, HasItsPathRefusedWithAHint) {
  const auto parsed = parse_config(R"({"storage": {"path": "slow calls"}, "x_sym": {"f": "f"}})");

  EXPECT_EQ(std::get<std::vector<ConfigError>>(parsed),
            (std::vector<ConfigError>{
                {"$.storage.path", "must be an absolute path or empty, is \"slow calls\"",
                 "the path must be absolute and name a folder: /var/lib/gpuperf"}}));
}

TEST(StorageTest, IsSwitchedOffByAnEmptyPath) {
  const auto parsed = parse_config(R"({"storage": {"path": ""}, "x_sym": {"f": "f"}})");

  ASSERT_TRUE(std::holds_alternative<Config>(parsed));
  EXPECT_EQ(std::get<Config>(parsed).settings.storage.path, "");
}

TEST(QosTest, HasAFaultyRuleRefusedWithAHint) {
  const auto parsed =
      parse_config(R"({"qos": {"rules": {"hot": "gpuperf_gpu_temperature > 85: freeze"}}})");

  EXPECT_EQ(
      std::get<std::vector<ConfigError>>(parsed),
      (std::vector<ConfigError>{
          {"$.qos.rules",
           "must be an object of name: rule, such as \"p99 "
           "gpuperf_step_seconds{phase=decode} > 0.05 over 2s: freeze, detail\", is an object",
           "hot: no metric \"gpuperf_gpu_temperature\"; did you mean "
           "\"gpuperf_gpu_temperature_celsius\"?"}}));
}

TEST(QosTest, HasMoreThan32RulesRefused) {
  std::string rules;
  for (int i = 0; i < 33; ++i) {
    if (i == 32) {
      EXPECT_TRUE(
          std::holds_alternative<Config>(parse_config(R"({"qos": {"rules": {)" + rules + "}}}")));
    }
    if (i > 0) rules += ", ";
    rules += "\"r" + std::to_string(i) + R"(": "gpuperf_processes > 1: freeze")";
  }

  const auto parsed = parse_config(R"({"qos": {"rules": {)" + rules + "}}}");

  EXPECT_EQ(std::get<std::vector<ConfigError>>(parsed),
            (std::vector<ConfigError>{
                {"$.qos.rules", "has 33 rules", "at most 32 are watched; remove some"}}));
}

TEST(ConfigSchemaTest, IsTheFileInDocs) {
  expect_golden(source_path("docs/config.schema.json"), render_config_schema());
}

TEST(SettingsReferenceTest, IsTheTableInDocs) {
  constexpr std::string_view kBegin = "<!-- settings: generated, see tests/unit/config -->\n";
  constexpr std::string_view kEnd = "<!-- end of settings -->\n";
  const auto path = source_path("docs/configuration.md");
  std::string page = read_file(path);
  const size_t begin = page.find(kBegin);
  const size_t end = page.find(kEnd);
  ASSERT_NE(begin, page.npos);
  ASSERT_NE(end, page.npos);

  page.replace(begin + kBegin.size(), end - begin - kBegin.size(), render_settings_reference());

  expect_golden(path, page);
}

}  // namespace
}  // namespace gpuperf
