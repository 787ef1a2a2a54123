// gpuperfctl status and version.

#include <nlohmann/json.hpp>

#include "cli_fixture.h"
#include "client/render.h"
#include "client/text.h"
#include "tests/unit/matchers.h"

namespace gpuperf::client {
namespace {

using CliStatusTest = CliTest;

TEST_F(CliStatusTest, SaysHowTheDaemonIs) {
  daemon_.answers.status.set_start_unix_ns(read_wall_clock_ns() -
                                           7'530'000'000'000);  // 2 h 5.5 min

  const auto result = run({"status"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out,
            "Daemon      gpuperfd 0.1.0, pid 812, up 2h05m, kernel 6.18.5\n"
            "Mechanism   session (uprobe session: entry and return in one link)\n"
            "Config      /etc/gpuperf/config.json\n"
            "Metrics     http://127.0.0.1:9465/metrics\n"
            "Probes      412 attached, 3 entry only, 57 waiting for a library, 2 symbol missing\n"
            "Files       7 probed\n"
            "Processes   2 running\n"
            "GPUs        none: there is no NVIDIA GPU on this host\n"
            "Calls       1,234,567\n"
            "Slow calls  12\n"
            "Sessions    none\n"
            "Kernels     0 launches\n"
            "Store       /var/lib/gpuperf/slow, 50.2 MiB used\n"
            "Cost        CPU 3.21 s (0.04 % of one CPU since start), memory 45.3 MiB\n"
            "Overhead    none measured\n"
            "Problems    none\n"
            "Drops       none\n");
}

TEST_F(CliStatusTest, SaysWhatDoesNotWorkAndWhatWasLost) {
  auto& status = daemon_.answers.status;
  status.set_mechanism("none");
  status.clear_metrics_address();
  auto* problem = status.add_problems();
  problem->set_subject("probes");
  problem->set_message("no permission to load programs\x1b[2J");
  problem->set_hint("run gpuperfd as root");
  auto* drop = status.add_drops();
  drop->set_stage("bpf");
  drop->set_reason("slow_ring_full");
  drop->set_count(1234);
  drop->set_meaning("records of slow calls; the calls themselves are counted");

  const auto result = run({"status"});

  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("Mechanism   none: nothing can be probed\n"));
  EXPECT_THAT(result.out, HasSubstr("Metrics     not served\n"));
  EXPECT_THAT(result.out, HasSubstr("Problems    1\n"
                                    "  probes: no permission to load programs\\x1b[2J\n"
                                    "    hint: run gpuperfd as root\n"));
  EXPECT_THAT(result.out,
              HasSubstr("Drops       1\n"
                        "  STAGE  REASON          COUNT  MEANING\n"
                        "  bpf    slow_ring_full  1,234  records of slow calls; the calls "
                        "themselves are counted\n"));
}

TEST_F(CliStatusTest, SaysWhatTheProbesCostAndWhatTheBudgetTookOut) {
  auto& status = daemon_.answers.status;
  status.set_overhead_ratio(0.0123);
  status.set_overhead_pid(4242);
  status.set_overhead_hooks_ratio(0.001);
  status.set_overhead_cupti_ratio(0.01);
  status.mutable_probes()->set_suspended(1);
  status.mutable_probes()->set_alias(4);
  auto* row = status.add_suspensions();
  row->set_category("cuda");
  row->set_function("cudaLaunchKernel");
  row->set_pid(4242);
  row->set_comm("evil\x1b[2J");
  row->set_share_ratio(0.034);
  row->set_times(2);

  const auto result = run({"status"});

  EXPECT_THAT(result.out, HasSubstr("symbol missing, 1 suspended, 4 counted under another name\n"));
  EXPECT_THAT(
      result.out,
      HasSubstr("Overhead    most in process 4242: an estimated 1.23 % of its time (launch hooks "
                "0.10 %, CUPTI 1.00 %)\n"));
  EXPECT_THAT(
      result.out,
      HasSubstr("Suspended   1 by the overhead budget\n"
                "  CATEGORY  FUNCTION           SHARE   PID  COMM         COUNTED IN  TIMES\n"
                "  cuda      cudaLaunchKernel  3.40 %  4242  evil\\x1b[2J  any moment      2\n"));
}

TEST_F(CliStatusTest, ShowsLimitsThatAreHalfFull) {
  const auto add = [this](const std::string& bound, const std::string& unit, uint64_t highest,
                          bool is_rotating) {
    v1::BoundLevel& level = *daemon_.answers.status.add_bounds();
    level.set_bound(bound);
    level.set_unit(unit);
    level.set_used(highest / 2);
    level.set_highest(highest);
    level.set_limit(4'096);
    level.set_rotating(is_rotating);
  };
  add("cells", "pairs", 2'048, false);
  add("shapes", "shapes", 2'047, false);
  add("store_bytes", "bytes", 4'096, true);
  add("slow_ring_bytes", "bytes", 4'096, false);

  const auto result = run({"status"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              HasSubstr("Limits      2 of 4 were half full within the last two minutes\n"
                        "  LIMIT                USED           HIGHEST     LIMIT  COUNTS\n"
                        "  cells               1,024    2,048 (50.0 %)     4,096  pairs\n"
                        "  slow_ring_bytes  2.00 KiB  4.00 KiB (100 %)  4.00 KiB  bytes\n"));
  daemon_.answers.status.clear_bounds();
  EXPECT_THAT(run({"status"}).out, Not(HasSubstr("Limits")));
}

TEST_F(CliStatusTest, CountsTheGpusAndThoseInTrouble) {
  daemon_.answers.status.clear_gpus_reason();
  daemon_.answers.status.set_gpus(8);
  daemon_.answers.status.set_gpus_in_trouble(1);

  EXPECT_THAT(run({"status"}).out, HasSubstr("\nGPUs        8, 1 in trouble: gpuperfctl gpus\n"));
}

TEST_F(CliStatusTest, SaysHowContainersAreInjected) {
  const auto add = [this](const char* way, bool working, const char* detail) {
    v1::InjectionWay& added = *daemon_.answers.status.add_injection_ways();
    added.set_way(way);
    added.set_working(working);
    added.set_detail(detail);
  };
  EXPECT_THAT(run({"status"}).out, Not(HasSubstr("Injection")));
  add("cdi", true, "/run/\x1b[2J.json: --device gpuperf.dev/inject=all");
  add("device_plugin", false, "no kubelet listens there");

  EXPECT_THAT(run({"status"}).out,
              HasSubstr("\nInjection   cdi: /run/\\x1b[2J.json: --device gpuperf.dev/inject=all\n"
                        "            device_plugin: does not work: no kubelet listens there\n"));
}

TEST_F(CliStatusTest, SaysThatThereIsNoStore) {
  daemon_.answers.status.clear_store_path();
  daemon_.answers.status.clear_store_bytes();

  EXPECT_THAT(run({"status"}).out,
              HasSubstr("\nStore       none: slow calls are kept in memory only\n"));
}

TEST_F(CliStatusTest, EscapesThePathOfTheStore) {
  daemon_.answers.status.set_store_path("/var/\x1b[2J");

  EXPECT_THAT(run({"status"}).out, HasSubstr("\nStore       /var/\\x1b[2J, 50.2 MiB used\n"));
}

TEST_F(CliStatusTest, LeavesOutTheUptimeWhenTheClocksDisagree) {
  daemon_.answers.status.set_start_unix_ns(read_wall_clock_ns() + 3'600'000'000'000);

  EXPECT_THAT(run({"status"}).out, AllOf(Not(HasSubstr(" up ")), HasSubstr("CPU 3.21 s, memory")));
}

TEST_F(CliStatusTest, ShowsAnObjectAsJsonAndOneRowAsCsv) {
  EXPECT_EQ(ordered_json::parse(run({"status", "-o", "json"}).out),
            to_json(daemon_.answers.status));
  EXPECT_THAT(run({"status", "-o", "csv"}).out, StartsWith("version,pid,start_unix_ns,"));
}

TEST_F(CliStatusTest, TellsBothVersions) {
  EXPECT_EQ(run({"version"}).out, "gpuperfctl " GPUPERF_VERSION "\ngpuperfd   0.1.0\n");
  EXPECT_EQ(ordered_json::parse(run({"version", "-o", "json"}).out),
            ordered_json::parse(R"({"client_version": ")" GPUPERF_VERSION
                                R"(", "daemon_version": "0.1.0"})"));
  EXPECT_EQ(run({"version", "-o", "csv"}).out,
            "client_version,daemon_version\n" GPUPERF_VERSION ",0.1.0\n");
}

TEST_F(CliStatusTest, TellsItsOwnVersionWithoutADaemon) {
  daemon_.start();
  daemon_.stop();

  const auto result = run({"version"});

  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, StartsWith("gpuperfctl " GPUPERF_VERSION "\ngpuperfd   cannot reach"));
  EXPECT_EQ(run({"--version"}).out, "gpuperfctl " GPUPERF_VERSION "\n");
}

TEST_F(CliStatusTest, TakesSharedFlagsBeforeAndBehindTheCommand) {
  EXPECT_EQ(run({"-o", "json", "status"}).out, run({"status", "-o", "json"}).out);
  EXPECT_EQ(run({"status", "-o=json", "--timeout=2"}).exit_code, 0);
}

}  // namespace
}  // namespace gpuperf::client
