// ListKernels and ListSessions, and what injected processes add to other answers.

#include "daemon/rpc/gpu_to_proto.h"
#include "daemon/rpc/kernel_list.h"
#include "daemon/rpc/session_list.h"
#include "tests/unit/matchers.h"
#include "tests/unit/rpc/rpc_fixture.h"

namespace gpuperf {
namespace {

constexpr ProcessKey kFirst{.pid = 1, .start_boot_ns = 1};
constexpr ProcessKey kSecond{.pid = 2, .start_boot_ns = 2};

KernelTextPtr make_text(uint64_t serial, const std::string& name) {
  return std::make_shared<const KernelText>(
      KernelText{.serial = serial, .full = "void ns::" + name + "(int)", .brief = name});
}

std::shared_ptr<const KernelRow> make_row(const KernelTextPtr& name, ProcessKey process,
                                          const std::vector<uint64_t>& durations_ns,
                                          Owner owner = {.comm = "python"}) {
  KernelRow row{.name = name, .process = process, .owner = std::move(owner)};
  for (const uint64_t duration_ns : durations_ns) add_duration(row.totals.duration, duration_ns);
  row.totals.estimated_launches = durations_ns.size();
  return std::make_shared<const KernelRow>(std::move(row));
}

class SessionRowsTest : public ::testing::Test {
 protected:
  SessionRowsTest() {
    snapshot_.gpu.kernels = {make_row(add_, kFirst, {100, 300}), make_row(scale_, kFirst, {400}),
                             make_row(add_, kSecond, {200}, {.comm = "train", .pod = "p"})};
    snapshot_.gpu.retired_kernels = {make_row(scale_, {}, {600})};
  }

  // "short_name pid launches total_ns" of each row.
  std::vector<std::string> list(const std::string& filter_text, const std::string& sort,
                                bool per_process) {
    const auto rows = list_kernels(
        snapshot_, RowFilter(parse_text<v1::Filter>(filter_text), snapshot_), sort, per_process);
    EXPECT_TRUE(rows.ok()) << rows.status();
    std::vector<std::string> texts;
    for (const v1::KernelStats& row : *rows) {
      texts.push_back(row.short_name() + " " + std::to_string(row.pid()) + " " +
                      std::to_string(row.launches()) + " " + std::to_string(row.total_ns()));
    }
    return texts;
  }

