// Attaching to programs that run already: attach, detach, attach --list.

#include <nlohmann/json.hpp>

#include "cli_fixture.h"
#include "client/render.h"
#include "tests/unit/matchers.h"
#include "tests/unit/proto_text.h"

namespace gpuperf::client {
namespace {

class CliAttachTest : public CliTest {
 protected:
  CliAttachTest() {
    add(R"(pid: 70 comm: "python" state: "attached" held_ns: 1400000 threads_tried: 2 kept_kib: 220
           kept_fds: 2 detail: "CUPTI is finalised" container: "0123456789ab" pod: "train-0")");
    add(R"(pid: 71 comm: "serve" state: "injected")");
    add(R"(pid: 72 comm: "python" state: "can" container: "0123456789ab" pod: "train-1")");
    add(R"(pid: 73 comm: "pybug" state: "cannot" reason: "traced" detail: "pid 9 traces it"
           hint: "end the debugger" container: "ba9876543210" pod: "train-1")");
  }
  void add(const char* text) {
    daemon_.answers.attachments.push_back(parse_text<v1::Attachment>(text));
  }
};

TEST_F(CliAttachTest, ListsHowEachProcessIsAndWhy) {
  EXPECT_EQ(run({"attach", "--list"}).out,
            "PID  COMM    STATE     CONTAINER     POD      WHY\n"
            " 70  python  attached  0123456789ab  train-0  held one thread for 1.40 ms\n"
            " 71  serve   injected  -             -        -\n"
            " 72  python  can       0123456789ab  train-1  -\n"
            " 73  pybug   cannot    ba9876543210  train-1  pid 9 traces it; end the debugger\n");
  EXPECT_THAT(daemon_.requests(), ElementsAre("ListAttachable: "));
}

TEST_F(CliAttachTest, ListsThoseThatMatch) {
  const auto list = [this](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"attach", "--list", "-o", "json"});
    std::vector<int> pids;
    for (const auto& row : ordered_json::parse(run(flags).out)) pids.push_back(row["pid"]);
    return pids;
  };

  EXPECT_THAT(list({"--comm", "py*"}), ElementsAre(70, 72, 73));
  EXPECT_THAT(list({"--comm", "python"}), ElementsAre(70, 72));
  EXPECT_THAT(list({"--comm", "pyth"}), IsEmpty());
  EXPECT_THAT(list({"--container", "0123"}), ElementsAre(70, 72));
  EXPECT_THAT(list({"--container", "123"}), IsEmpty());
  EXPECT_THAT(list({"--pod", "train-1"}), ElementsAre(72, 73));
  EXPECT_THAT(list({"--pod", "train-1", "--comm", "python"}), ElementsAre(72));
  EXPECT_THAT(list({"--pid", "71"}), ElementsAre(71));
}

TEST_F(CliAttachTest, SaysThatNoProcessUsesCuda) {
  daemon_.answers.attachments.clear();

  EXPECT_THAT(run({"attach", "--list"}).out, HasSubstr("No process has loaded the CUDA driver."));
  EXPECT_EQ(run({"attach", "--list", "-o", "json"}).out, "[]\n");
}

TEST_F(CliAttachTest, AttachesToOneAndSaysWhatItTook) {
  const auto result = run({"attach", "--pid", "70", "--accept-seccomp"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out,
            "Attached to process 70 (python): held one thread for 1.40 ms, 2 examined. Its "
            "kernels: gpuperfctl kernels --pid 70\n");
  EXPECT_THAT(daemon_.requests(), ElementsAre("AttachProcess: pid: 70 accept_seccomp: true"));
}

TEST_F(CliAttachTest, SaysWhyOneIsRefused) {
  const auto result = run({"attach", "--pid", "73"});

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.out,
            "Process 73 (pybug): not attached: pid 9 traces it. Next: end the debugger\n");
  EXPECT_EQ(result.err, "gpuperfctl: 1 of 1 processes were not attached to\n");
}

TEST_F(CliAttachTest, AttachesToAllThatMatchAndHaveNoLibrary) {
  const auto result = run({"attach", "--comm", "py*", "-o", "json"});

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(ordered_json::parse(result.out),
            (ordered_json{to_json(daemon_.answers.attachments[2]),
                          to_json(daemon_.answers.attachments[3])}));
  EXPECT_EQ(result.err, "gpuperfctl: 1 of 2 processes were not attached to\n");
  EXPECT_THAT(daemon_.requests(),
              ElementsAre("ListAttachable: ", "AttachProcess: pid: 72", "AttachProcess: pid: 73"));
}

TEST_F(CliAttachTest, DetachesFromThoseThatWereAttachedToAlone) {
  const auto result = run({"detach", "--comm", "*"});

  EXPECT_THAT(daemon_.requests(), ElementsAre("ListAttachable: ", "DetachProcess: pid: 70"));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out,
            "Detached from process 70 (python): CUPTI is finalised; 220 KiB and 2 descriptors "
            "stay\n");
}

TEST_F(CliAttachTest, SaysThatNoneMatches) {
  EXPECT_EQ(run({"attach", "--comm", "nobody"}).err,
            "gpuperfctl: no process that uses CUDA matches: gpuperfctl attach --list\n");
  EXPECT_EQ(run({"attach", "--comm", "serve"}).err,
            "gpuperfctl: every process that matches has the library already: gpuperfctl attach "
            "--list\n");
  EXPECT_EQ(run({"detach", "--comm", "serve"}).err,
            "gpuperfctl: no process that matches was attached to: gpuperfctl attach --list\n");
  EXPECT_EQ(run({"detach", "--comm", "serve"}).exit_code, 1);
}

TEST_F(CliAttachTest, NeedsToBeToldWhichProcess) {
  for (const char* command : {"attach", "detach"}) {
    const auto result = run({command});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr("give --pid, --pod, --container or --comm"));
  }
  EXPECT_THAT(daemon_.requests(), IsEmpty());
}

TEST_F(CliAttachTest, PassesOnWhyTheDaemonAttachesToNothing) {
  daemon_.answers.control_failure = {grpc::StatusCode::FAILED_PRECONDITION,
                                     "sessions.attach is false"};

  const auto result = run({"attach", "--pid", "70"});

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("attach to process 70: sessions.attach is false"));
}

}  // namespace
}  // namespace gpuperf::client
