// gpuperfctl gpus, and what doctor makes of GPUs.

#include <nlohmann/json.hpp>

#include "cli_fixture.h"
#include "client/doctor.h"
#include "client/render.h"
#include "client/text.h"
#include "tests/unit/matchers.h"

namespace gpuperf::client {
namespace {

v1::Gpu make_gpu(uint32_t index) {
  v1::Gpu gpu;
  gpu.set_index(index);
  gpu.set_name("NVIDIA H200");
  gpu.set_uuid("GPU-8f3b1c2d-0203-0405-0607-08090a0b0c0d");
  gpu.set_state(v1::GPU_STATE_OK);
  gpu.set_verdict("healthy");
  gpu.set_utilization_ratio(0.87);
  gpu.set_memory_used_bytes(uint64_t{45} << 30);
  gpu.set_memory_total_bytes(uint64_t{140} << 30);
  gpu.set_power_watts(512);
  gpu.set_power_limit_watts(700);
  gpu.set_sm_clock_hz(1'755'000'000);
  gpu.set_sm_clock_max_hz(1'980'000'000);
  gpu.set_temperature_celsius(54);
  auto* limit = gpu.add_clock_limits();
  limit->set_reason("power_cap");
  limit->set_description("power cap");
  (void)gpu.mutable_ecc();
  return gpu;
}

class CliGpusTest : public CliTest {
 protected:
  CliGpusTest() {
    daemon_.answers.gpus.clear_reason();
    *daemon_.answers.gpus.add_gpus() = make_gpu(0);
  }
  v1::Gpu& gpu() { return *daemon_.answers.gpus.mutable_gpus(0); }
};

TEST_F(CliGpusTest, ShowsAGpuThatIsWell) {
  const auto result = run({"gpus"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(
      result.out,
      "GPU  NAME         UUID            UTIL              MEMORY        POWER         SM CLOCK"
      "   TEMP  LIMITED BY  VERDICT\n"
      "  0  NVIDIA H200  GPU-8f3b1c2d  87.0 %  45.0 GiB / 140 GiB  512 / 700 W  1755 / 1980 MHz"
      "  54 °C  none        healthy\n");
}

TEST_F(CliGpusTest, ShowsWhatIsWrongAndWhatToDo) {
  gpu().set_state(v1::GPU_STATE_FAILING);
  gpu().set_verdict("XID 79: GPU has fallen off the bus");
  gpu().set_hint("power-cycle the host\x1b[2J");
  gpu().set_limited_by("power cap");
  gpu().mutable_clock_limits(0)->set_active(true);
  gpu().mutable_clock_limits(0)->set_minute_ratio(0.43);
  gpu().mutable_ecc()->set_uncorrected_volatile(2);
  auto* xid = gpu().add_xids();
  xid->set_xid(79);
  xid->set_count(2);
  xid->set_last_unix_ns(read_wall_clock_ns() - 3'605'000'000'000);

  const std::string out = run({"gpus"}).out;

  EXPECT_THAT(out, HasSubstr("power cap (43.0 % of the last minute)"));
  EXPECT_THAT(out, HasSubstr("  2 not corrected  "));
  EXPECT_THAT(out, HasSubstr("  79, 1h00m ago, 2 times  XID 79: GPU has fallen off the bus\n"));
  EXPECT_THAT(out, HasSubstr("\n\nGPU 0: power-cycle the host\\x1b[2J\n"));
}

TEST_F(CliGpusTest, ShowsADashForWhatIsNotTold) {
  gpu().Clear();
  gpu().set_verdict("healthy");

  EXPECT_EQ(run({"gpus"}).out,
            "GPU  NAME  UUID  UTIL  MEMORY  POWER  SM CLOCK  TEMP  LIMITED BY  VERDICT\n"
            "  0  -     -        -       -      -         -     -  -           healthy\n");
}

TEST_F(CliGpusTest, SaysWhyThereAreNone) {
  daemon_.answers.gpus.clear_gpus();
  daemon_.answers.gpus.set_reason("there is no NVIDIA GPU on this host");

  const auto result = run({"gpus"});

  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("\nNo GPU: there is no NVIDIA GPU on this host\n"));
}

TEST_F(CliGpusTest, ShowsHardwareCountersBelow) {
  auto& counters = *gpu().mutable_counters();
  counters.set_graphics_engine_active_ratio(0.985);
  counters.set_tensor_active_ratio(0.835);
  counters.set_dram_active_ratio(0);
  counters.set_pcie_receive_bytes_per_second(uint64_t{2} << 30);
  counters.set_window_ns(1'000'000'000);

  EXPECT_THAT(
      run({"gpus"}).out,
      HasSubstr("\n\nGPU  ENGINE  SM  OCCUPANCY  TENSOR  FP64  FP32  FP16  INTEGER    DRAM  PCIE TX"
                "     PCIE RX\n"
                "  0  98.5 %   -          -  83.5 %     -     -     -        -  0.00 %        -"
                "  2.00 GiB/s\n"));
}

TEST_F(CliGpusTest, ShowsHardwareCountersOfGpuInstancesOnce) {
  gpu().mutable_counters()->set_reason("in MIG mode, they are read per GPU instance");
  for (uint32_t i = 0; i < 2; ++i) {
    auto& part = *gpu().add_mig_instances();
    part.set_gpu_instance(3);
    part.set_compute_instance(i);
    part.mutable_counters()->set_sm_active_ratio(0.5);
    part.mutable_counters()->set_window_ns(1'000'000'000);
  }

  const std::string out = run({"gpus"}).out;

  EXPECT_THAT(out, HasSubstr("\n\nGPU  INSTANCE  ENGINE      SM  "));
  EXPECT_THAT(out, HasSubstr("\n  0         3       -  50.0 %  "));
  EXPECT_THAT(out, Not(HasSubstr("no hardware counters")));
}

TEST_F(CliGpusTest, SaysWhyThereAreNoHardwareCounters) {
  gpu().mutable_counters()->set_reason("switched off: stats.gpu_counters");

  EXPECT_THAT(run({"gpus"}).out,
              HasSubstr("\n\nGPU 0: no hardware counters: switched off: stats.gpu_counters\n"));
}

TEST_F(CliGpusTest, IsAnArrayAsJsonAndRowsAsCsv) {
  EXPECT_EQ(ordered_json::parse(run({"gpus", "-o", "json"}).out),
            ordered_json::array({to_json(gpu())}));
  EXPECT_THAT(run({"gpus", "-o", "csv"}).out, StartsWith("index,name,uuid,pci_bus_id,"));
  EXPECT_THAT(daemon_.requests(), ElementsAre("ListGpus: ", "ListGpus: "));
}

TEST(DoctorGpusTest, FindsNothingWrongWithoutGpus) {
  v1::ListGpusResponse response;
  response.set_reason("there is no NVIDIA GPU on this host");

  EXPECT_THAT(check_gpus(response), ElementsAre(Check{"gpus", CheckState::kOk,
                                                      "there is no NVIDIA GPU on this host", ""}));
}

TEST(DoctorGpusTest, NamesGpusThatAreSlowedButNotThoseSaidAlready) {
  v1::ListGpusResponse response;
  response.set_driver_version("580.65.06");
  for (uint32_t i = 0; i < 3; ++i) *response.add_gpus() = make_gpu(i);
  response.mutable_gpus(1)->set_state(v1::GPU_STATE_SLOWED);
  response.mutable_gpus(1)->set_verdict("slowed: power brake, 43 % of the last minute");
  response.mutable_gpus(1)->set_hint("check power supplies");
  response.mutable_gpus(2)->set_state(v1::GPU_STATE_LOST);
  response.mutable_gpus(2)->set_hint("reset it");

  EXPECT_THAT(check_gpus(response),
              ElementsAre(Check{"gpus", CheckState::kOk, "GPUs read: 3, driver 580.65.06", ""},
                          Check{"gpus", CheckState::kHint,
                                "GPU 1: slowed: power brake, 43 % of the last minute",
                                "check power supplies"}));
}

TEST(DoctorGpusTest, HintsAtHardwareCountersThatFailAndNotAtThoseThatThereAreNot) {
  v1::ListGpusResponse response;
  for (uint32_t i = 0; i < 2; ++i) *response.add_gpus() = make_gpu(i);
  response.mutable_gpus(0)->mutable_counters()->set_reason("this GPU has none");
  response.mutable_gpus(1)->mutable_counters()->set_reason("nvmlGpmSampleGet: Unknown Error");
  response.mutable_gpus(1)->mutable_counters()->set_failing(true);

  const std::vector<Check> checks = check_gpus(response);

  ASSERT_EQ(checks.size(), 3u);
  EXPECT_EQ(checks[1],
            (Check{"gpus", CheckState::kOk, "GPU 0: no hardware counters: this GPU has none", ""}));
  EXPECT_EQ(checks[2].state, CheckState::kHint);
  EXPECT_EQ(checks[2].message, "GPU 1: no hardware counters: nvmlGpmSampleGet: Unknown Error");
}

TEST(DoctorGpusTest, SaysThatErrorsAreNotToldOfAndThatReadingIsSlow) {
  v1::ListGpusResponse response;
  *response.add_gpus() = make_gpu(0);
  response.set_events_problem("no permission");
  auto* cost = response.add_costs();
  cost->set_call("clocks");
  cost->set_p99_ns(12'000'000);
  cost->set_slow_down(4);

  const std::vector<Check> checks = check_gpus(response);

  ASSERT_EQ(checks.size(), 3u);
  EXPECT_EQ(checks[1].message, "the driver does not report GPU errors (XID): no permission");
  EXPECT_EQ(checks[2].message,
            "reading clocks takes 12.0 ms, so gpuperfd reads it 4 times less often");
}

}  // namespace
}  // namespace gpuperf::client