  const KernelTextPtr add_ = make_text(1, "add");
  const KernelTextPtr scale_ = make_text(2, "scale");
  Snapshot snapshot_;
};

TEST_F(SessionRowsTest, SumsKernelsOverProcessesForgottenOnesIncluded) {
  EXPECT_THAT(list("", "", false), ElementsAre("scale 0 2 1000", "add 0 3 600"));
}

TEST_F(SessionRowsTest, ListsKernelsPerProcess) {
  EXPECT_THAT(list("", "", true), ElementsAre("add 1 2 400", "scale 1 1 400", "add 2 1 200"));
}

TEST_F(SessionRowsTest, FiltersKernelsByProcessOwnerAndName) {
  EXPECT_THAT(list("pid: 1", "", false), ElementsAre("add 0 2 400", "scale 0 1 400"));
  EXPECT_THAT(list("pod: \"p\"", "", true), ElementsAre("add 2 1 200"));
  EXPECT_THAT(list("function: \"sc*\"", "", false), ElementsAre("scale 0 2 1000"));
  EXPECT_THAT(list("function: \"void ns::add*\"", "", false), ElementsAre("add 0 3 600"));
}

TEST_F(SessionRowsTest, TakesAPidForTheProcessThatHasItNow) {
  snapshot_.gpu.kernels.push_back(make_row(add_, {.pid = 1, .start_boot_ns = 90'000'000}, {7}));
  snapshot_.gpu.processes = {
      std::make_shared<const GpuProcessRow>(GpuProcessRow{.process = kFirst}),
      std::make_shared<const GpuProcessRow>(
          GpuProcessRow{.process = {.pid = 1, .start_boot_ns = 90'000'000}})};

  EXPECT_THAT(list("pid: 1", "", false), ElementsAre("add 0 1 7"));
}

TEST_F(SessionRowsTest, SortsKernelsByNumberOrName) {
  EXPECT_THAT(list("", "launches", false), ElementsAre("add 0 3 600", "scale 0 2 1000"));
  EXPECT_THAT(list("", "kernel", false), ElementsAre("add 0 3 600", "scale 0 2 1000"));
  EXPECT_THAT(list_kernels(snapshot_, RowFilter({}), "comm", false).status().message(),
              HasSubstr("cannot sort by \"comm\"; fields: kernel, pid, launches"));
}

TEST_F(SessionRowsTest, GivesTheShareOfWhatMatches) {
  const auto rows =
      list_kernels(snapshot_, RowFilter(parse_text<v1::Filter>("pid: 1"), snapshot_), "", false);

  ASSERT_TRUE(rows.ok());
  for (const v1::KernelStats& row : *rows) EXPECT_DOUBLE_EQ(row.share_ratio(), 0.5);
}

TEST_F(SessionRowsTest, ConvertsAKernel) {
  KernelRow row = *make_row(add_, kFirst, {1'000}, {.comm = "python", .slurm_rank = "3"});
  row.totals.estimated_launches = 10;
  add_duration(row.totals.launch_latency, 4'000);
  add_duration(row.totals.queue_delay, 0);

  const auto expected = parse_text<v1::KernelStats>(R"text(
      kernel: "void ns::add(int)" short_name: "add" pid: 1 comm: "python" launches: 1 coverage: 0.1
      estimated_launches: 10 total_ns: 1000 min_ns: 1000 avg_ns: 1000 p50_ns: 1000 p90_ns: 1000
      p99_ns: 1000 max_ns: 1000 joined_launches: 1 launch_latency_p50_ns: 4000
      launch_latency_p99_ns: 4000 launch_latency_max_ns: 4000 slurm_rank: "3")text");
  EXPECT_EQ(to_proto(row).ShortDebugString(), expected.ShortDebugString());
}

std::shared_ptr<const SessionRow> make_session(uint64_t id, ProcessKey process, bool open) {
  SessionRow row;
  row.facts = {.session_id = id, .process = process, .owner = {.comm = "python"}, .mono_ns = 100};
  row.status = {.session_id = id,
                .state = GPUPERF_SESSION_STATE_YIELDED,
                .cause = GPUPERF_SESSION_CAUSE_OTHER_CLIENT,
                .detail = "libkineto.so"};
  row.open = open;
  row.closed_mono_ns = open ? 0 : 150;
  row.closed_reason = open ? "" : "process ended";
  row.state_since_mono_ns = 120;
  return std::make_shared<const SessionRow>(std::move(row));
}

class SessionListTest : public ::testing::Test {
 protected:
  SessionListTest() {
    snapshot_.gpu.sessions = {make_session(3, kSecond, true), make_session(2, kFirst, true),
                              make_session(1, kFirst, false)};
    GpuProcessRow process{.process = kFirst, .owner = {.comm = "python"}};
    process.totals.api_calls = 5;
    snapshot_.gpu.processes = {std::make_shared<const GpuProcessRow>(process)};
  }
  std::vector<uint64_t> list_ids(const std::string& filter_text, bool include_closed) {
    std::vector<uint64_t> ids;
    for (const v1::Session& session : list_sessions(
             snapshot_, RowFilter(parse_text<v1::Filter>(filter_text)), include_closed, 200)) {
      ids.push_back(session.id());
    }
    return ids;
  }

  Snapshot snapshot_;
};

TEST_F(SessionListTest, ListsThoseThatMatch) {
  EXPECT_THAT(list_ids("", false), ElementsAre(3, 2));
  EXPECT_THAT(list_ids("", true), ElementsAre(3, 2, 1));
  EXPECT_THAT(list_ids("pid: 1", true), ElementsAre(2, 1));
  EXPECT_THAT(list_ids("pod: \"x\"", true), IsEmpty());
}

TEST_F(SessionListTest, ShowsWhatAProcessDidWithItsNewestSession) {
  const auto sessions = list_sessions(snapshot_, RowFilter({}), true, 200);

  EXPECT_EQ(sessions[1].api_calls(), 5u);
  EXPECT_EQ(sessions[2].api_calls(), 0u);
}

TEST_F(SessionListTest, ConvertsOpenAndClosedSessions) {
  const auto sessions = list_sessions(snapshot_, RowFilter({}), true, 200);

  EXPECT_EQ(sessions[0].ShortDebugString(), parse_text<v1::Session>(R"(
      id: 3 pid: 2 comm: "python" state: "yielded" cause: "other_client" detail: "libkineto.so"
      sample_every: 1 age_ns: 100 state_age_ns: 80)")
                                                .ShortDebugString());
  EXPECT_EQ(sessions[2].ShortDebugString(), parse_text<v1::Session>(R"(
      id: 1 pid: 1 comm: "python" state: "closed" cause: "other_client" detail: "process ended"
      sample_every: 1 age_ns: 50 state_age_ns: 50)")
                                                .ShortDebugString());
}

TEST_F(SessionListTest, ConvertsWhatAProcessDid) {
  GpuProcessRow process{.memory_complete = false};
  process.totals.copies = {{.direction = GPUPERF_MEMCPY_HOST_TO_DEVICE,
                            .source_memory = GPUPERF_MEMORY_PINNED,
                            .target_memory = GPUPERF_MEMORY_DEVICE,
                            .bytes = 64}};
  add_duration(process.totals.copies[0].duration, 500);
  add_duration(process.totals.syncs[GPUPERF_SYNC_CONTEXT], 700);
  process.totals.graphs = {{.graph_id = 4}};
  add_duration(process.totals.graphs[0].duration, 900);
  process.totals.overheads[GPUPERF_OVERHEAD_RESOURCE] = {.count = 1, .total_ns = 20};
  process.memory = {{.uuid = {0x12},
                     .ordinal = 1,
                     .memory = GPUPERF_MEMORY_DEVICE,
                     .used_bytes = 10,
                     .peak_bytes = 20,
                     .allocations = 2,
                     .releases = 1}};
  SessionRow row = *make_session(3, kFirst, true);
  row.status.losses[GPUPERF_SESSION_LOSS_QUEUE_FULL] = 8;
  row.status.losses[GPUPERF_SESSION_LOSS_SAMPLED] = 90;
  row.gaps[GPUPERF_SESSION_CAUSE_BURST] = {.count = 1, .total_ns = 30};
  row.join = {.joined = 6, .clock_violations = 2, .clock_worst_ns = 40};

  EXPECT_EQ(to_proto(row, &process, 200).ShortDebugString(), parse_text<v1::Session>(R"(
      id: 3 pid: 1 comm: "python" state: "yielded" cause: "other_client" detail: "libkineto.so"
      sample_every: 1 age_ns: 100 state_age_ns: 80 lost_records: 8
      losses { reason: "queue_full" count: 8 } losses { reason: "sampled" count: 90 }
      gaps { cause: "burst" count: 1 total_ns: 30 }
      clock_error_ns: 40 clock_violations: 2 joined_launches: 6
      copies { direction: "host_to_device" source_memory: "pinned" target_memory: "device" count: 1
               bytes: 64 total_ns: 500 p50_ns: 500 p99_ns: 500 max_ns: 500 }
      syncs { type: "context" count: 1 total_ns: 700 p50_ns: 700 p99_ns: 700 max_ns: 700 }
      graphs { graph_id: 4 launches: 1 total_ns: 900 p50_ns: 900 p99_ns: 900 max_ns: 900 }
      overheads { type: "resource" count: 1 total_ns: 20 }
      memory { gpu_uuid: "GPU-12000000-0000-0000-0000-000000000000" gpu_ordinal: 1 memory: "device"
               used_bytes: 10 peak_bytes: 20 allocations: 2 releases: 1 })")
                                                                 .ShortDebugString());
}

TEST_F(SessionListTest, ListsInjectedProcessesAmongTheOthers) {
  snapshot_.processes = {{.process = kSecond, .owner = {.comm = "train"}, .calls = 3}};

  const auto rows = list_processes(snapshot_, RowFilter({}));
  const auto states = get_session_states(snapshot_.gpu);

  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].process, kFirst);
  EXPECT_EQ(rows[1].process, kSecond);
  EXPECT_EQ(rows[1].calls, 3u);
  EXPECT_EQ(states.at(kFirst), "yielded");
}

// The session read its start from /proc, the probes in the kernel.
TEST_F(SessionListTest, AnInjectedProcessWhoseCallsAreProbedIsOneRow) {
  const ProcessKey probed{.pid = kFirst.pid, .start_boot_ns = kTickNs - 1};
  snapshot_.processes = {{.process = probed, .owner = {.comm = "train"}, .calls = 3}};

  const auto rows = list_processes(snapshot_, RowFilter(parse_text<v1::Filter>("pid: 1")));

  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].calls, 3u);
  EXPECT_EQ(get_session_states(snapshot_.gpu).at(rows[0].process), "yielded");
}

class GpuServiceTest : public testing::RpcFixture {};

TEST_F(GpuServiceTest, AnswersWithActivityAndCountsInStatus) {
  start();
  builder_.snapshot().gpu.sessions = {make_session(3, kSecond, true)};
  builder_.snapshot().gpu.kernels = {make_row(make_text(1, "add"), kSecond, {100, 300})};
  builder_.snapshot().gpu.lost_records[GPUPERF_SESSION_LOSS_QUEUE_FULL] = 4;
  builder_.snapshot().gpu.lost_records[GPUPERF_SESSION_LOSS_SAMPLED] = 50;
  builder_.snapshot().gpu.activity = {{.uuid = {1},
                                       .busy_ns = 40,
                                       .without_nccl_ns = 35,
                                       .kernel_ns = 30,
                                       .since_mono_ns = 100,
                                       .newest_mono_ns = 200,
                                       .processes = {kSecond}}};
  board_.publish(builder_.build());

  const auto sessions = call(&v1::Observe::Stub::ListSessions);
  const auto kernels = call(&v1::Observe::Stub::ListKernels);
  const auto processes = call(&v1::Observe::Stub::ListProcesses);
  const auto status = call(&v1::Observe::Stub::GetStatus);

  EXPECT_EQ(sessions.sessions_size(), 1);
  EXPECT_EQ(sessions.activity(0).ShortDebugString(), parse_text<v1::GpuActivity>(R"(
      gpu_uuid: "GPU-01000000-0000-0000-0000-000000000000" busy_ns: 40 kernel_ns: 30 span_ns: 100
      pids: 2 without_nccl_ns: 35)")
                                                         .ShortDebugString());
  EXPECT_EQ(kernels.kernels_size(), 1);
  EXPECT_EQ(processes.processes_size(), 0);  // it has sent nothing yet
  EXPECT_EQ(status.sessions().yielded(), 1u);
  EXPECT_EQ(status.session_lost_records(), 4u);
  EXPECT_EQ(status.kernel_launches(), 2u);
}

TEST_F(GpuServiceTest, PagesThroughKernels) {
  start();
  for (uint64_t serial = 1; serial <= 5; ++serial) {
    builder_.snapshot().gpu.kernels.push_back(
        make_row(make_text(serial, "k" + std::to_string(serial)), kSecond, {serial}));
  }
  board_.publish(builder_.build());
  v1::ListKernelsRequest request;
  request.mutable_page()->set_limit(2);
  std::vector<std::string> names;

  do {
    const auto page = call(&v1::Observe::Stub::ListKernels, request);
    ASSERT_TRUE(status_.ok()) << status_.error_message();
    for (const auto& kernel : page.kernels()) names.push_back(kernel.short_name());
    request.mutable_page()->set_page_token(page.next_page_token());
  } while (!request.page().page_token().empty());

  EXPECT_THAT(names, ElementsAre("k5", "k4", "k3", "k2", "k1"));
}

}  // namespace
}  // namespace gpuperf
