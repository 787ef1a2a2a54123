// gpuperfctl functions, probes and processes against a daemon of ours, in every output form.

#include <nlohmann/json.hpp>

#include "cli_fixture.h"
#include "client/render.h"
#include "example_calls.h"
#include "tests/unit/matchers.h"

namespace gpuperf::client {
namespace {

class CliListTest : public CliTest {
 protected:
  template <typename Row>
  static ordered_json make_array(const std::vector<Row>& rows) {
    auto array = ordered_json::array();
    for (const Row& row : rows) array.push_back(to_json(row));
    return array;
  }

  // Reads CSV with Python's parser: one that we did not write.
  static ordered_json parse_csv(const std::string& text) {
    const auto parsed = run_program(
        {"-c", "import csv,json,sys; print(json.dumps(list(csv.reader(sys.stdin,strict=True))))"},
        {.program = "python3", .input = text});
    EXPECT_EQ(parsed.exit_code, 0) << parsed.err;
    return ordered_json::parse(parsed.out);
  }
};

TEST_F(CliListTest, ShowsFunctionsAsATable) {
  const auto result = run({"functions"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.out,
            "CATEGORY  FUNCTION              CALLS  ERRORS    TOTAL      AVG      P50      P99     "
            " MAX  SLOW  IN-FLIGHT  ERROR NAMES\n"
            "cuda      cudaLaunchKernel  1,000,000       0   5.00 s  5.00 µs  4.61 µs  1.25 ms  "
            "25.0 ms     0          0  -\n"
            "cuda      cudaMalloc            4,096      14  20.5 ms  5.00 µs  4.61 µs  1.25 ms  "
            "25.0 ms    12          1  cudaErrorMemoryAllocation 14\n"
            "cublas    cublasGemmEx            512       0  2.56 ms  5.00 µs  4.61 µs  1.25 ms  "
            "25.0 ms     0          0  -\n");
}

TEST_F(CliListTest, SumsFunctionsOverProcessesUnlessAsked) {
  (void)run({"functions", "-o", "json"});
  (void)run({"functions", "-o", "json", "--per-process"});

  EXPECT_THAT(daemon_.requests(),
              ElementsAre("ListFunctions: filter { } page { limit: 1000 } with_buckets: true",
                          "ListFunctions: filter { } page { limit: 1000 } per_process: true "
                          "with_buckets: true"));
}

TEST_F(CliListTest, ShowsWhoCalledWithPerProcess) {
  daemon_.answers.functions[0].set_pid(4242);
  daemon_.answers.functions[0].set_comm("python3");
  daemon_.answers.functions[1].set_pid(4100);
  daemon_.answers.functions[1].set_comm("evil\x1b[2J");
  daemon_.answers.functions[1].set_exited(true);
  daemon_.answers.functions[2].set_comm("other");

  const auto result = run({"functions", "--per-process"});

  EXPECT_THAT(result.out, HasSubstr(" PID  COMM                  CATEGORY  FUNCTION "));
  EXPECT_THAT(result.out, HasSubstr("4242  python3               cuda      cudaLaunchKernel "));
  EXPECT_THAT(result.out, HasSubstr("4100  evil\\x1b[2J (exited)  cuda      cudaMalloc "));
  EXPECT_THAT(result.out, HasSubstr("   -  other                 cublas    cublasGemmEx "));
}

TEST_F(CliListTest, SendsEveryFilterOfFunctions) {
  (void)run({"functions", "-o", "json", "--pid", "4242", "--container", "0123", "--pod", "train-0",
             "--category", "cuda", "--function", "cuda*", "--sort", "calls", "--limit", "7"});

  EXPECT_THAT(daemon_.requests(),
              ElementsAre("ListFunctions: filter { pid: 4242 container: \"0123\" pod: \"train-0\" "
                          "category: \"cuda\" function: \"cuda*\" } page { limit: 7 } "
                          "sort: \"calls\" with_buckets: true"));
}

TEST_F(CliListTest, SaysInTheTableWhatTheNumbersDoNot) {
  daemon_.answers.functions[0].set_untimed(5);
  daemon_.answers.functions[1].set_coverage(0.5);
  daemon_.answers.functions[2].set_abandoned(3);
  auto* drop = daemon_.answers.status.add_drops();
  drop->set_stage("bpf");
  drop->set_count(1200);
  drop = daemon_.answers.status.add_drops();
  drop->set_stage("log");
  drop->set_count(7);

  const auto result = run({"functions"});

  EXPECT_THAT(
      result.out,
      ::testing::EndsWith(
          "\n\n"
          "Rows whose calls are counted but not timed: 1. Why: gpuperfctl probes\n"
          "Rows probed only part of the time (COVERAGE), with an estimate of the other calls (NOT "
          "COUNTED): 1. Why: gpuperfctl status\n"
          "Calls that never returned (longjmp, exception, thread or process exit): 3\n"
          "Drops since the daemon started: 1,200. What was lost: gpuperfctl status\n"));
}

TEST_F(CliListTest, ShowsCallsThatWereNotCountedApart) {
  v1::CallsEstimate& missed = *daemon_.answers.functions[0].mutable_missed();
  missed.set_calls(20'000);
  missed.set_calls_error(620);
  EXPECT_THAT(run({"functions"}).out, HasSubstr("~20,000 ±3.10 %"));

  missed.set_calls_error(UINT64_MAX);
  EXPECT_THAT(run({"functions"}).out, HasSubstr("≥ 20,000"));
}

TEST_F(CliListTest, ShowsNoDurationWhereNoneIsKnown) {
  auto& row = daemon_.answers.functions[0];
  row.Clear();
  row.set_category("libtorch");
  row.set_function("linear_forward");
  row.set_calls(5);
  row.set_untimed(5);
  row.set_coverage(1);

  const auto result = run({"functions"});

  EXPECT_THAT(result.out, HasSubstr("libtorch  linear_forward      5       0        -        -"));
}

TEST_F(CliListTest, SaysWhyATableIsEmpty) {
  daemon_.answers.functions.clear();
  daemon_.answers.probes.clear();
  daemon_.answers.processes.clear();

  EXPECT_THAT(run({"functions"}).out, HasSubstr("No call was counted yet."));
  EXPECT_THAT(run({"functions", "--pid", "1"}).out, HasSubstr("No function matches."));
  EXPECT_THAT(run({"probes"}).out, HasSubstr("No function is configured"));
  EXPECT_THAT(run({"probes", "--category", "x"}).out, HasSubstr("No probe matches."));
  EXPECT_THAT(run({"processes"}).out, HasSubstr("No process was seen yet."));
  EXPECT_THAT(run({"processes", "--pod", "x"}).out, HasSubstr("No process matches."));
  EXPECT_EQ(run({"processes", "-o", "json"}).out, "[]\n");
}

TEST_F(CliListTest, ShowsListsAsJsonWithTheProtosNames) {
  EXPECT_EQ(ordered_json::parse(run({"functions", "-o", "json"}).out),
            make_array(daemon_.answers.functions));
  EXPECT_EQ(ordered_json::parse(run({"probes", "-o", "json"}).out),
            make_array(daemon_.answers.probes));
  EXPECT_EQ(ordered_json::parse(run({"processes", "-o", "json"}).out),
            make_array(daemon_.answers.processes));
}

TEST_F(CliListTest, ShowsWhatEachRunningProcessPaysForWhat) {
  v1::Process& process = daemon_.answers.processes[0];
  process.set_overhead_ratio(0.012);
  process.set_overhead_hooks_ratio(0.002);
  process.set_overhead_cupti_ratio(0.004);
  process.set_overhead_budget_ratio(0.01);
  process.set_overhead_thread_ratio(0.024);

  const std::string text = run({"overhead"}).out;

  EXPECT_THAT(text, HasSubstr("OVERHEAD  BUDGET  PROBES  THREAD   HOOKS   CUPTI"));
  EXPECT_THAT(text, HasSubstr("1.20 %  1.00 %  0.60 %  2.40 %  0.20 %  0.40 %"));
  EXPECT_THAT(text, Not(HasSubstr("nvidia-smi")));  // it has exited
}

TEST_F(CliListTest, ShowsListsAsCsvThatOthersCanRead) {
  daemon_.answers.processes[0].set_comm("a,\"b\"\nc");

  const ordered_json rows = parse_csv(run({"processes", "-o", "csv"}).out);

  EXPECT_EQ(rows, ordered_json::parse(R"([
    ["pid", "start_boot_ns", "comm", "container", "pod", "namespace", "functions", "calls",
     "slow_calls", "exited", "slurm_job", "slurm_rank", "overhead_ratio",
     "session_state", "overhead_hooks_ratio", "overhead_cupti_ratio",
     "overhead_budget_ratio", "overhead_thread_ratio", "overhead_measured", "overhead_correction"],
    ["4242", "77000000000", "a,\"b\"\nc", "", "", "", "3", "1004608", "12", "false", "", "",
     "0.0", "", "0.0", "0.0", "0.0", "0.0", "", "0.0"],
    ["4100", "77000000000", "nvidia-smi", "", "", "", "3", "9", "0", "true", "", "", "0.0", "", "0.0",
     "0.0", "0.0", "0.0", "", "0.0"]])"));
}

TEST_F(CliListTest, PutsErrorCountsIntoCsvAsJson) {
  const ordered_json rows = parse_csv(run({"functions", "-o", "csv"}).out);

  ASSERT_EQ(rows[0][20], "error_counts");
  EXPECT_EQ(
      ordered_json::parse(rows[2][20].get<std::string>()),
      ordered_json::parse(R"([{"error": "cudaErrorMemoryAllocation", "code": 2, "count": 14}])"));
}

TEST_F(CliListTest, PutsNestedMessagesIntoCsvAsJson) {
  daemon_.answers.slow_calls = {make_futex_call(), make_in_flight_call()};

  const ordered_json rows = parse_csv(run({"slow", "list", "-o", "csv"}).out);

  ASSERT_EQ(rows[0][19], "time_split");
  const ordered_json call = to_json(daemon_.answers.slow_calls[0]);
  EXPECT_EQ(ordered_json::parse(rows[1][19].get<std::string>()), call["time_split"]);
  EXPECT_EQ(rows[0][23], "in_flight");
  EXPECT_EQ(rows[2][23], "true");
}

TEST_F(CliListTest, ShowsProbesAsATable) {
  const auto result = run({"probes"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out,
            "CATEGORY  FUNCTION          STATE           MECHANISM  THRESHOLD  LIBRARY             "
            "                       REASON\n"
            "cuda      cudaLaunchKernel  attached        session       100 ms  "
            "/usr/lib/x86_64-linux-gnu/libcudart.so.12  -\n"
            "cuda      cudaMalloc        attached        session       100 ms  "
            "/usr/lib/x86_64-linux-gnu/libcudart.so.12  -\n"
            "cuda      cudaMallocAsync   symbol_missing  -             100 ms  -                   "
            "                       libcudart.so.11.0 has no such symbol\n");
}

TEST_F(CliListTest, ShowsWhatAHitOfAProbeCosts) {
  auto& probes = daemon_.answers.probes;
  probes[0].set_hit_cost(v1::HIT_COST_EMULATED);
  probes[0].set_cost_ns(650);
  probes[1].set_hit_cost(v1::HIT_COST_STEPPED);
  probes[1].set_exit_sites(3);
  probes[1].set_cost_ns(4'300);
  probes[2].set_state(v1::PROBE_STATE_ALIAS);

  const auto result = run({"probes"});

  EXPECT_THAT(result.out, HasSubstr("STATE     MECHANISM  HIT      EXITS     COST  THRESHOLD"));
  EXPECT_THAT(result.out, HasSubstr("attached  session    cheap        -   650 ns     100 ms"));
  EXPECT_THAT(result.out, HasSubstr("attached  session    stepped      3  4.30 µs     100 ms"));
  EXPECT_THAT(result.out, HasSubstr("alias     -          -            -        -     100 ms"));
}

TEST_F(CliListTest, ShowsThresholdsThatFunctionsSetThemselves) {
  daemon_.answers.probes[0].set_adaptive_threshold_ns(1'250'000);

  const auto result = run({"probes"});

  EXPECT_THAT(result.out, HasSubstr("MECHANISM  THRESHOLD  ADAPTIVE  LIBRARY"));
  EXPECT_THAT(result.out, HasSubstr("session       100 ms   1.25 ms  /usr/lib"));
  EXPECT_THAT(result.out, HasSubstr("-             100 ms         -  -  "));
}

TEST_F(CliListTest, ShowsSymbolsWhereTheyDifferFromNames) {
  daemon_.answers.probes[0].set_symbol("_ZN5torch6linearEv");

  EXPECT_THAT(run({"probes"}).out,
              HasSubstr("cuda      cudaLaunchKernel  _ZN5torch6linearEv  attached"));
}

TEST_F(CliListTest, TakesProbesListAsProbes) {
  EXPECT_EQ(run({"probes", "list"}).out, run({"probes"}).out);
  EXPECT_EQ(run({"probes", "list", "--function", "x", "-o", "json"}).exit_code, 0);
  EXPECT_EQ(daemon_.requests().back(),
            "ListProbes: filter { function: \"x\" } page { limit: 1000 }");
}

TEST_F(CliListTest, ShowsProcessesAsATable) {
  daemon_.answers.processes[0].set_pod("train-0");
  daemon_.answers.processes[0].set_overhead_ratio(0.0042);

  EXPECT_EQ(run({"processes"}).out,
            " PID  COMM        STATE    FUNCTIONS      CALLS  SLOW  OVERHEAD  POD\n"
            "4242  python3     running          3  1,004,608    12    0.42 %  train-0\n"
            "4100  nvidia-smi  exited           3          9     0         -  -\n");
}

TEST_F(CliListTest, SortsProcessesAndProbesItself) {
  const auto processes =
      ordered_json::parse(run({"processes", "-o", "json", "--sort", "comm", "--limit", "1"}).out);
  const auto probes =
      ordered_json::parse(run({"probes", "-o", "json", "--sort", "state", "--limit", "1"}).out);

  ASSERT_EQ(processes.size(), 1U);
  EXPECT_EQ(processes[0]["comm"], "nvidia-smi");
  ASSERT_EQ(probes.size(), 1U);
  EXPECT_EQ(probes[0]["state"], "symbol_missing");
}

TEST_F(CliListTest, FollowsPagesToTheEnd) {
  daemon_.answers.largest_page = 2;

  EXPECT_EQ(ordered_json::parse(run({"functions", "-o", "json"}).out),
            make_array(daemon_.answers.functions));
  EXPECT_THAT(daemon_.requests(),
              ElementsAre("ListFunctions: filter { } page { limit: 1000 } with_buckets: true",
                          "ListFunctions: filter { } page { limit: 1000 page_token: \"2\" } "
                          "with_buckets: true"));
}

TEST_F(CliListTest, FollowsPagesOnlyUpToTheLimit) {
  daemon_.answers.largest_page = 1;

  const auto rows = ordered_json::parse(run({"functions", "-o", "json", "--limit", "2"}).out);

  EXPECT_EQ(rows.size(), 2U);
  EXPECT_THAT(daemon_.requests(),
              ElementsAre("ListFunctions: filter { } page { limit: 2 } with_buckets: true",
                          "ListFunctions: filter { } page { limit: 1 page_token: \"1\" } "
                          "with_buckets: true"));
}

TEST_F(CliListTest, GivesUpOnPagesThatRepeat) {
  daemon_.answers.repeat_page_token = true;

  const auto result = run({"functions"});

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("repeats a page"));
}

TEST_F(CliListTest, StaysHarmlessWithHostileNames) {
  daemon_.answers.processes[0].set_comm("\x1b]0;owned\x07\u202e");
  daemon_.answers.processes[0].set_pod("a\nb");

  for (const char* form : {"table", "json"}) {
    const auto result = run({"processes", "-o", form});
    EXPECT_THAT(result.out, Not(HasSubstr("\x1b")));
    EXPECT_THAT(result.out, Not(HasSubstr("\u202e")));
  }
  EXPECT_THAT(run({"processes"}).out, HasSubstr("a\\nb"));
}

TEST_F(CliListTest, ReadsAnswersBeyondTheUsualLimitOfGrpc) {
  for (int i = 0; i < 60; ++i) daemon_.answers.slow_calls.push_back(daemon_.answers.slow_calls[0]);
  for (auto& call : daemon_.answers.slow_calls) {
    call.mutable_user_stack(0)->set_symbol(std::string(100'000, 'x'));
  }

  const auto result = run({"slow", "list", "-o", "json"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(ordered_json::parse(result.out), make_array(daemon_.answers.slow_calls));
}

}  // namespace
}  // namespace gpuperf::client
