// gpuperfctl nccl.

#include <nlohmann/json.hpp>

#include "cli_fixture.h"
#include "tests/unit/matchers.h"

namespace gpuperf::client {
namespace {

class CliNcclTest : public CliTest {
 protected:
  v1::NcclCommunicator& add_communicator() {
    v1::NcclCommunicator& communicator = *daemon_.answers.nccl.add_communicators();
    communicator.set_id("5f0c1a2b00000001");
    communicator.set_ranks(2);
    communicator.set_in_step(true);
    communicator.set_state(v1::NCCL_STATE_OK);
    for (uint32_t i = 0; i < 2; ++i) {
      v1::NcclRank& rank = *communicator.add_local_ranks();
      rank.set_rank(i);
      rank.set_pid(4711 + i);
      rank.set_comm("python3");
      rank.set_collectives(90);
      rank.set_last_call("ncclAllReduce");
      rank.set_last_call_age_ns(12'000'000);
      rank.set_activity(i == 0 ? "running" : "sleep");
      rank.set_gpu_waited_ns(i == 0 ? 1'810'000'000 : 0);
      rank.set_gpu_caused_ns(i == 0 ? 0 : 1'810'000'000);
    }
    v1::NcclSize& size = *communicator.add_sizes();
    size.set_operation("all_reduce");
    size.set_size_bytes(32 << 20);
    size.set_count(90);
    size.set_bytes(uint64_t{90} * (32 << 20));
    size.set_timed(90);
    size.set_gpu_ns(90 * 183'000);
    size.set_bus_bandwidth(183.36e9);
    return communicator;
  }
  static void set_late(v1::NcclCommunicator& communicator) {
    communicator.set_state(v1::NCCL_STATE_LATE);
    communicator.set_verdict("Rank 1 (pid 4712, py\x1bthon3) is late: …. Cause: sleeping.");
    communicator.add_evidence("its thread was found sleeping in 9 of 9 looks");
    communicator.set_late_pid(4712);
    v1::NcclStack& stack = *communicator.add_stacks();
    stack.add_ranks("rank 0");
    stack.add_ranks("rank 1");
    v1::StackFrame& frame = *stack.add_frames();
    frame.set_symbol("train");
    frame.set_kind("python");
  }
};

TEST_F(CliNcclTest, SaysThatNobodyIsWaitedFor) {
  add_communicator();

  const auto result = run({"nccl"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(
      result.out,
      "No rank on this host is waited for.\n"
      "\n"
      "COMM      RANKS   OPERATION   SIZE FROM  COUNT     BYTES  TIMED  AVG GPU  BUS BANDWIDTH\n"
      "5f0c1a2b  2 of 2  all_reduce   32.0 MiB     90  2.81 GiB     90   183 µs    183.36 GB/s\n"
      "\n"
      "COMM      RANK   PID  PROCESS  COLLECTIVES  WAITED  WAITED FOR  BY       LAST CALL  "
      "        AGO  NOW\n"
      "5f0c1a2b     0  4711  python3           90  1.81 s        0 ns  kernels  ncclAllReduce"
      "  12.0 ms  running\n"
      "5f0c1a2b     1  4712  python3           90    0 ns      1.81 s  kernels  ncclAllReduce"
      "  12.0 ms  sleep\n");
}

TEST_F(CliNcclTest, NamesTheLateRankFirst) {
  set_late(add_communicator());

  const std::string out = run({"nccl"}).out;

  EXPECT_TRUE(
      out.starts_with("Rank 1 (pid 4712, py\\x1bthon3) is late: …. Cause: sleeping. "
                      "Communicator 5f0c1a2b.\n"
                      "  its thread was found sleeping in 9 of 9 looks\n"
                      "  rank 0, rank 1 last called from: train"))
      << out;
}

TEST_F(CliNcclTest, SaysThatRanksCannotBeCompared) {
  add_communicator().mutable_local_ranks()->RemoveLast();

  EXPECT_TRUE(run({"nccl"}).out.starts_with(
      "No communicator has several ranks on this host whose calls can be compared"));
}

TEST_F(CliNcclTest, SaysWhyThereIsNothing) {
  EXPECT_EQ(run({"nccl"}).out,
            "No NCCL calls seen. If a job uses NCCL: its library may not be found or probed: "
            "gpuperfctl probes --category nccl\n");
  EXPECT_EQ(run({"nccl", "--pid", "7"}).out,
            "No communicator of NCCL matches. Without filters: gpuperfctl nccl\n");
}

TEST_F(CliNcclTest, WritesJson) {
  set_late(add_communicator());

  const auto rows = nlohmann::json::parse(run({"nccl", "-o", "json"}).out);

  EXPECT_EQ(rows[0]["state"], "late");
  EXPECT_EQ(rows[0]["local_ranks"][1]["rank"], 1);
}

}  // namespace
}  // namespace gpuperf::client
