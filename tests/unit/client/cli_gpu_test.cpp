// What gpuperfctl shows of injected processes: kernels, sessions; and telling sessions what to do.

#include <nlohmann/json.hpp>

#include "cli_fixture.h"
#include "client/render.h"
#include "tests/unit/matchers.h"

namespace gpuperf::client {
namespace {

v1::KernelStats make_kernel() {
  v1::KernelStats kernel;
  kernel.set_kernel("void at::native::reduce<512, at::Sum<float> >(float*, int)");
  kernel.set_short_name("reduce<512, Sum<float>>");
  kernel.set_launches(1'200);
  kernel.set_coverage(1);
  kernel.set_estimated_launches(1'200);
  kernel.set_total_ns(6'000'000);
  kernel.set_share_ratio(0.75);
  kernel.set_avg_ns(5'000);
  kernel.set_p50_ns(4'900);
  kernel.set_p99_ns(9'000);
  kernel.set_max_ns(12'000);
  return kernel;
}

v1::Session make_session() {
  v1::Session session;
  session.set_id(3);
  session.set_pid(4242);
  session.set_comm("python3");
  session.set_state("collecting");
  session.set_cause("none");
  session.add_level("kernels");
  session.add_level("copies");
  session.set_sample_every(1);
  session.set_received_records(1'234);
  session.set_age_ns(130'000'000'000);
  session.set_memory_complete(true);
  return session;
}

class CliGpuTest : public CliTest {
 protected:
  CliGpuTest() {
    daemon_.answers.kernels = {make_kernel()};
    daemon_.answers.sessions = {make_session()};
  }
};

TEST_F(CliGpuTest, ShowsKernels) {
  const auto result = run({"kernels"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(
      result.out,
      "KERNEL                   LAUNCHES    TOTAL   SHARE      AVG      P50      P99      MAX\n"
      "reduce<512, Sum<float>>     1,200  6.00 ms  75.0 %  5.00 µs  4.90 µs  9.00 µs  12.0 "
      "µs\n");
}

TEST_F(CliGpuTest, TellsKernelsApartByTheirFullNames) {
  daemon_.answers.kernels.push_back(make_kernel());
  daemon_.answers.kernels[1].set_kernel("void at::native::reduce<512, at::Sum<float> >(double*)");

  const auto shared = run({"kernels"});
  daemon_.answers.kernels.pop_back();
  const auto asked = run({"kernels", "--full-names"});

  EXPECT_THAT(shared.out,
              HasSubstr("void at::native::reduce<512, at::Sum<float> >(float*, int)  "));
  EXPECT_THAT(shared.out, HasSubstr("void at::native::reduce<512, at::Sum<float> >(double*)  "));
  EXPECT_THAT(asked.out, HasSubstr("void at::native::reduce<512, at::Sum<float> >(float*, int)  "));
}

TEST_F(CliGpuTest, ShowsLatencyGraphsAndCoverageWhereThereAreAny) {
  daemon_.answers.kernels[0].set_joined_launches(7);
  daemon_.answers.kernels[0].set_launch_latency_p50_ns(4'100);
  daemon_.answers.kernels[0].set_launch_latency_p99_ns(21'000);
  daemon_.answers.kernels[0].set_graph_launches(30);
  daemon_.answers.kernels[0].set_coverage(0.1);

  const auto result = run({"kernels"});

  EXPECT_THAT(result.out, HasSubstr("LATENCY P50  LATENCY P99  COVERAGE\n"));
  EXPECT_THAT(result.out, HasSubstr("4.10 µs      21.0 µs    10.0 %\n"));
  EXPECT_THAT(result.out, HasSubstr("IN GRAPHS"));
  EXPECT_THAT(result.out,
              HasSubstr("Rows that count only a sample of the launches, unscaled (COVERAGE): 1"));
}

TEST_F(CliGpuTest, AsksForKernelsByProcessNameAndOrder) {
  daemon_.answers.kernels[0].set_pid(4242);
  daemon_.answers.kernels[0].set_comm("python3");

  const auto result = run({"kernels", "--per-process", "--pid", "4242", "--kernel", "*reduce*",
                           "--sort", "p99_ns", "--limit", "5"});

  EXPECT_THAT(result.out, HasSubstr("4242  python3  reduce<512"));
  EXPECT_EQ(daemon_.requests()[0],
            "ListKernels: filter { pid: 4242 function: \"*reduce*\" } page { limit: 5 } "
            "sort: \"p99_ns\" per_process: true");
}

TEST_F(CliGpuTest, GivesKernelsAndSessionsAsJson) {
  EXPECT_EQ(ordered_json::parse(run({"kernels", "-o", "json"}).out),
            ordered_json::array({to_json(daemon_.answers.kernels[0])}));
  EXPECT_EQ(ordered_json::parse(run({"sessions", "-o", "json"}).out),
            ordered_json::array({to_json(daemon_.answers.sessions[0])}));
}

TEST_F(CliGpuTest, SaysWhyThereAreNoKernels) {
  daemon_.answers.kernels.clear();

  EXPECT_THAT(run({"kernels"}).out, HasSubstr("No process is injected. Start the workload with "
                                              "CUDA_INJECTION64_PATH="));
  EXPECT_THAT(run({"kernels", "--pid", "1"}).out, HasSubstr("No kernel matches."));
}

TEST_F(CliGpuTest, SaysThatSessionsHaveSeenNoKernelYet) {
  daemon_.answers.kernels.clear();
  daemon_.answers.status.mutable_sessions()->set_waiting(1);
  daemon_.answers.status.set_session_lost_records(12);

  const auto result = run({"kernels"});

  EXPECT_THAT(result.out, HasSubstr("No kernel was seen yet."));
  EXPECT_THAT(result.out, HasSubstr("Records lost since the daemon started: 12."));
}

TEST_F(CliGpuTest, ShowsSessions) {
  const auto result = run({"sessions"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out,
            " PID  COMM     STATE         AGE  RECORDS  LOST  LEVEL\n"
            "4242  python3  collecting  2m10s    1,234     0  kernels,copies\n");
  EXPECT_THAT(daemon_.requests(),
              ElementsAre("ListSessions: filter { } page { limit: 1000 }", "ListAttachable: "));
}

TEST_F(CliGpuTest, ShowsHowTheLibraryIsInEachProcessThatUsesCuda) {
  const auto add = [this](uint32_t pid, const char* state, const char* detail) {
    v1::Attachment& row = daemon_.answers.attachments.emplace_back();
    row.set_pid(pid);
    row.set_comm("python3");
    row.set_state(state);
    row.set_detail(detail);
  };
  add(4242, "injected", "");
  add(4243, "attached", "");
  add(4244, "can", "");
  add(4245, "cannot", "pid 9 traces it");
  v1::Session& attached =
      daemon_.answers.sessions.emplace_back(v1::Session(daemon_.answers.sessions[0]));
  attached.set_pid(4243);
  attached.set_attached_unix_ns(5);
  attached.set_attach_held_ns(1'400'000);

  EXPECT_EQ(run({"sessions"}).out,
            " PID  COMM     STATE         AGE  RECORDS  LOST  LEVEL           LIBRARY\n"
            "4242  python3  collecting  2m10s    1,234     0  kernels,copies  from its start\n"
            "4243  python3  collecting  2m10s    1,234     0  kernels,copies  attached: held a "
            "thread 1.40 ms\n"
            "\nProcesses that use CUDA without the library, by whether they can be attached to:\n"
            " PID  COMM     STATE   WHY\n"
            "4244  python3  can     -\n"
            "4245  python3  cannot  pid 9 traces it\n");
  EXPECT_THAT(run({"sessions", "--pid", "4242"}).out, Not(HasSubstr("without the library")));
}

TEST_F(CliGpuTest, ShowsWhatASessionDoesNotDoAndWhatItHolds) {
  v1::Session& session = daemon_.answers.sessions[0];
  session.set_state("yielded");
  session.set_cause("other_client");
  session.set_detail("libkineto\x1b[2J.so");
  session.set_sample_every(10);
  session.set_lost_records(5);
  session.set_memory_complete(false);
  v1::GpuMemory& memory = *session.add_memory();
  memory.set_memory("device");
  memory.set_used_bytes(3 << 20);

  const auto result = run({"sessions", "list", "--all"});

  EXPECT_THAT(result.out, HasSubstr("yielded"));
  EXPECT_THAT(result.out, HasSubstr("    5  1 of 10  ~3.00 MiB"));
  EXPECT_THAT(
      result.out,
      HasSubstr("another CUPTI client in the process has priority: libkineto\\x1b[2J.so\n"));
  EXPECT_THAT(daemon_.requests(),
              ElementsAre("ListSessions: filter { } page { limit: 1000 } include_closed: true"));
}

TEST_F(CliGpuTest, SaysWhyThereAreNoSessions) {
  daemon_.answers.sessions.clear();

  EXPECT_THAT(run({"sessions"}).out, HasSubstr("No process is injected. Sessions that have ended"));
  EXPECT_THAT(run({"sessions", "--pod", "x"}).out, HasSubstr("No session matches."));
}

void add_limits(v1::KernelStats& kernel) {
  v1::KernelLaunch& launch = *kernel.mutable_launch();
  for (const uint32_t blocks : {16, 2, 1}) launch.add_grid(blocks);
  for (const uint32_t threads : {256, 1, 1}) launch.add_block(threads);
  launch.set_registers_per_thread(64);
  launch.set_shared_memory_bytes(2'048);
  launch.set_sm_count(132);
  launch.set_blocks_per_sm(4);
  launch.set_occupancy_ratio(0.5);
  launch.set_occupancy_limit("registers");
  launch.set_waves(0.06);
  v1::KernelStalls& stalls = *kernel.mutable_stalls();
  stalls.set_samples(20'000);
  v1::KernelStall& waits = *stalls.add_stalls();
  waits.set_name("long_scoreboard");
  waits.set_meaning("waits for data from global or local memory");
  waits.set_samples(15'000);
  waits.set_idle_samples(7'500);
  waits.set_share_ratio(0.75);
  v1::KernelStall& selected = *stalls.add_stalls();
  selected.set_name("selected");
  selected.set_samples(5'000);
  selected.set_share_ratio(0.25);
  v1::HotInstruction& hot = *stalls.add_hottest();
  hot.set_cubin_crc("df940d43");
  hot.set_pc_offset_bytes(0x120);
  hot.set_samples(12'000);
  hot.set_share_ratio(0.6);
  hot.set_stall("long_scoreboard");
  hot.set_stall_samples(12'000);
  v1::HotLine& line = *stalls.add_lines();
  line.mutable_source()->set_file("/src/a.cu");
  line.mutable_source()->set_line(4);
  line.mutable_source()->set_function("twice(float)");
  line.mutable_source()->set_outer_file("/src/a.cu");
  line.mutable_source()->set_outer_line(13);
  line.set_samples(12'000);
  line.set_share_ratio(0.6);
  line.set_stall("long_scoreboard");
  line.set_stall_samples(9'000);
  stalls.set_unlined_samples(8'000);
  stalls.set_unlined_reason("their module has no line table");
  v1::KernelVerdict& verdict = *kernel.add_verdicts();
  verdict.set_name("small launch");
  verdict.set_reason("32 blocks on 132 SMs");
  verdict.set_advice("more blocks");
}

TEST_F(CliGpuTest, ShowsWhatLimitsKernels) {
  add_limits(daemon_.answers.kernels[0]);
  daemon_.answers.kernels.push_back(make_kernel());

  const std::string table = run({"kernels", "--stalls"}).out;

  EXPECT_THAT(table, HasSubstr("50.0 % by registers"));
  EXPECT_THAT(table, HasSubstr("long_scoreboard 75.0 %, selected 25.0 %"));
  EXPECT_THAT(table, HasSubstr("small launch"));
}

TEST_F(CliGpuTest, ShowsWhatLimitsOneKernel) {
  const auto unsampled = run({"kernels", "show", "*reduce*"});
  add_limits(daemon_.answers.kernels[0]);
  const auto result = run({"kernels", "show", "*reduce*", "--pid", "4242"});

  EXPECT_EQ(unsampled.exit_code, 0) << unsampled.err;
  EXPECT_THAT(unsampled.out, HasSubstr("sudo gpuperfctl sessions burst PID --samples --for 10s"));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("16 x 2 x 1 blocks of 256 x 1 x 1 threads; 64 registers"));
  EXPECT_THAT(result.out,
              HasSubstr("at most 50.0 % (limited by registers): 4 blocks on each of 132 "
                        "SMs; 0.06 waves"));
  EXPECT_THAT(result.out,
              HasSubstr("Limited by small launch\n  32 blocks on 132 SMs\n  Try: more blocks\n"));
  EXPECT_THAT(result.out, HasSubstr("long_scoreboard  waits for data from global or local memory"));
  EXPECT_THAT(result.out, HasSubstr("0x120"));
  EXPECT_THAT(result.out, HasSubstr("60.0 %   12,000  long_scoreboard 75.0 %  /src/a.cu:4 "
                                    "twice(float) at /src/a.cu:13"));
  EXPECT_THAT(result.out, HasSubstr("Source lines of 8,000 samples are not known: their module"));
  EXPECT_EQ(ordered_json::parse(run({"kernels", "show", "x", "-o", "json"}).out),
            to_json(daemon_.answers.kernels[0]));
}

TEST_F(CliGpuTest, SaysThatNoKernelMatches) {
  daemon_.answers.kernels.clear();
  const auto result = run({"kernels", "show", "nothing"});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("no kernel matches \"nothing\""));
}

TEST_F(CliGpuTest, TellsSessionsWhatToCollect) {
  const auto result = run({"sessions", "pause", "4242"});
  EXPECT_EQ(run({"sessions", "run", "4242", "--sample-every", "10"}).exit_code, 0);
  EXPECT_EQ(run({"sessions", "off", "4242"}).exit_code, 0);
  EXPECT_EQ(run({"sessions", "burst", "4242", "--nodes", "--all-apis", "--for", "1.5s"}).exit_code,
            0);
  EXPECT_EQ(run({"sessions", "burst", "4242", "--samples", "--for", "10s"}).exit_code, 0);

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "Sent to 1 session. Check the new state: gpuperfctl sessions --pid 4242\n");
  EXPECT_THAT(daemon_.requests(),
              ElementsAre("SetSession: pid: 4242 mode: SESSION_MODE_PAUSE",
                          "SetSession: pid: 4242 mode: SESSION_MODE_RUN sample_every: 10",
                          "SetSession: pid: 4242 mode: SESSION_MODE_OFF",
                          "SetSession: pid: 4242 mode: SESSION_MODE_RUN burst_nodes: true "
                          "burst_all_apis: true burst_ms: 1500",
                          "SetSession: pid: 4242 mode: SESSION_MODE_RUN burst_ms: 10000 "
                          "burst_samples: true"));
}

TEST_F(CliGpuTest, RefusesOrdersThatMakeNoSenseBeforeAsking) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"pause"},
                                                {"pause", "0"},
                                                {"pause", "x"},
                                                {"burst", "1"},
                                                {"burst", "1", "--nodes", "--for", "61s"},
                                                {"burst", "1", "--nodes", "--for", "5"},
                                                {"burst", "1", "--nodes", "--for", "1us"},
                                                {"run", "1", "--sample-every", "0"},
                                                {"off", "1", "--limit", "3"}}) {
    std::vector<std::string> command = {"sessions"};
    command.insert(command.end(), words.begin(), words.end());
    EXPECT_EQ(run(command).exit_code, 2) << words[0] << " " << words.size();
  }
  EXPECT_THAT(daemon_.requests(), IsEmpty());
}

TEST_F(CliGpuTest, SaysWhatCouldNotBeTold) {
  daemon_.answers.control_failure =
      grpc::Status(grpc::StatusCode::NOT_FOUND, "process 9 has no open session");

  const auto result = run({"sessions", "off", "9"});

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err, "gpuperfctl: cannot switch off process 9: process 9 has no open session\n");
}

TEST_F(CliGpuTest, ShowsSessionsInStatusAndProcesses) {
  EXPECT_THAT(run({"status"}).out, HasSubstr("Sessions    none\n"));
  EXPECT_THAT(run({"processes"}).out, Not(HasSubstr("SESSION")));
}

TEST_F(CliGpuTest, ShowsSessionsByStateAndWhatTheyLost) {
  daemon_.answers.status.mutable_sessions()->set_collecting(2);
  daemon_.answers.status.mutable_sessions()->set_yielded(1);
  daemon_.answers.status.set_session_lost_records(1'500);
  daemon_.answers.status.set_kernel_launches(111'039);
  daemon_.answers.processes[0].set_session_state("collecting");

  const auto status = run({"status"});

  EXPECT_THAT(status.out, HasSubstr("Sessions    2 collecting, 1 yielded; 1,500 records lost\n"));
  EXPECT_THAT(status.out, HasSubstr("Kernels     111,039 launches\n"));
  EXPECT_THAT(run({"processes"}).out, HasSubstr("OVERHEAD  SESSION"));
}

}  // namespace
}  // namespace gpuperf::client
