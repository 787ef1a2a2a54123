// gpuperfctl config show|check.

#include <fstream>
#include <nlohmann/json.hpp>

#include "cli_fixture.h"
#include "client/render.h"
#include "tests/unit/matchers.h"

namespace gpuperf::client {
namespace {

constexpr const char* kConfig = R"({"cuda_func_sym": {"cudaMalloc": "cudaMalloc"}})";

class CliConfigTest : public CliTest {
 protected:
  ProgramResult run(std::vector<std::string> arguments, const std::string& input = "") {
    daemon_.start();
    arguments.insert(arguments.begin(), {"--address", daemon_.address()});
    return run_program(std::move(arguments), {.input = input});
  }
  std::string write_file(const std::string& text) {
    std::string path = (daemon_.folder() / "config.json").string();
    std::ofstream(path) << text;
    return path;
  }
  void add_error(const std::string& path, const std::string& message, const std::string& hint) {
    auto* error = daemon_.answers.check.add_errors();
    error->set_path(path);
    error->set_message(message);
    error->set_hint(hint);
  }
};

TEST_F(CliConfigTest, ShowsEverySettingInForce) {
  EXPECT_EQ(run({"config", "show"}).out,
            "Read from /etc/gpuperf/config.json; settings in use, including defaults:\n"
            "\n"
            "SETTING                    VALUE\n"
            "slow.default_threshold_ms  100.0\n"
            "slow.stacks                true\n"
            "metrics.listen             \"127.0.0.1:9465\"\n");
}

TEST_F(CliConfigTest, ShowsTheAnswerAsJsonAndCsv) {
  EXPECT_EQ(ordered_json::parse(run({"config", "show", "-o", "json"}).out),
            to_json(daemon_.answers.config));
  EXPECT_THAT(run({"config", "show", "-o", "csv"}).out,
              StartsWith("path,json,effective_json,drop_ins\n"));
}

TEST_F(CliConfigTest, ShowsSettingsItCannotParseAsTheyAre) {
  daemon_.answers.config.set_effective_json("{broken\x1b");

  EXPECT_THAT(run({"config", "show"}).out, HasSubstr("\n{broken\\x1b\n"));
}

TEST_F(CliConfigTest, SaysThatAFileIsValid) {
  const std::string file = write_file(kConfig);

  const auto result = run({"config", "check", file});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, file + ": valid\n");
  EXPECT_THAT(daemon_.requests(), ElementsAre("CheckConfig: json: \"{\\\"cuda_func_sym\\\": "
                                              "{\\\"cudaMalloc\\\": \\\"cudaMalloc\\\"}}\""));
}

TEST_F(CliConfigTest, ReadsStandardInput) {
  const auto result = run({"config", "check", "-"}, kConfig);

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "standard input: valid\n");
  EXPECT_THAT(daemon_.requests(), ElementsAre(HasSubstr("cudaMalloc")));
}

TEST_F(CliConfigTest, PrintsEveryErrorWithItsHint) {
  add_error("$.slow", "unknown key \"treshold\"", "did you mean \"default_threshold_ms\"?");
  add_error("line 3, column 7", "not JSON", "");
  const std::string file = write_file("{}");

  const auto result = run({"config", "check", file});

  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err, file +
                            ": $.slow: unknown key \"treshold\"; hint: did you mean "
                            "\"default_threshold_ms\"?\n" +
                            file + ": line 3, column 7: not JSON\n");
}

TEST_F(CliConfigTest, PrintsErrorsAsJsonAndCsv) {
  add_error("$.slow", "wrong", "mend");
  const std::string file = write_file("{}");

  const auto json = run({"config", "check", file, "-o", "json"});
  const auto csv = run({"config", "check", file, "-o", "csv"});

  EXPECT_EQ(json.exit_code, 2);
  EXPECT_EQ(json.err, "");
  EXPECT_EQ(ordered_json::parse(json.out), to_json(daemon_.answers.check));
  EXPECT_EQ(csv.exit_code, 2);
  EXPECT_EQ(csv.out, "path,message,hint\n$.slow,wrong,mend\n");
}

TEST_F(CliConfigTest, EscapesWhatTheFileMadeTheDaemonSay) {
  add_error("$.\x1b[2J", "unknown key", "");

  EXPECT_THAT(run({"config", "check", write_file("{}")}).err,
              HasSubstr("$.\\x1b[2J: unknown key\n"));
}

TEST_F(CliConfigTest, FailsOnFilesItCannotRead) {
  const auto missing = run({"config", "check", "/no/such/file"});
  const auto folder = run({"config", "check", "/"});

  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_EQ(missing.err, "gpuperfctl: cannot open /no/such/file: No such file or directory\n");
  EXPECT_EQ(folder.exit_code, 1);
  EXPECT_EQ(folder.err, "gpuperfctl: cannot read /: Is a directory\n");
}

TEST_F(CliConfigTest, RefusesWhatNoDaemonWouldTake) {
  const auto large = run({"config", "check", write_file(std::string((1 << 20) + 1, ' '))});
  const auto binary = run({"config", "check", write_file("{\"gr\xf6\": 1}")});

  EXPECT_EQ(large.exit_code, 2);
  EXPECT_THAT(large.err, HasSubstr("longer than the 1 MiB"));
  EXPECT_EQ(binary.exit_code, 2);
  EXPECT_THAT(binary.err, HasSubstr("not UTF-8 text"));
  EXPECT_THAT(daemon_.requests(), IsEmpty());
}

TEST_F(CliConfigTest, SendsTheLargestFileThereMayBe) {
  const auto result = run({"config", "check", write_file(std::string(1 << 20, ' '))});

  EXPECT_EQ(result.exit_code, 0) << result.err;
}

}  // namespace
}  // namespace gpuperf::client
