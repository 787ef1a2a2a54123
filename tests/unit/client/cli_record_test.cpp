// gpuperfctl record: a command that is run while it is captured.

#include <signal.h>

#include <fstream>
#include <sstream>

#include "cli_fixture.h"
#include "tests/unit/matchers.h"

namespace gpuperf::client {
namespace {

class CliRecordTest : public CliTest {
 protected:
  CliRecordTest() {
    v1::Capture capture;
    capture.set_id(7);
    capture.set_state(v1::CAPTURE_STATE_STORED);
    capture.set_launches(1'000);
    daemon_.answers.captures = {capture};
    daemon_.answers.matches.set_work(1'200);
    daemon_.answers.matches.set_work_matched(1'140);
    daemon_.answers.matches.set_launches_ambiguous(3);
    daemon_.answers.status.set_ingest_socket("/run/elsewhere/ingest.sock");
    daemon_.answers.status.mutable_recorder();
    std::ofstream(path("libgpuperf_injector.so")) << "\177ELF…";
  }
  std::string path(const std::string& name) const { return (daemon_.folder() / name).string(); }
  std::vector<std::string> make_arguments(std::vector<std::string> flags,
                                          const std::vector<std::string>& command) {
    std::vector<std::string> arguments = {"record",
                                          "--address",
                                          daemon_.address(),
                                          "-c",
                                          path("cpu.txt"),
                                          "-p",
                                          path("g.json"),
                                          "-m",
                                          path("m.folded"),
                                          "--flamegraph",
                                          path("f.svg"),
                                          "--injector",
                                          path("libgpuperf_injector.so")};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    arguments.emplace_back("--");
    arguments.insert(arguments.end(), command.begin(), command.end());
    return arguments;
  }
  ProgramResult run(const std::vector<std::string>& flags,
                    const std::vector<std::string>& command) {
    daemon_.start();
    return run_program(make_arguments(flags, command));
  }
  std::vector<std::string> list_methods() const {
    std::vector<std::string> methods;
    for (const std::string& request : daemon_.requests()) {
      methods.push_back(request.substr(0, request.find(':')));
    }
    return methods;
  }
  static bool exists(const std::string& path) { return std::filesystem::exists(path); }

  FakeDaemon daemon_;
};

TEST_F(CliRecordTest, RunsTheCommandAndWritesFourFiles) {
  const auto result = run({}, {"sh", "-c", "echo out; echo err >&2; exit 5"});

  EXPECT_EQ(result.exit_code, 5);
  EXPECT_EQ(result.out, "out\n");
  EXPECT_THAT(result.err,
              AllOf(StartsWith("err\n"),
                    HasSubstr("gpuperfctl: capture 7: 1,000 launches, 1,200 kernels and "
                              "other GPU work; 1,140 matched, 60 unmatched; 3 launches "
                              "ambiguous\n"),
                    HasSubstr("wrote " + path("cpu.txt"))));
  for (const char* name : {"cpu.txt", "g.json", "m.folded", "f.svg"}) {
    EXPECT_TRUE(exists(path(name))) << name;
  }
  EXPECT_THAT(list_methods(),
              ElementsAre("GetStatus", "StartCapture", "StopCapture", "GetCapture", "FetchCapture",
                          "FetchCapture", "FetchCapture", "FetchCapture"));
  EXPECT_THAT(daemon_.requests()[1],
              AllOf(HasSubstr("name: \"sh\""), HasSubstr("with_children: true")));
  EXPECT_THAT(daemon_.requests()[4], HasSubstr("extended-folded"));
  EXPECT_THAT(daemon_.requests()[5], HasSubstr("chrome"));
}

TEST_F(CliRecordTest, CapturesTheProcessThatRuns) {
  const auto result = run({}, {"sh", "-c", "echo $$"});

  EXPECT_THAT(daemon_.requests()[1],
              HasSubstr("pid: " + result.out.substr(0, result.out.size() - 1)));
}

TEST_F(CliRecordTest, LoadsTheInjectorAndNamesTheSocket) {
  const auto result = run({}, {"sh", "-c", "echo $CUDA_INJECTION64_PATH $GPUPERF_SOCKET"});

  EXPECT_EQ(result.out, path("libgpuperf_injector.so") + " /run/elsewhere/ingest.sock\n");
  EXPECT_EQ(run({"--cpu-only"}, {"sh", "-c", "echo $CUDA_INJECTION64_PATH"}).out, "\n");
}

TEST_F(CliRecordTest, LeavesTheCommandsWordsAlone) {
  const auto result = run({}, {"printf", "%s|", "--limit", "[a,b]", "--", "", "-o"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "--limit|[a,b]|--||-o|");
}

TEST_F(CliRecordTest, EndsAsTheCommandDoes) {
  EXPECT_EQ(run({}, {"sh", "-c", "kill -9 $$"}).exit_code, 137);
  EXPECT_EQ(run({}, {"true"}).exit_code, 0);
}

TEST_F(CliRecordTest, SaysThatThereIsNoSuchCommand) {
  const auto result = run({}, {"/no/such/command"});

  EXPECT_EQ(result.exit_code, 127);
  EXPECT_EQ(result.err, "gpuperfctl: cannot run /no/such/command: No such file or directory\n");
  EXPECT_THAT(list_methods(), ElementsAre("GetStatus", "StartCapture", "StopCapture", "GetCapture",
                                          "DeleteCapture"));
  EXPECT_FALSE(exists(path("cpu.txt")));
  EXPECT_EQ(run({}, {path("libgpuperf_injector.so")}).exit_code, 126) << "not executable";
}

TEST_F(CliRecordTest, RunsNothingWhereTheDaemonIsNotReached) {
  const auto result = run_program(make_arguments({}, {"touch", path("ran")}));

  EXPECT_EQ(result.exit_code, 3);
  EXPECT_FALSE(exists(path("ran")));
}

TEST_F(CliRecordTest, RunsNothingWhereItMayNotCapture) {
  daemon_.answers.control_failure = grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "not yours");

  const auto result = run({}, {"touch", path("ran")});

  EXPECT_EQ(result.exit_code, 4);
  EXPECT_FALSE(exists(path("ran")));
}

TEST_F(CliRecordTest, RunsNothingWithoutAnInjectorThatCanBeLoaded) {
  std::ofstream(path("text.so")) << "text";
  const auto text = run({"--injector", path("text.so")}, {"touch", path("ran")});
  EXPECT_EQ(text.exit_code, 2) << "given twice";
  auto arguments = make_arguments({}, {"touch", path("ran")});
  for (const std::string& injector : {path("text.so"), path("none.so")}) {
    for (size_t i = 0; i + 1 < arguments.size(); ++i) {
      if (arguments[i] == "--injector") arguments[i + 1] = injector;
    }
    const auto result = run_program(arguments);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, AllOf(HasSubstr(injector), HasSubstr("--cpu-only")));
  }
  EXPECT_FALSE(exists(path("ran")));
  EXPECT_THAT(daemon_.requests(), IsEmpty());
}

TEST_F(CliRecordTest, WritesFewerFilesOfOneSide) {
  EXPECT_EQ(run({"--cpu-only"}, {"true"}).exit_code, 0);
  EXPECT_TRUE(exists(path("cpu.txt")));
  EXPECT_TRUE(exists(path("f.svg")));
  EXPECT_FALSE(exists(path("g.json")));
  EXPECT_FALSE(exists(path("m.folded")));
  EXPECT_EQ(run({"--gpu-only"}, {"true"}).exit_code, 0);
  EXPECT_TRUE(exists(path("g.json")));
  EXPECT_FALSE(exists(path("m.folded")));
}

TEST_F(CliRecordTest, PassesSignalsOn) {
  daemon_.start();
  Program program(make_arguments(
      {}, {"sh", "-c", "trap 'echo got; exit 3' TERM; echo ready; while :; do sleep 0.05; done"}));
  program.read_until("ready\n");

  program.send_signal(SIGTERM);
  const ProgramResult result = program.finish();

  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_EQ(result.out, "got\n");
  EXPECT_TRUE(exists(path("cpu.txt")));
}

TEST_F(CliRecordTest, FailsWhereTheRecordingDoes) {
  daemon_.answers.captures[0].set_state(v1::CAPTURE_STATE_FAILED);
  daemon_.answers.captures[0].set_problem("no room");

  const auto result = run({}, {"true"});

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("the command ended with 0, but: capture 7 failed: no room"));
}

}  // namespace
}  // namespace gpuperf::client
