// Any bytes as configuration: one file, one over the shipped one, and a probe of the API. Whatever
// the text: an answer, and never an acceptance without probes.

#include <array>

#include "daemon/config/config.h"
#include "tests/fuzz/fuzz_target.h"

namespace gpuperf::fuzz {
namespace {

std::string check(const std::variant<Config, std::vector<ConfigError>>& parsed) {
  if (const auto* config = std::get_if<Config>(&parsed)) {
    // Told by GetConfig: valid by itself.
    (void)render_config_errors("file", config->warnings);
    (void)render_settings_json(config->settings);
    return config->probes.probes.empty() ? "accepted without probes" : "";
  }
  const auto& errors = std::get<std::vector<ConfigError>>(parsed);
  (void)render_config_errors("file", errors);
  return errors.empty() ? "refused without an error" : "";
}

}  // namespace

std::string find_fault(std::string_view bytes) {
  const std::array<ConfigFile, 2> files{
      ConfigFile{.path = "shipped", .text = R"({"cuda_func_sym": {"cudaMalloc": "cudaMalloc"}})"},
      ConfigFile{.path = "over", .text = std::string(bytes)}};
  (void)parse_probe("custom_sym", "name", bytes);
  return check(parse_config(bytes)) + check(parse_config(files));
}

}  // namespace gpuperf::fuzz
