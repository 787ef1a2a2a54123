// The fake driver and the fake CUPTI crash where the real ones were seen to crash on an H200, and
// nowhere else: docs/decisions/0012-cupti.md.

#include <cupti.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/fakes/cupti/fake_cupti.h"

namespace {

constexpr auto kGraphTrace = CUPTI_ACTIVITY_KIND_GRAPH_TRACE;
constexpr auto kKernels = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;

template <typename Function>
Function find(const char* name) {
  static void* cupti = dlopen(FAKE_CUPTI, RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<Function>(dlsym(cupti, name));
}
void enable(CUpti_ActivityKind kind) {
  (void)find<decltype(&cuptiActivityEnable)>("cuptiActivityEnable")(kind);
}
void disable(CUpti_ActivityKind kind) {
  (void)find<decltype(&cuptiActivityDisable)>("cuptiActivityDisable")(kind);
}
CUptiResult finalize() { return find<decltype(&cuptiFinalize)>("cuptiFinalize")(); }
void launch_once(FakeGraph* graph) {
  (void)fake_graph_launch(graph);
  (void)fake_synchronise();
}

// Where a hook would be: what happens between a runtime and the driver.
std::atomic<void (*)()> g_in_hook = nullptr;
CUresult launch_by_hook(CUfunction function, unsigned a, unsigned b, unsigned c, unsigned d,
                        unsigned e, unsigned f, unsigned bytes, CUstream stream, void** arguments,
                        void** extra) {
  g_in_hook.load()();
  return cuLaunchKernel(function, a, b, c, d, e, f, bytes, stream, arguments, extra);
}
const FakeEntries kHooked = {launch_by_hook,     cuGraphLaunch,        cuGraphCreate,
                             cuGraphInstantiate, cuStreamBeginCapture, cuMemcpyAsync,
                             cuMemsetD8Async};
void launch_through_hook(void (*in_hook)()) {
  g_in_hook = in_hook;
  (void)fake_cuda_set_entries(&kHooked);
  (void)fake_launch({.name = "kernel"}, 0, false);
}

// A thread that is inside a call until told otherwise.
class Caller {
 public:
  Caller()
      : thread_([] {
          launch_through_hook([] {
            s_is_inside = true;
            while (s_is_inside) std::this_thread::yield();
          });
        }) {
    while (!s_is_inside) std::this_thread::yield();
  }
  ~Caller() {
    s_is_inside = false;
    thread_.join();
  }

 private:
  static std::atomic<bool> s_is_inside;
  std::thread thread_;
};
std::atomic<bool> Caller::s_is_inside = false;

class FakeRulesTest : public testing::Test {
 protected:
  FakeRulesTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  ~FakeRulesTest() override {
    disable(kGraphTrace);
    disable(kKernels);
  }
};

TEST_F(FakeRulesTest, CuptiMayBeEndedByAThreadThatIsAboutToCallTheDriver) {
  enable(kKernels);
  const Caller other;
  launch_through_hook([] { EXPECT_EQ(finalize(), CUPTI_SUCCESS); });
}

TEST_F(FakeRulesTest, CuptiMayNotBeEndedByAnyOtherThread) {
  enable(kKernels);
  EXPECT_DEATH(
      {
        const Caller other;
        (void)finalize();
      },
      "cuptiFinalize while threads are inside calls");
}

TEST_F(FakeRulesTest, GraphsSurviveTheEndOnceTheyWereLaunchedWithNothingOn) {
  enable(kGraphTrace);
  FakeGraph* graph = fake_graph_make(3, "kernel");
  launch_once(graph);
  disable(kGraphTrace);
  launch_once(graph);
  (void)finalize();
  launch_once(graph);

  enable(kGraphTrace);
  launch_once(fake_graph_make(3, "kernel"));
  EXPECT_DEATH(launch_once(graph), "GRAPH_TRACE on of a graph made while it was off");
}

TEST_F(FakeRulesTest, GraphsThatWereNotDoNotSurviveIt) {
  for (const bool is_left_on : {false, true}) {
    enable(kGraphTrace);
    FakeGraph* graph = fake_graph_make(3, "kernel");
    launch_once(graph);
    if (!is_left_on) disable(kGraphTrace);
    (void)finalize();
    EXPECT_DEATH(launch_once(graph), "left unfinished");
  }
}

TEST_F(FakeRulesTest, GraphsDoNotSurviveItWhenKindsWereSwitchedWhileTheyRan) {
  for (const bool is_idle : {true, false}) {
    FakeGraph* graph = fake_graph_make(20'000, "kernel");  // 20 ms
    (void)fake_graph_launch(graph);
    if (is_idle) (void)fake_synchronise();
    enable(kKernels);
    disable(kKernels);
    (void)fake_synchronise();
    (void)finalize();
    if (is_idle) {
      launch_once(graph);
    } else {
      EXPECT_DEATH(launch_once(graph), "left unfinished");
    }
  }
}

}  // namespace
