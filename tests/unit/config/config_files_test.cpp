// Settings without functions, functions over the shipped ones, and drop-in files.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "daemon/config/config.h"
#include "support.h"
#include "tests/unit/files.h"

namespace gpuperf {
namespace {

Config parse_files(const std::vector<ConfigFile>& files) {
  auto parsed = parse_config(files);
  if (const auto* errors = std::get_if<std::vector<ConfigError>>(&parsed)) {
    ADD_FAILURE() << render_config_errors("?", *errors);
    return {};
  }
  return std::get<Config>(std::move(parsed));
}

Config parse_files(const std::string& text) { return parse_files({{"config.json", text}}); }

std::string file_errors_of(const std::vector<ConfigFile>& files) {
  const auto parsed = parse_config(files);
  const auto* errors = std::get_if<std::vector<ConfigError>>(&parsed);
  return errors ? render_config_errors("?", *errors) : "no error";
}

size_t count_shipped() {
  return std::get<Config>(parse_config(default_config_text())).probes.probes.size();
}

ProbeSpec find_probe(const Config& config, std::string_view function) {
  const auto found = std::ranges::find(config.probes.probes, function, &ProbeSpec::function);
  return found == config.probes.probes.end() ? ProbeSpec{} : *found;
}

TEST(ShippedFunctionsTest, AreProbedWhereAFileNamesNone) {
  const Config config = parse_files(R"({"slow": {"default_threshold_ms": 5}})");

  EXPECT_EQ(config.settings.slow.default_threshold_ms, 5);
  EXPECT_EQ(config.probes.probes.size(), count_shipped());
  EXPECT_EQ(parse_files("{}").probes.probes.size(), count_shipped());
  EXPECT_EQ(parse_files(std::vector<ConfigFile>{}).probes.probes.size(), count_shipped());
}

TEST(ShippedFunctionsTest, AreNotProbedWhereAFileNamesOthersOrSaysSo) {
  EXPECT_EQ(parse_files(R"({"custom_sym": {"f": "f"}})").probes.probes.size(), 1u);
  EXPECT_EQ(file_errors_of({{"a.json", R"({"shipped_functions": false})"}}),
            "?: $: no function to probe; hint: add a section such as "
            R"("cuda_func_sym": {"cudaMalloc": "cudaMalloc"}, or "shipped_functions": true)"
            "\n");
}

TEST(ShippedFunctionsTest, AreChangedByWhatAFileSaysOfThem) {
  const Config config = parse_files(R"({
    "shipped_functions": true,
    "custom_sym": {"f": "f"},
    "cuda_func_sym": {"cudaMalloc": {"slow_threshold_ms": 3}, "cudaFree": {"probe": false},
                      "cudaLaunchKernel": "cudaLaunchKernel"}})");

  EXPECT_EQ(config.probes.probes.size(), count_shipped() + 1);
  EXPECT_EQ(find_probe(config, "cudaMalloc").symbol, "cudaMalloc");
  EXPECT_EQ(find_probe(config, "cudaMalloc").slow_threshold_ns, 3'000'000u);
  EXPECT_FALSE(find_probe(config, "cudaFree").enabled);
  EXPECT_TRUE(find_probe(config, "cudaLaunchKernel").enabled);
  EXPECT_EQ(config.warnings, std::vector<ConfigError>{});
}

TEST(ConfigFilesTest, AreMergedInOrderAndConflictsNamed) {
  const Config config = parse_files(
      {{"config.json", R"({"custom_sym": {"f": "f"}, "libraries": {"custom": ["liba.so"]},
                           "slow": {"recent": 5, "stacks": false}})"},
       {"conf.d/10.json", R"({"custom_sym": {"f": {"slow_threshold_ms": 1}, "g": "g"},
                              "slow": {"recent": 5}})"},
       {"conf.d/20.json", R"({"slow": {"recent": 7}, "log": {"level": "debug"}})"}});

  EXPECT_EQ(config.probes.probes.size(), 2u);
  EXPECT_EQ(find_probe(config, "f").symbol, "f");
  EXPECT_EQ(find_probe(config, "f").slow_threshold_ns, 1'000'000u);
  EXPECT_EQ(config.settings.slow.recent, 7u);
  EXPECT_FALSE(config.settings.slow.stacks);
  EXPECT_EQ(config.settings.log.level, "debug");
  EXPECT_EQ(render_config_errors("?", config.warnings),
            "conf.d/20.json: $.slow.recent: is 7 here and 5 in conf.d/10.json; the value here is "
            "used; hint: set it in one of the two files only\n");
}

