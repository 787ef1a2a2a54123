#include "client/redactor.h"

#include "gpuperf/v1/observe.pb.h"
#include "tests/unit/matchers.h"

namespace gpuperf::client {
namespace {

using nlohmann::ordered_json;
using ::testing::MatchesRegex;

class RedactorTest : public testing::Test {
 protected:
  Redactor redactor_{/*keeps_names=*/false, "key"};
};

v1::Process make_process(const std::string& comm) {
  v1::Process process;
  process.set_pid(71);
  process.set_comm(comm);
  process.set_pod("trainer-0");
  process.set_session_state("collecting");
  return process;
}

TEST_F(RedactorTest, GivesTheSameNameTheSamePseudonym) {
  v1::Process first = make_process("secretd"), second = make_process("secretd");
  redactor_.redact(first);
  redactor_.redact(second);

  EXPECT_THAT(first.comm(), MatchesRegex("comm-[0-9a-f]{8}"));
  EXPECT_EQ(first.comm(), second.comm());
  EXPECT_THAT(first.pod(), MatchesRegex("pod-[0-9a-f]{8}"));
  EXPECT_EQ(first.session_state(), "collecting");
  EXPECT_EQ(first.pid(), 71u);
}

TEST_F(RedactorTest, GivesOtherPseudonymsWithAnotherKey) {
  Redactor random(false), another(false);
  v1::Process first = make_process("secretd"), second = make_process("secretd");
  random.redact(first);
  another.redact(second);

  EXPECT_NE(first.comm(), second.comm());
}

TEST_F(RedactorTest, KeepsNamesWhereAsked) {
  Redactor keeping(/*keeps_names=*/true);
  v1::Process process = make_process("secretd");
  keeping.redact(process);

  EXPECT_EQ(process.comm(), "secretd");
  EXPECT_EQ(keeping.redact_text("/home/alice at 10.1.2.3"), "/home/alice at 10.1.2.3");
  EXPECT_EQ(keeping.count_names(), 0u);
}

// A text field that is added to the API and not to the table is a name: none of these may pass.
TEST_F(RedactorTest, ReplacesTextThatItDoesNotKnow) {
  v1::GetStatusResponse status;
  status.set_overhead_demand_reason("because of project zeus");
  redactor_.redact(status);

  EXPECT_THAT(status.overhead_demand_reason(), MatchesRegex("overhead_demand_reason-[0-9a-f]{8}"));
}

TEST_F(RedactorTest, FindsLearnedNamesInSentences) {
  redactor_.learn(make_process("secretd"));
  redactor_.learn("comm", "two words");
  v1::GetStatusResponse status;
  auto& problem = *status.add_problems();
  problem.set_subject("probes");
  problem.set_message("secretd (\"secretd\", two words): cannot attach: no such symbol");
  redactor_.redact(status);

  EXPECT_THAT(status.problems(0).message(),
              MatchesRegex("comm-[0-9a-f]{8} .\"comm-[0-9a-f]{8}\", comm-[0-9a-f]{8}.: cannot "
                           "attach: no such symbol"));
  EXPECT_EQ(status.problems(0).subject(), "probes");
}

TEST_F(RedactorTest, ReplacesWhatLooksLikeAName) {
  for (const std::string secret :
       {"/home/alice/run.py", "alice@example.com", "node7.corp.example", "10.1.2.3",
        "10.1.2.3:8080", "https://otel.corp/v1", "3f2a9c0b1d4e", "fe80::1:2",
        "GPU-8f3b1c2d-0203-0405-0607-08090a0b0c0d", "unix:/home/alice/s.sock", "libsecret.so.1",
        "dir/file"}) {
    const std::string text = redactor_.redact_text("open " + secret + ": no such file");
    EXPECT_THAT(text, Not(HasSubstr(secret)));
    EXPECT_THAT(text, StartsWith("open "));
    EXPECT_THAT(text, HasSubstr(": no such file"));
  }
  EXPECT_THAT(redactor_.redact_text("suspended in process 4242 (train.py): cudaMalloc"),
              MatchesRegex("suspended in process 4242 .comm-[0-9a-f]{8}.: cudaMalloc"));
}

TEST_F(RedactorTest, KeepsWhatIsOurs) {
  for (const std::string text :
       {"set limits.memory_mib = 1024, or overhead.budget_percent", "127.0.0.1:9465",
        "/run/gpuperf/api.sock is accessible", "kernel 6.18.5-amd64 is fine; 12.4 % of 3",
        "cudaErrorInvalidValue: 17 calls", "/sys/kernel/btf/vmlinux is there"}) {
    EXPECT_EQ(redactor_.redact_text(text), text);
  }
}

TEST_F(RedactorTest, KeepsTheNamesOfLibrariesAndNotTheirFolders) {
  EXPECT_THAT(redactor_.redact_path("/home/alice/venv/lib/libcudart.so.12.4"),
              MatchesRegex("path-[0-9a-f]{8}/libcudart.so.12.4"));
  EXPECT_THAT(redactor_.redact_path("/home/alice/libtorch_secret.so"),
              MatchesRegex("path-[0-9a-f]{8}"));
  const std::string once = redactor_.redact_path("/home/alice/libcudart.so.12.4");
  EXPECT_EQ(redactor_.redact_text(once), once);  // a sentence made of what was redacted
}

TEST_F(RedactorTest, KeepsFunctionsOfLibrariesAndNotTheUsers) {
  v1::FunctionStats library, own;
  library.set_category("cuda");
  library.set_function("cudaMalloc");
  own.set_category("zeus");
  own.set_function("train_step");
  redactor_.redact(library);
  redactor_.redact(own);

  EXPECT_EQ(library.category(), "cuda");
  EXPECT_EQ(library.function(), "cudaMalloc");
  EXPECT_THAT(own.category(), MatchesRegex("function-[0-9a-f]{8}"));
  EXPECT_THAT(own.function(), MatchesRegex("function-[0-9a-f]{8}"));
}

TEST_F(RedactorTest, ReplacesLabelsOfMetrics) {
  const std::string text = redactor_.redact_metrics(
      "# HELP gpuperf_x Of \"{\".\n"
      "gpuperf_x{category=\"cuda\",function=\"cudaMalloc\",comm=\"sec\\\"ret\",pod=\"\",le=\"0.1\"}"
      " 3\n"
      "gpuperf_y{category=\"zeus\",function=\"step\",comm=\"other\",new_label=\"zeus\"} 4 # 1\n"
      "gpuperf_z 5\n");

  EXPECT_THAT(text, MatchesRegex("# HELP gpuperf_x Of \"\\{\".\n"
                                 "gpuperf_x\\{category=\"cuda\",function=\"cudaMalloc\",comm="
                                 "\"comm-[0-9a-f]{8}\",pod=\"\",le=\"0.1\"\\} 3\n"
                                 "gpuperf_y\\{category=\"function-[0-9a-f]{8}\",function="
                                 "\"function-[0-9a-f]{8}\",comm=\"other\","
                                 "new_label=\"new_label-[0-9a-f]{8}\"\\} 4 # 1\n"
                                 "gpuperf_z 5\n"));
}

TEST_F(RedactorTest, ReplacesValuesOfLogLines) {
  const std::string text = redactor_.redact_log(
      "2026-11-26T20:00:00.123+00:00 info slow_call id=17 comm=secretd new_key=\"zeus \\\"x\\\"\" "
      "stack=\"inner <- main\" explanation=\"of 3 bytes\" return_value=\"7\" pid=71\n"
      "2026-11-26T20:00:01.123+00:00 warning no probes error=\"/home/alice/x: no such file\" "
      "tls=true\n"
      "somebody else's line of /home/alice\n");

  EXPECT_THAT(text, Not(HasSubstr("secretd")));
  EXPECT_THAT(text, Not(HasSubstr("zeus")));
  EXPECT_THAT(text, Not(HasSubstr("inner")));
  EXPECT_THAT(text, Not(HasSubstr("3 bytes")));
  EXPECT_THAT(text, Not(HasSubstr("alice")));
  EXPECT_THAT(text,
              HasSubstr("2026-11-26T20:00:00.123+00:00 info slow_call id=\"17\" comm=\"comm-"));
  EXPECT_THAT(text, HasSubstr("stack=\"(left out)\" explanation=\"(left out)\" "
                              "return_value=\"(left out)\" pid=\"71\"\n"));
  EXPECT_THAT(text, HasSubstr("warning no probes error=\"path-"));
  EXPECT_THAT(text, HasSubstr(": no such file\" tls=\"true\"\n"));
}

TEST_F(RedactorTest, LeavesStacksAndArgumentsOutOfALogWithNames) {
  Redactor keeping(/*keeps_names=*/true);

  EXPECT_EQ(keeping.redact_log("slow_call comm=secretd stack=\"inner\"\n"),
            "slow_call comm=\"secretd\" stack=\"(left out)\"\n");
}

TEST_F(RedactorTest, LeavesStacksAndArgumentsOutOfSlowCallsWithNamesToo) {
  v1::SlowCall call;
  call.set_category("cuda");
  call.set_function("cudaMalloc");
  call.set_comm("secretd");
  call.set_duration_ns(7);
  call.set_reason("adaptive");
  call.set_return_value("0x5ec2e7");
  call.set_explanation("copied secret bytes");
  call.add_arguments()->set_value("secret tag");
  call.add_user_stack()->set_symbol("secret_step");
  call.set_user_stack_end("cut");
  v1::TimeSplit& split = *call.mutable_time_split();
  split.set_blocked_on("futex");
  v1::Wait& wait = *split.add_waits();
  wait.set_kind("io");
  wait.set_file("secret.bin");
  wait.add_kernel_stack()->set_symbol("secret_driver");
  wait.mutable_waker()->add_stack()->set_symbol("secret_waker");
  wait.mutable_waker()->set_comm("secretd");
  v1::GpuKernelTime& kernel = *call.mutable_gpu()->add_kernels();
  kernel.set_kernel("secret_kernel");
  kernel.mutable_launcher()->set_function("cudaLaunchKernel");
  kernel.mutable_launcher()->set_frame("secret.py:7");
  v1::SlowCall kept = call;

  redactor_.learn(call);
  redactor_.redact(call);
  Redactor(/*keeps_names=*/true).redact(kept);

  EXPECT_THAT(call.DebugString(), Not(HasSubstr("secret")));
  EXPECT_EQ(kept.comm(), "secretd");
  EXPECT_EQ(kept.gpu().kernels(0).kernel(), "secret_kernel");
  EXPECT_EQ(kept.time_split().waits(0).file(), "secret.bin");
  for (const v1::SlowCall* one : {&call, &kept}) {
    EXPECT_THAT(one->arguments(), IsEmpty());
    EXPECT_THAT(one->user_stack(), IsEmpty());
    EXPECT_EQ(one->return_value() + one->explanation(), "");
    EXPECT_THAT(one->time_split().waits(0).kernel_stack(), IsEmpty());
    EXPECT_THAT(one->time_split().waits(0).waker().stack(), IsEmpty());
    EXPECT_EQ(one->gpu().kernels(0).launcher().frame(), "");
    EXPECT_EQ(one->gpu().kernels(0).launcher().function(), "cudaLaunchKernel");
    EXPECT_EQ(one->function(), "cudaMalloc");
    EXPECT_EQ(one->reason() + one->user_stack_end(), "adaptivecut");
    EXPECT_EQ(one->time_split().blocked_on() + one->time_split().waits(0).kind(), "futexio");
    EXPECT_EQ(one->duration_ns(), 7u);
  }
}

TEST_F(RedactorTest, ReplacesTextsOfAConfiguration) {
  const ordered_json config = {{"log", {{"level", "debug"}}},
                               {"metrics", {{"listen", "127.0.0.1:9465"}, {"max_series", 2000}}},
                               {"storage", {{"path", "/home/alice/store"}}},
                               {"overhead", {{"budget_percent_by_comm", {{"zeus*", 0.2}}}}},
                               {"export",
                                {{"otlp",
                                  {{"endpoint", "https://otel.corp:4317"},
                                   {"headers", {{"authorization", "Bearer t0ken"}}},
                                   {"resource_attributes", {{"cluster", "zeus"}}}}}}},
                               {"new_section", {{"new_setting", "zeus"}}}};

  for (const bool keeps_names : {false, true}) {
    Redactor redactor(keeps_names);
    const std::string text = redactor.redact_config(config).dump();
    EXPECT_THAT(text, Not(HasSubstr("t0ken")));
    EXPECT_THAT(text, Not(HasSubstr("\"cluster\":\"zeus\"")));
  }
  const ordered_json redacted = redactor_.redact_config(config);
  EXPECT_EQ(redacted["log"]["level"], "debug");
  EXPECT_EQ(redacted["metrics"], config["metrics"]);
  for (const char* secret : {"alice", "zeus", "corp", "authorization"}) {
    EXPECT_THAT(redacted.dump(), Not(HasSubstr(secret)));
  }
}

}  // namespace
}  // namespace gpuperf::client
