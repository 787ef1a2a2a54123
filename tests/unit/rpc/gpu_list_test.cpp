#include "daemon/rpc/gpu_list.h"

#include <gtest/gtest.h>

#include "tests/unit/rpc/rpc_fixture.h"

namespace gpuperf {
namespace {

constexpr int64_t kNowNs = 5'000'000'000;

Snapshot make_snapshot(GpuHealthReport report) {
  Snapshot snapshot;
  snapshot.gpus = std::make_shared<const GpuHealthReport>(std::move(report));
  return snapshot;
}

TEST(GpuListTest, LeavesOutWhatAGpuDoesNotTell) {
  expect_message(to_proto(GpuHealth{.index = 2, .uuid_text = "GPU-\xFF"}, kNowNs), R"(
      index: 2 uuid: "GPU-\357\277\275" state: GPU_STATE_OK verdict: "healthy"
      ecc {} pcie {} repair {} counters {})");
}

TEST(GpuListTest, ShowsWhatAGpuTells) {
  GpuHealth gpu{.read_mono_ns = 4'000'000'000,
                .utilization_ratio = 0.87,
                .memory_used_bytes = 0,
                .power_mw = 512'500,
                .sm_clock_hz = 1'755'000'000,
                .temperature_celsius = 54,
                .ecc = {.uncorrected_volatile = 0},
                .pcie = {.generation = 5},
                .repair = {.remap_failed = 0},
                .is_mig_enabled = false,
                .processes = {{.pid = 7, .memory_bytes = 9}, {.pid = 8}},
                .xids = {{31, {.count = 2, .last_mono_ns = 1, .last_unix_ns = 70}},
                         {63, {.count = 1, .last_mono_ns = 2, .last_unix_ns = 90}}},
                .recent_xids = {{31, 70}, {63, 90}},
                .ecc_events = 1};

  expect_message(to_proto(gpu, kNowNs), R"pb(
    state: GPU_STATE_OK
    verdict: "XID 31: memory page fault: a kernel read or wrote an address that is not mapped (2 times)"
    hint: "restart the program; find the access with compute-sanitizer"
    utilization_ratio: 0.87
    memory_used_bytes: 0
    power_watts: 512.5
    sm_clock_hz: 1755000000
    temperature_celsius: 54
    ecc { uncorrected_volatile: 0 events: 1 }
    xids {
      xid: 63
      count: 1
      last_unix_ns: 90
      meaning: "a memory row was marked for remapping, or a page retired"
      advice: "reset the GPU when it is free; the remapping takes effect then"
    }
    xids {
      xid: 31
      count: 2
      last_unix_ns: 70
      meaning: "memory page fault: a kernel read or wrote an address that is not mapped"
      advice: "restart the program; find the access with compute-sanitizer"
    }
    recent_xids { xid: 31 unix_ns: 70 }
    recent_xids { xid: 63 unix_ns: 90 }
    pcie { generation: 5 }
    repair { remap_failed: 0 }
    mig_enabled: false
    processes { pid: 7 memory_bytes: 9 }
    processes { pid: 8 }
    age_ns: 1000000000
    counters {}
  )pb");
}

TEST(GpuListTest, ShowsHardwareCountersWithTheirAgeAndThoseOfInstances) {
  GpuHealth gpu{.mig_instances = {{.gpu_instance = 3}, {.gpu_instance = 4}}};
  gpu.counters = {.window = {.start_mono_ns = 3'000'000'000, .end_mono_ns = 4'000'000'000},
                  .samples = 9,
                  .failed_samples = 2};
  gpu.counters.window.values[static_cast<size_t>(GpuCounter::kTensor)] = 835'000;
  gpu.counters.window.values[static_cast<size_t>(GpuCounter::kNvlinkReceive)] = 7;
  gpu.instance_counters[3] = {.reason = "none", .has_failed = true, .samples = 1};

  const v1::Gpu message = to_proto(gpu, kNowNs);

  expect_message(message.counters(), R"pb(
    tensor_active_ratio: 0.835
    nvlink_receive_bytes_per_second: 7
    window_ns: 1000000000
    age_ns: 1000000000
    samples: 9
    failed_samples: 2
  )pb");
  expect_message(message.mig_instances(0).counters(), R"pb(
    reason: "none" samples: 1 failing: true
  )pb");
  EXPECT_FALSE(message.mig_instances(1).has_counters());
}

TEST(GpuListTest, SaysWhatLimitsTheClocksMostImportantFirst) {
  GpuHealth gpu{.has_clock_limits = true};
  const auto at = [&](ClockLimit limit) -> ClockLimitState& {
    return gpu.clock_limits[static_cast<size_t>(limit)];
  };
  at(ClockLimit::kPowerCap) = {.is_active = true, .since_mono_ns = 4'999'000'000};
  at(ClockLimit::kHwThermal) = {.is_active = true, .total_ns = 70, .minute_ratio = 0.01};

  const v1::Gpu message = to_proto(gpu, kNowNs);

  EXPECT_EQ(message.limited_by(), "hardware thermal slowdown, power cap");
  ASSERT_EQ(message.clock_limits_size(), static_cast<int>(kClockLimits));
  expect_message(message.clock_limits(2), R"(
      reason: "power_cap" description: "power cap" active: true active_ns: 1000000)");
  expect_message(message.clock_limits(6), R"(
      reason: "hw_thermal" description: "hardware thermal slowdown" active: true total_ns: 70
      minute_ratio: 0.01)");
}

TEST(GpuListTest, SaysWhyThereAreNone) {
  expect_message(list_gpus(Snapshot(), kNowNs), R"(
      reason: "not read yet, or disabled: stats.gpu_interval_ms")");
  expect_message(list_gpus(make_snapshot({.reason = "there is no NVIDIA GPU"}), kNowNs),
                 R"(reason: "there is no NVIDIA GPU")");
}

TEST(GpuListTest, TellsWhatReadingCosts) {
  const Snapshot snapshot = make_snapshot({.driver_version = "580.65.06",
                                           .gpus = {{}},
                                           .events_problem = "no permission",
                                           .costs = {{.call = "clocks",
                                                      .calls = 9,
                                                      .p99_ns = 6'000'000,
                                                      .max_ns = 7'000'000,
                                                      .slow_down = 2}}});

  const v1::ListGpusResponse response = list_gpus(snapshot, kNowNs);

  EXPECT_EQ(response.gpus(0).driver_version(), "580.65.06");
  EXPECT_EQ(response.events_problem(), "no permission");
  expect_message(response.costs(0), R"(
      call: "clocks" calls: 9 p99_ns: 6000000 max_ns: 7000000 slow_down: 2)");
}

TEST(GpuListTest, CountsGpusInTroubleForStatus) {
  GpuHealth capped, lost;
  capped.clock_limits[static_cast<size_t>(ClockLimit::kPowerCap)].minute_ratio = 1;
  lost.is_lost = true;
  v1::GetStatusResponse response;

  set_gpu_summary(make_snapshot({.gpus = {capped, lost, {}}}), kNowNs, response);

  EXPECT_EQ(response.gpus(), 3u);
  EXPECT_EQ(response.gpus_in_trouble(), 1u);
  EXPECT_EQ(response.gpus_reason(), "");
}

}  // namespace
}  // namespace gpuperf
