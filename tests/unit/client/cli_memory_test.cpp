// gpuperfctl memory against a daemon of ours.

#include <nlohmann/json.hpp>

#include "cli_fixture.h"
#include "client/render.h"
#include "tests/unit/matchers.h"

namespace gpuperf::client {
namespace {

v1::MemorySite make_site(const std::string& symbol) {
  v1::MemorySite site;
  v1::MemoryUse& use = *site.mutable_use();
  use.set_kind("device");
  use.set_live_bytes(uint64_t{6} << 30);
  use.set_live_count(12);
  use.set_peak_bytes(uint64_t{6} << 30);
  use.set_allocated_bytes(uint64_t{8} << 30);
  use.set_allocations(16);
  site.set_function("cudaMalloc");
  site.set_unreleased_ratio(0.75);
  site.set_oldest_age_ns(600'000'000'000);
  site.add_stack()->set_symbol(symbol);
  return site;
}

v1::ProcessMemory make_process() {
  v1::ProcessMemory process;
  process.set_pid(42);
  process.set_comm("train\x1b[2J");
  process.set_live_bytes(uint64_t{6} << 30);
  process.set_peak_bytes(uint64_t{7} << 30);
  process.set_used_bytes(uint64_t{8} << 30);
  process.set_rest_bytes(uint64_t{2} << 30);
  process.set_least_rest_bytes(uint64_t{1} << 30);
  process.add_gpus()->set_gpu(0);
  process.set_seen_ns(60'000'000'000);
  process.set_leaks(1);
  *process.add_kinds() = make_site("").use();
  process.mutable_kinds(0)->set_kind("device");
  v1::MemoryUse& pinned = *process.add_kinds();
  pinned.set_kind("pinned");
  pinned.set_live_bytes(uint64_t{1} << 20);
  return process;
}

class CliMemoryTest : public CliTest {
 protected:
  CliMemoryTest() { daemon_.answers.memory = {make_process()}; }
  v1::ProcessMemory& process() { return daemon_.answers.memory[0]; }
};

TEST_F(CliMemoryTest, ShowsProcessesAsATable) {
  const auto result = run({"memory"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out,
            "PID  COMM          STATE        LIVE      PEAK    DRIVER      REST    PINNED  LEAKS\n"
            " 42  train\\x1b[2J  running  6.00 GiB  7.00 GiB  8.00 GiB  2.00 GiB  1.00 MiB      "
            "1\n");
  EXPECT_THAT(daemon_.requests(), ElementsAre("ListMemory: filter { } page { limit: 100 }"));
}

TEST_F(CliMemoryTest, MarksWhatIsIncomplete) {
  process().add_gaps("reports of calls were lost");

  const std::string out = run({"memory"}).out;
  EXPECT_THAT(out, HasSubstr(" ~6.00 GiB "));
  EXPECT_THAT(out, HasSubstr("~ Incomplete; why: gpuperfctl memory show PID\n"));
}

TEST_F(CliMemoryTest, ShowsStacks) {
  *process().add_sites() = make_site("load_weights");

  const std::string out = run({"memory", "--stacks"}).out;
  EXPECT_EQ(out,
            "Process 42 (train\\x1b[2J): 6.00 GiB live on GPUs\n"
            "  6.00 GiB in 12 pieces of device memory by cudaMalloc; peak 6.00 GiB, 8.00 GiB "
            "allocated, 75.0 % of the allocations not released, the oldest is 10m00s old\n"
            "      0  load_weights+0x0\n");
  EXPECT_THAT(daemon_.requests(),
              ElementsAre("ListMemory: filter { } page { limit: 100 } with_sites: true"));
}

TEST_F(CliMemoryTest, ShowsLeaks) {
  v1::MemorySite& site = *process().add_sites();
  site = make_site("keep");
  site.mutable_growth()->set_leak(true);
  site.mutable_growth()->set_window_ns(40'000'000'000);
  site.mutable_growth()->set_grown_bytes(80 << 20);
  site.mutable_growth()->set_grown_count(8);
  site.mutable_growth()->set_bytes_per_minute(120 << 20);

  const std::string out = run({"memory", "--leaks"}).out;
  EXPECT_THAT(out,
              HasSubstr("\n  leak: grew by 80.0 MiB in 8 pieces within 40.0 s, 120 MiB/min\n"));
  EXPECT_THAT(daemon_.requests(),
              ElementsAre("ListMemory: filter { } page { limit: 100 } only_leaks: true"));
}

TEST_F(CliMemoryTest, ShowsAllOfOneProcess) {
  *process().add_sites() = make_site("keep");
  process().add_gaps("reports of calls were lost");

  const auto result = run({"memory", "show", "42"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* text :
       {"Process 42 (train\\x1b[2J): ~6.00 GiB live on GPUs\n", "8.00 GiB used on 1 GPU\n",
        "2.00 GiB not explained by allocations, 1.00 GiB at the lowest",
        "reports of calls were lost", "pinned", "keep+0x0"}) {
    EXPECT_THAT(result.out, HasSubstr(text));
  }
  const auto json = ordered_json::parse(run({"memory", "show", "42", "-o", "json"}).out);
  EXPECT_EQ(json, to_json(process()));
}

TEST_F(CliMemoryTest, SaysWhatToDoWhereNothingIsKnown) {
  daemon_.answers.memory.clear();

  EXPECT_THAT(run({"memory"}).out, HasSubstr("No process has allocated GPU memory yet."));
  EXPECT_THAT(run({"memory", "--pid", "7"}).out, HasSubstr("No process matches."));
  EXPECT_THAT(run({"memory", "--leaks"}).out, HasSubstr("No leak. A stack is taken for one once"));
  EXPECT_THAT(run({"memory", "--ooms"}).out, HasSubstr("No allocation has failed"));
  const auto shown = run({"memory", "show", "7"});
  EXPECT_EQ(shown.exit_code, 1);
  EXPECT_THAT(shown.err, HasSubstr("process 7 has not allocated GPU memory"));
}

TEST_F(CliMemoryTest, ShowsFailedAllocations) {
  v1::OutOfMemory incident;
  incident.set_pid(42);
  incident.set_comm("train");
  incident.set_times(3);
  incident.set_kind("device");
  incident.set_function("cudaMalloc");
  incident.set_asked_bytes(uint64_t{2} << 30);
  incident.add_stack()->set_symbol("forward");
  v1::MemoryHolder& holder = *incident.add_holders();
  holder.set_pid(43);
  holder.set_comm("serve");
  holder.set_live_bytes(uint64_t{70} << 30);
  holder.set_used_bytes(uint64_t{71} << 30);
  *holder.add_sites() = make_site("load_weights");
  daemon_.answers.out_of_memory = {incident};

  const std::string out = run({"memory", "--ooms"}).out;
  EXPECT_THAT(out,
              HasSubstr(" 42 (train): 2.00 GiB of device memory refused to cudaMalloc, 3 times"));
  EXPECT_THAT(out, HasSubstr("      0  forward+0x0\n"));
  EXPECT_THAT(
      out,
      HasSubstr("  held by process 43 (serve): 70.0 GiB live on GPUs, 71.0 GiB by the driver\n"));
  EXPECT_THAT(out, HasSubstr("load_weights"));
}

TEST_F(CliMemoryTest, RefusesTwoListsAtOnce) {
  const auto result = run({"memory", "--leaks", "--ooms"});

  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("give one of --stacks, --leaks and --ooms"));
}

}  // namespace
}  // namespace gpuperf::client
