#include "daemon/capture/graph_sites.h"

#include <memory>
#include <vector>

#include "tests/unit/capture/handles.h"
#include "tests/unit/matchers.h"

namespace gpuperf {
namespace {

constexpr ProcessKey kProcess = {.pid = 71, .start_boot_ns = 5'000'000'123};
constexpr uint32_t kMain = 71, kOther = 72;

class GraphSitesTest : public ::testing::Test {
 protected:
  void call(gpuperf_graph_call call, uint64_t handle, uint64_t source = 0, uint32_t tid = kMain) {
    batch_.graph_calls.push_back({.mono_ns = ++now_ns_,
                                  .process = kProcess,
                                  .tid = tid,
                                  .call = call,
                                  .is_followed = true,
                                  .handle = handle,
                                  .source = source});
  }
  void begin(uint64_t stream = kStream, uint32_t tid = kMain) {
    call(GPUPERF_GRAPH_CAPTURE_BEGAN, stream, 0, tid);
  }
  void end(uint64_t graph = kGraph, uint64_t stream = kStream, uint32_t tid = kMain) {
    call(GPUPERF_GRAPH_CAPTURE_ENDED, graph, stream, tid);
  }
  void launch(uint64_t site_id, uint32_t tid = kMain) {
    batch_.launches.push_back({.mono_ns = ++now_ns_,
                               .site_id = site_id,
                               .process = kProcess,
                               .tid = tid,
                               .is_captured = true});
  }
  void capture(std::vector<uint64_t> sites, uint64_t graph = kGraph) {
    begin();
    for (const uint64_t site : sites) launch(site);
    end(graph);
  }
  std::vector<GraphSites::Replay> apply() {
    return sites_.apply(std::exchange(batch_, {}), [this](uint64_t id) -> const TraceSite* {
      found_ = {.site_id = id, .stack_id = 100 + id};
      return id == 0 ? nullptr : &found_;
    });
  }
  // Stack ids of the captured launches that a launch of the executable replays; empty = not known.
  std::vector<uint64_t> replay(uint64_t exec = kExec) {
    batch_.launches.push_back({.mono_ns = ++now_ns_, .process = kProcess, .exec = exec});
    const std::vector<GraphSites::Replay> replays = apply();
    std::vector<uint64_t> stacks;
    if (replays.empty()) return stacks;
    const CapturedGraph& graph = *replays.front().second;
    for (const uint32_t site : graph.launches) {
      stacks.push_back(graph.sites[site].site.stack_id);
    }
    return stacks;
  }

  TraceBatch batch_;
  TraceSite found_;
  uint64_t now_ns_ = 0;
  DropCounters drops_;
  GraphSites sites_{drops_};
};

TEST_F(GraphSitesTest, AnExecutableReplaysWhatWasCapturedIntoItsGraph) {
  capture({3, 4, 3});
  call(GPUPERF_GRAPH_INSTANTIATED, kExec, kGraph);
  call(GPUPERF_GRAPH_DESTROYED, kGraph);

  EXPECT_THAT(replay(), ElementsAre(103, 104, 103));
  EXPECT_THAT(replay(kExec + 8), ElementsAre());
}

TEST_F(GraphSitesTest, AnUpdateBringsTheOtherGraphsSites) {
  capture({3});
  call(GPUPERF_GRAPH_INSTANTIATED, kExec, kGraph);
  capture({5}, kGraph + 8);
  call(GPUPERF_GRAPH_UPDATED, kExec, kGraph + 8);

  EXPECT_THAT(replay(), ElementsAre(105));
}

TEST_F(GraphSitesTest, AHandleThatComesAgainIsAnother) {
  capture({3});
  call(GPUPERF_GRAPH_INSTANTIATED, kExec, kGraph);
  call(GPUPERF_GRAPH_DESTROYED, kGraph);
  call(GPUPERF_GRAPH_EXEC_DESTROYED, kExec);
  EXPECT_THAT(replay(), ElementsAre());

  call(GPUPERF_GRAPH_INSTANTIATED, kExec, kGraph);  // a graph made without a capture
  EXPECT_THAT(replay(), ElementsAre());
}

TEST_F(GraphSitesTest, ACaptureThatFailedOrWasNotFollowedIsNotKnown) {
  begin();
  launch(3);
  end(0);
  call(GPUPERF_GRAPH_INSTANTIATED, kExec, kGraph);
  EXPECT_THAT(replay(), ElementsAre());

  begin();
  batch_.graph_calls.back().is_followed = false;
  launch(3);
  end();
  call(GPUPERF_GRAPH_INSTANTIATED, kExec, kGraph);
  EXPECT_THAT(replay(), ElementsAre());

  capture({3, 0});  // the second one's site could not be told
  call(GPUPERF_GRAPH_INSTANTIATED, kExec, kGraph);
  EXPECT_THAT(replay(), ElementsAre());
}

TEST_F(GraphSitesTest, AnotherThreadsLaunchesBelongToTheOneCaptureThereIs) {
  begin();
  launch(3);
  launch(4, kOther);
  end();
  call(GPUPERF_GRAPH_INSTANTIATED, kExec, kGraph);

  EXPECT_THAT(replay(), ElementsAre(103, 104));
}

TEST_F(GraphSitesTest, CapturesAtOnceAreToldByTheirThreads) {
  begin();
  begin(kStream + 8, kOther);
  launch(3);
  launch(4, kOther);
  launch(3);
  end(kGraph + 8, kStream + 8, kOther);
  end();
  call(GPUPERF_GRAPH_INSTANTIATED, kExec, kGraph);
  call(GPUPERF_GRAPH_INSTANTIATED, kExec + 8, kGraph + 8);

  EXPECT_THAT(replay(), ElementsAre(103, 103));
  EXPECT_THAT(replay(kExec + 8), ElementsAre(104));
}

TEST_F(GraphSitesTest, ACaptureWhoseEndWasMissedIsInNobodysWay) {
  for (int i = 0; i < 100; ++i) begin(0x900 + 8 * i);
  launch(9);
  capture({3, 4});
  call(GPUPERF_GRAPH_INSTANTIATED, kExec, kGraph);

  EXPECT_THAT(replay(), ElementsAre(103, 104));
  sites_.apply(ProcessExited{kProcess});
  sites_.take_ended();
  EXPECT_EQ(sites_.count_launches(), 0);
}

TEST_F(GraphSitesTest, AThirdThreadsLaunchMakesCapturesAtOnceUncertain) {
  begin();
  begin(kStream + 8, kOther);
  launch(3);
  launch(9, 73);
  end(kGraph + 8, kStream + 8, kOther);
  end();
  call(GPUPERF_GRAPH_INSTANTIATED, kExec, kGraph);

  EXPECT_THAT(replay(), ElementsAre());
}

TEST_F(GraphSitesTest, ReplaysHaveTheStacksOnceTheyAreNamed) {
  capture({3});
  call(GPUPERF_GRAPH_INSTANTIATED, kExec, kGraph);
  apply();
  const auto ended = sites_.take_ended();
  ASSERT_EQ(ended.size(), 1);
  const auto stack = std::make_shared<Stack>();

  sites_.set_stacks(ended[0], std::vector<StackPtr>{stack});

  batch_.launches.push_back({.mono_ns = ++now_ns_, .process = kProcess, .exec = kExec});
  const auto replays = apply();
  ASSERT_EQ(replays.size(), 1);
  EXPECT_EQ(replays[0].second->sites[0].stack, stack);
}

TEST_F(GraphSitesTest, WhatAProcessCapturedLeavesWithIt) {
  capture({3});
  call(GPUPERF_GRAPH_INSTANTIATED, kExec, kGraph);
  begin();
  launch(4);
  apply();
  EXPECT_EQ(sites_.count_launches(), 2);

  sites_.apply(ProcessExited{kProcess});
  sites_.take_ended();

  EXPECT_EQ(sites_.count_launches(), 0);
  EXPECT_THAT(replay(), ElementsAre());
}

TEST_F(GraphSitesTest, BeyondItsBoundGraphsStayUnknownAndAreCounted) {
  begin();
  for (size_t i = 0; i <= GraphSites::kMaxLaunches; ++i) launch(3);
  end();
  call(GPUPERF_GRAPH_INSTANTIATED, kExec, kGraph);

  EXPECT_THAT(replay(), ElementsAre());
  EXPECT_EQ(drops_.get(DropCause::kTraceTablesFull), 1);
  EXPECT_EQ(sites_.count_launches(), 0);
}

}  // namespace
}  // namespace gpuperf
