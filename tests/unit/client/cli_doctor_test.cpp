// gpuperfctl doctor, against a daemon of ours and against none.

#include <fstream>
#include <nlohmann/json.hpp>

#include "cli_fixture.h"
#include "tests/unit/matchers.h"

namespace gpuperf::client {
namespace {

class CliDoctorTest : public CliTest {
 protected:
  CliDoctorTest() {
    daemon_.answers.status.set_version(GPUPERF_VERSION);
    daemon_.answers.probes.resize(2);  // without the symbol that is missing
  }
  ProgramResult run(std::vector<std::string> arguments) {
    daemon_.start();
    arguments.insert(arguments.begin(), {"doctor", "--address", daemon_.address()});
    return run_program(std::move(arguments));
  }
};

TEST_F(CliDoctorTest, EndsWithZeroWhenAllIsWell) {
  const auto result = run({});

  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out,
              AllOf(StartsWith("No problems: "),
                    HasSubstr("\n\nok       socket      " + daemon_.address().substr(5))));
  EXPECT_THAT(result.out, HasSubstr("\nok       daemon      gpuperfd " GPUPERF_VERSION));
  EXPECT_THAT(result.out, HasSubstr("\nok       cuda        functions probed: 2, in files: 1\n"));
  EXPECT_THAT(result.out, HasSubstr("\nok       drops       no data was dropped\n"));
}

TEST_F(CliDoctorTest, EndsWithOneWhenSomethingIsWrong) {
  auto* problem = daemon_.answers.status.add_problems();
  problem->set_subject("probes");
  problem->set_message("no permission");
  problem->set_hint("run it as root");

  const auto result = run({});

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out, HasSubstr("\nproblem  probes      no permission\n"
                                    "                     run it as root\n"));
}

TEST_F(CliDoctorTest, ComparesTheFileWithWhatIsInForce) {
  const std::string path = (daemon_.folder() / "config.json").string();
  std::ofstream(path) << "{}";
  daemon_.answers.config.set_path(path);

  EXPECT_THAT(run({}).out, HasSubstr("\nhint     config      " + path + " has changed since"));
}

TEST_F(CliDoctorTest, IsAnArrayAsJsonAndATableAsCsv) {
  const auto checks = ordered_json::parse(run({"-o", "json"}).out);

  ASSERT_TRUE(checks.is_array());
  for (const auto& check : checks) {
    EXPECT_EQ(check.size(), 4u);
    EXPECT_TRUE(check.contains("check") && check.contains("hint"));
    EXPECT_EQ(check["state"], "ok") << check["message"];
  }
  EXPECT_THAT(run({"-o", "csv"}).out, StartsWith("check,state,message,hint\nsocket,ok,"));
}

TEST_F(CliDoctorTest, ChecksTheHostWhenThereIsNoDaemon) {
  const auto result =
      run_program({"doctor", "-o", "json", "--address", (daemon_.folder() / "none").string()});

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err, "");
  std::vector<std::string> names;
  std::vector<std::string> problems;
  for (const auto& check : ordered_json::parse(result.out)) {
    names.push_back(check["check"]);
    if (check["state"] == "problem") problems.push_back(check["message"]);
  }
  EXPECT_THAT(names, ::testing::IsSupersetOf({"caller", "kernel", "btf"}));
  // The socket, by itself or as the sign that no gpuperfd runs here.
  EXPECT_THAT(problems, ::testing::ElementsAre(HasSubstr("none: No such file")));
}

TEST_F(CliDoctorTest, RefusesAnAddressThatIsNone) {
  EXPECT_EQ(run_program({"doctor", "--address", "gpu-17"}).exit_code, 2);
}

}  // namespace
}  // namespace gpuperf::client