TEST(ConfigFilesTest, NameTheFileOfEachError) {
  EXPECT_EQ(
      file_errors_of({{"config.json", R"({"cuda_func_sym": {"a": "a", "b": {"probe": 1}}})"},
                      {"conf.d/10.json", R"({"cuda_sym": {"c": {}}, "slow": {"recnet": 1}})"}}),
      "config.json: $.cuda_func_sym.b.probe: must be true or false, is 1; hint: false keeps "
      "the function configured but disabled\n"
      "config.json: $.cuda_func_sym.b: has no symbol; hint: add \"symbol\": \"name of the "
      "function\"\n"
      "conf.d/10.json: $.cuda_sym: same category (\"cuda\") as $.cuda_func_sym; hint: merge "
      "the two sections\n"
      "conf.d/10.json: $.cuda_sym.c: has no symbol; hint: add \"symbol\": \"name of the "
      "function\"\n"
      "conf.d/10.json: $.slow.recnet: unknown setting; hint: did you mean \"recent\"?\n");
  EXPECT_EQ(file_errors_of({{"config.json", "{}"}, {"conf.d/10.json", ""}}),
            "conf.d/10.json: $: the file is empty; hint: the smallest configuration is {}\n");
}

TEST(SectionNameTest, IsDoubtedWhenItIsNearlyAKnownOne) {
  const auto warning_of = [](const std::string& text) {
    return render_config_errors("?", parse_files(text).warnings);
  };

  EXPECT_EQ(warning_of(R"({"cuda_fun_sym": {"cudaMalloc": "cudaMalloc"}})"),
            "config.json: $.cuda_fun_sym: unknown section: its functions are looked for in "
            "executables only; hint: did you mean \"cuda_func_sym\"? to keep it, list its "
            "libraries under \"libraries\"\n");
  EXPECT_NE(warning_of(R"({"cubals_func_sym": {"f": "f"}})"), "");
  EXPECT_EQ(warning_of(R"({"mylib_func_sym": {"f": "f"}, "math_func_sym": {"f": "f"}})"), "");
  EXPECT_EQ(warning_of(R"({"nccl2_func_sym": {"f": {"symbol": "f", "library": "libn.so"}}})"), "");
  EXPECT_EQ(warning_of(R"({"nccl2_func_sym": {"f": "f"}, "libraries": {"nccl2": ["libn.so"]}})"),
            "");
}

class ReadConfigFilesTest : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_ / name; }
  void write(const std::string& name) const { std::ofstream(path(name)) << name; }
  std::string read(bool may_be_missing) const {
    const auto files = read_config_files({path("config.json"), may_be_missing});
    if (!files.ok()) return std::string(files.status().message());
    std::string texts;
    for (const ConfigFile& file : *files) texts += file.text + ";";
    return texts;
  }

  const TempFolder folder_;
};

TEST_F(ReadConfigFilesTest, ReadsDropInsInOrderOfTheirNames) {
  std::filesystem::create_directory(path("conf.d"));
  for (const char* name : {"config.json", "conf.d/9.json", "conf.d/10.json", "conf.d/a.json",
                           "conf.d/.hidden.json", "conf.d/b.json.bak"}) {
    write(name);
  }

  EXPECT_EQ(read(false), "config.json;conf.d/10.json;conf.d/9.json;conf.d/a.json;");

  std::filesystem::remove(path("config.json"));
  EXPECT_EQ(read(true), "conf.d/10.json;conf.d/9.json;conf.d/a.json;");
  EXPECT_EQ(read(false), path("config.json") + ": read configuration: No such file or directory");
}

TEST_F(ReadConfigFilesTest, NeedsNoDropIns) {
  EXPECT_EQ(read(true), "");

  write("config.json");
  EXPECT_EQ(read(true), "config.json;");
}

TEST_F(ReadConfigFilesTest, ReadsAtMostSoManyDropIns) {
  std::filesystem::create_directory(path("conf.d"));
  for (size_t i = 0; i <= kConfigMaxDropIns; ++i) write("conf.d/" + std::to_string(i) + ".json");

  EXPECT_EQ(read(true), path("conf.d") + ": has 65 files, at most 64 are read; merge some of them");
}

}  // namespace
}  // namespace gpuperf
