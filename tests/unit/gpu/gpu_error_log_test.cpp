#include "daemon/gpu/gpu_error_log.h"

#include <gtest/gtest.h>

namespace gpuperf {
namespace {

constexpr GpuUuid kUuid = {1, 2, 3};

GpuHealth fill(const GpuErrorLog& log) {
  GpuHealthReport report;
  report.gpus.push_back({.uuid = kUuid});
  log.fill(report);
  return report.gpus[0];
}

GpuEvents::Event make_xid(uint64_t xid, int64_t unix_ns) {
  return {.uuid = kUuid, .is_xid = true, .xid = xid, .mono_ns = unix_ns - 1, .unix_ns = unix_ns};
}

TEST(GpuErrorLogTest, CountsByCodeAndKeepsTheLastTime) {
  GpuErrorLog log;

  log.add(make_xid(31, 100));
  log.add(make_xid(79, 200));
  log.add(make_xid(31, 300));
  log.add({.uuid = kUuid, .is_xid = false});

  const GpuHealth gpu = fill(log);
  EXPECT_EQ(gpu.xids, (std::map<uint32_t, XidCount>{{31, {2, 299, 300}}, {79, {1, 199, 200}}}));
  EXPECT_EQ(gpu.recent_xids, (std::vector<XidEvent>{{31, 100}, {79, 200}, {31, 300}}));
  EXPECT_EQ(gpu.ecc_events, 1u);
}

TEST(GpuErrorLogTest, KeepsTheLastEventsOfAStorm) {
  GpuErrorLog log;

  for (int i = 0; i < 1000; ++i) log.add(make_xid(74, i));

  const GpuHealth gpu = fill(log);
  EXPECT_EQ(gpu.recent_xids.size(), kRecentXids);
  EXPECT_EQ(gpu.recent_xids.back(), (XidEvent{74, 999}));
  EXPECT_EQ(gpu.xids.at(74).count, 1000u);
}

TEST(GpuErrorLogTest, CountsCodesThatMakeNoSenseTogether) {
  GpuErrorLog log;

  for (uint64_t code = GpuErrorLog::kXidEnd; code < GpuErrorLog::kXidEnd + 50; ++code) {
    log.add(make_xid(code, 1));
  }

  const GpuHealth gpu = fill(log);
  ASSERT_EQ(gpu.xids.size(), 1u);
  EXPECT_EQ(gpu.xids.at(0).count, 50u);
}

}  // namespace
}  // namespace gpuperf
