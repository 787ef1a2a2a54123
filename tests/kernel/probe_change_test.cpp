// Probes that change under load, ends of calls without return probes, arguments by plan, and calls
// in flight: the BPF programs in the running kernel, by every mechanism.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <span>
#include <thread>

#include "daemon/probe/attach/in_flight.h"
#include "daemon/probe/code/placement.h"
#include "tests/kernel/probe_fixture.h"
#include "tests/kernel/probe_targets.h"

namespace gpuperf {
namespace {

using testing::ElementsAre;
using Clock = std::chrono::steady_clock;

class ProbeChangeTest : public FunctionProbeTest {
 protected:
  ProbePoint point(uint32_t id, const void* function, Timing timing = Timing::kReturn) {
    programs_->set_function({.id = id}, false);
    return {.function_id = id, .offset_bytes = find_offset(function), .timing = timing};
  }
  template <typename F>
  ProbePoint point(uint32_t id, F* function, Timing timing = Timing::kReturn) {
    return point(id, reinterpret_cast<const void*>(function), timing);
  }
  // A point timed at the exits that the daemon would find itself.
  ProbePoint exits_point(uint32_t id, const std::string& symbol) {
    programs_->set_function({.id = id}, false);
    const auto symbols = ElfSymbols::load(self_.get(), ElfSymbols::Tables::kBoth);
    auto code = CodeMap::open(self_.get());
    EXPECT_TRUE(symbols.ok() && code.ok()) << symbol;
    const FunctionSymbol function = symbols->find_function(symbol).value();
    const auto exits = find_exits(*code, function);
    EXPECT_TRUE(exits.ok()) << exits.status();
    return {.function_id = id,
            .offset_bytes = function.file_offset_bytes,
            .timing = Timing::kExits,
            .exits = exits.value_or(std::vector<ExitSite>())};
  }
  // Lets the replaced links go, as the prober does.
  void close_retired() {
    InFlightReader reader(*programs_, "list_in_flight");
    const auto deadline = Clock::now() + std::chrono::seconds(5);
    while (attacher_->has_retired() && Clock::now() < deadline) {
      const auto calls = reader.read();
      ASSERT_TRUE(calls.ok()) << calls.status();
      std::set<uint64_t> cookies;
      for (const gpuperf_in_flight& call : *calls) cookies.insert(call.cookie);
      attacher_->close_retired(cookies, Clock::now());
      usleep(1000);
    }
  }
};

TEST_P(ProbeChangeTest, MissesNoCallOfTheOthersWhenAFunctionLeaves) {
  attach(1, {point(0, target_plain), point(1, target_inner), point(2, target_sleep)});
  std::atomic<bool> stop = false;
  std::atomic<uint64_t> calls = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      for (; !stop; ++calls) (void)target_plain(1);
    });
  }

  for (int round = 0; round < 10; ++round) {
    ASSERT_TRUE(attacher_->detach(self(1), {1}, Clock::now() + std::chrono::seconds(5)).ok());
    close_retired();
    (void)target_inner(0);  // not counted
    attach(1, {point(1, target_inner)});
    (void)target_inner(0);  // counted
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();

  EXPECT_FALSE(attacher_->has_retired());
  EXPECT_EQ(count(0), (Counted{.calls = calls, .completed = calls}));
  EXPECT_EQ(count(1), (Counted{.calls = 10, .completed = 10}));
  EXPECT_EQ(programs_->losses()[GPUPERF_LOSS_UNPAIRED_RETURN], 0u);
}

TEST_P(ProbeChangeTest, TimesCallsInFlightWhileTheirLinkIsReplaced) {
  attach(1, {point(0, target_sleep), point(1, target_inner)});
  std::thread caller([] { (void)target_sleep(200); });
  while (count(0).calls == 0) usleep(1000);

  ASSERT_TRUE(attacher_->detach(self(1), {1}, Clock::now() + std::chrono::seconds(5)).ok());
  close_retired();
  caller.join();

  EXPECT_EQ(count(0), (Counted{.calls = 1, .completed = 1}));
  EXPECT_GE(cell_of(0).total_ns, 200'000'000u);
}

TEST_P(ProbeChangeTest, TakesTheLastFunctionOfALinkOut) {
  attach(1, {point(0, target_plain)});
  (void)target_plain(1);

  ASSERT_TRUE(attacher_->detach(self(1), {0}, Clock::now()).ok());
  (void)target_plain(1);
  close_retired();
  attach(1, {point(0, target_plain)});
  (void)target_plain(1);

  EXPECT_EQ(count(0), (Counted{.calls = 2, .completed = 2}));
}

TEST_P(ProbeChangeTest, CountsAForwardedCallOnce) {
  // Two files with the same function, the one passing its calls on to the other.
  attach(1, {point(0, target_sleep_caller)});
  attach(2, {point(0, target_sleep)});

  for (int i = 0; i < 10; ++i) (void)target_sleep_caller(0);
  (void)target_sleep(0);  // called directly it counts

  EXPECT_EQ(count(0), (Counted{.calls = 11, .completed = 11}));
  EXPECT_EQ(programs_->losses()[GPUPERF_LOSS_UNPAIRED_RETURN], 0u);
}

TEST_P(ProbeChangeTest, TimesAFunctionAtItsOwnExits) {
  attach(1, {exits_point(0, "target_exits")});

  for (int i = 0; i < 100; ++i) EXPECT_EQ(target_exits(0, 0), 1);   // ret in the middle
  for (int i = 0; i < 100; ++i) EXPECT_EQ(target_exits(1, 7), 7);   // tail jump
  for (int i = 0; i < 100; ++i) EXPECT_EQ(target_exits(-1, 9), 9);  // conditional tail jump
  (void)target_exits(2, 2000);                                      // spins 2 ms inside

  EXPECT_EQ(count(0), (Counted{.calls = 301, .completed = 301}));
  EXPECT_GE(cell_of(0).max_ns, 2'000'000u);
  EXPECT_EQ(cell_of(0).total_ns, cell_of(0).self_ns);
}

TEST_P(ProbeChangeTest, LetsExceptionsPassAFunctionTimedAtItsExits) {
  attach(1, {exits_point(0, "target_may_throw")});
  int caught = 0;

  for (int i = 0; i < 200; ++i) {
    try {
      caught += target_may_throw(i);
    } catch (int) {
      ++caught;
    }
  }
  std::thread([] { (void)target_may_throw(0); }).join();

  EXPECT_EQ(caught, 200);
  const Counted counted = count(0);
  EXPECT_EQ(counted.calls, 201u);
  EXPECT_EQ(counted.completed, 101u);
  EXPECT_GE(counted.abandoned, 99u);  // the last one is found out by this thread's next call
}

TEST_P(ProbeChangeTest, KeepsValuesByPlanAndAddsBytesUp) {
  auto plan = std::make_shared<ArgumentPlan>();
  const auto add = [&](const char* name, gpuperf_capture capture) {
    plan->fields.push_back({.name = name, .capture = capture});
  };
  add("kind", {.source = 0, .size_bytes = 4});
  add("count", {.source = 6, .size_bytes = 8});  // the seventh: on the stack
  add("low", {.source = 1, .size_bytes = 4});
  add("high", {.source = 1, .shift_bits = 32, .size_bytes = 4});
  add("field", {.source = 2, .loads = 2, .size_bytes = 2, .offset_bytes = {8, 4}});
  add("text", {.source = 3, .loads = 1, .size_bytes = 8, .blob = 1, .offset_bytes = {0, 1}});
  add("bad", {.source = 4, .loads = 1, .size_bytes = 8});
  plan->rules.byte_factors[0] = 2;
  plan->rules.byte_kind = 1;
  plan->rules.element_bytes[0] = 4;
  const ArgumentPlan unread_free = [&] {
    ArgumentPlan without = *plan;
    without.fields.pop_back();
    return without;
  }();
  const ProbePoint made = point(0, target_seven);
  struct Inner {
    uint32_t pad = 0;
    uint16_t value = 4242;
  } inner;
  struct Outer {
    uint64_t pad = 0;
    const Inner* inner = nullptr;
  } outer{.inner = &inner};
  const char* text = "Xhello";

  programs_->set_function(
      {.id = 0, .slow_threshold_ns = 1, .arguments = std::make_shared<ArgumentPlan>(unread_free)},
      false);
  attach(1, {made});
  EXPECT_EQ(target_seven(1, 7ull << 32 | 5, &outer, &text, nullptr, 0, 1000), 0);
  EXPECT_EQ(target_seven(2, 0, &outer, &text, nullptr, 0, 10), 0);
  programs_->set_function({.id = 0, .slow_threshold_ns = 1, .arguments = plan}, false);
  EXPECT_EQ(target_seven(1, 0, &outer, &text, nullptr, 0, 1000), 0);

  const gpuperf_cell& cell = cell_of(0);
  EXPECT_THAT(std::span(cell.bytes), ElementsAre(0, 0, 4000, 40, 0, 0));
  const auto records = drain_slow_calls();
  ASSERT_EQ(records.size(), 3u);
  EXPECT_THAT(std::span(records[0].values).first(5), ElementsAre(1, 1000, 5, 7, 4242));
  EXPECT_EQ(records[0].values_unread, 0u);
  EXPECT_EQ(records[0].blob_count, 1u);
  EXPECT_GE(records[0].blob_bytes[0], 6u);
  EXPECT_STREQ(reinterpret_cast<const char*>(records[0].blobs[0]), "hello");
  EXPECT_EQ(records[2].values_unread, 1u << 6);  // and its bytes were not counted
}

TEST_P(ProbeChangeTest, CountsGemmShapes) {
  auto plan = std::make_shared<ArgumentPlan>();
  for (const uint8_t source : {0, 1, 2}) {
    plan->fields.push_back({.name = "d", .capture = {.source = source, .size_bytes = 4}});
  }
  plan->rules.shape_dimensions = 3;
  programs_->set_function({.id = 0, .status = StatusKind::kCublas, .arguments = plan}, false);
  attach(1, {{.function_id = 0,
              .offset_bytes = find_offset(reinterpret_cast<const void*>(&target_gemm))}});

  for (int i = 0; i < 5; ++i) EXPECT_EQ(target_gemm(64, 32, 16, 0), 0);
  EXPECT_EQ(target_gemm(1, 2, 3, 0), 0);
  EXPECT_EQ(target_gemm(7, 7, 7, 13), 13);  // failed: nothing was computed

  EXPECT_EQ(cell_of(0).flops, 5u * 2 * 64 * 32 * 16 + 2 * 6);
  std::map<uint64_t, uint64_t> calls;  // by m
  gpuperf_shape_key key{}, next{};
  const int shapes = programs_->map_fd("shapes");
  for (void* from = nullptr; bpf_map_get_next_key(shapes, from, &next) == 0; from = &key) {
    key = next;
    gpuperf_shape_totals totals{};
    ASSERT_EQ(bpf_map_lookup_elem(shapes, &key, &totals), 0);
    EXPECT_EQ(key.dimensions[3], 1u);
    EXPECT_GT(totals.total_ns, 0u);
    calls[key.dimensions[0]] = totals.calls;
  }
  EXPECT_EQ(calls, (std::map<uint64_t, uint64_t>{{1, 1}, {64, 5}}));
}

TEST_P(ProbeChangeTest, CountsTheCallsOfShapesThatFindNoRoom) {
  auto plan = std::make_shared<ArgumentPlan>();
  for (const uint8_t source : {0, 1, 2}) {
    plan->fields.push_back({.name = "d", .capture = {.source = source, .size_bytes = 4}});
  }
  plan->rules.shape_dimensions = 3;
  programs_->set_function({.id = 0, .status = StatusKind::kCublas, .arguments = plan}, false);
  attach(1, {{.function_id = 0,
              .offset_bytes = find_offset(reinterpret_cast<const void*>(&target_gemm))}});
  constexpr int kShapes = 9'000;

  for (int m = 1; m <= kShapes; ++m) (void)target_gemm(m, 1, 1, 0);

  uint64_t kept = 0;
  gpuperf_shape_key key{}, next{};
  const int shapes = programs_->map_fd("shapes");
  for (void* from = nullptr; bpf_map_get_next_key(shapes, from, &next) == 0; from = &key) {
    key = next;
    ++kept;
  }
  EXPECT_GT(programs_->losses()[GPUPERF_LOSS_SHAPES_FULL], 0u);
  EXPECT_EQ(kept + programs_->losses()[GPUPERF_LOSS_SHAPES_FULL], static_cast<uint64_t>(kShapes));
  EXPECT_EQ(cell_of(0).flops, static_cast<uint64_t>(kShapes) * (kShapes + 1));
}

TEST_P(ProbeChangeTest, CountsTheNamesThatFindNoRoom) {
  auto plan = std::make_shared<ArgumentPlan>();
  for (const uint8_t source : {0, 1}) {
    plan->fields.push_back({.capture = {.source = source, .size_bytes = 8}});
  }
  plan->rules.name_handle = 1;
  plan->rules.name_text = 2;
  programs_->set_function({.id = 0, .status = StatusKind::kCudaDriver, .arguments = plan}, false);
  attach(1, {{.function_id = 0,
              .offset_bytes = find_offset(reinterpret_cast<const void*>(&target_allocate))}});
  constexpr uint64_t kNames = 1'500;
  const char* const name = "saxpy";
  void* handle = nullptr;

  for (uint64_t i = 0; i < kNames; ++i) {
    (void)target_allocate(&handle, reinterpret_cast<uint64_t>(name), 0);
  }

  const uint64_t lost = programs_->losses()[GPUPERF_LOSS_NAME_RING_FULL];
  EXPECT_GT(lost, 0u);
  EXPECT_EQ(drain<gpuperf_handle_name>("name_ring").size() + lost, kNames);
}

TEST_P(ProbeChangeTest, ListsCallsInFlightWithTheirStart) {
  attach(1, {point(0, target_sleep_caller), point(1, target_sleep)});
  InFlightReader reader(*programs_, "list_in_flight");
  std::atomic<int> tid = 0;
  std::thread caller([&] {
    tid = gettid();
    (void)target_sleep_caller(300);
  });
  while (count(1).calls == 0) usleep(1000);

  const auto calls = reader.read();
  ASSERT_TRUE(calls.ok()) << calls.status();
  caller.join();
  const auto after = reader.read();

  ASSERT_EQ(calls->size(), 2u);
  for (uint32_t depth = 0; depth < 2; ++depth) {
    const gpuperf_in_flight& call = (*calls)[depth];
    EXPECT_EQ(call.pid, static_cast<uint32_t>(getpid()));
    EXPECT_EQ(call.tid, static_cast<uint32_t>(tid));
    EXPECT_EQ(call.depth, depth);
    EXPECT_EQ(call.cookie & 0xffffff, depth);  // function 0 calls function 1
    EXPECT_GT(call.start_mono_ns, 0u);
  }
  ASSERT_TRUE(after.ok());
  EXPECT_TRUE(after->empty());
}

TEST_P(ProbeChangeTest, KeepsTheCgroupOfAProcess) {
  probe(0, target_plain);
  (void)target_plain(0);

  gpuperf_process_info info{};
  struct {
    uint64_t start_boot_ns;
    uint32_t pid, pad;
  } key{}, next{};
  const int processes = programs_->map_fd("processes");
  ASSERT_EQ(bpf_map_get_next_key(processes, nullptr, &next), 0);
  key = next;
  ASSERT_EQ(bpf_map_lookup_elem(processes, &key, &info), 0);
  EXPECT_EQ(key.pid, static_cast<uint32_t>(getpid()));
  std::string innermost;
  std::ifstream cgroups("/proc/self/cgroup");
  for (std::string line; std::getline(cgroups, line);) {
    if (line.starts_with("0::")) innermost = line.substr(line.rfind('/') + 1);
  }
  const std::string kept = info.cgroup[0];
  EXPECT_TRUE(kept == innermost || innermost.empty()) << kept << " against " << innermost;
}

INSTANTIATE_TEST_SUITE_P(Mechanisms, ProbeChangeTest, testing::ValuesIn(kMechanisms),
                         [](const auto& info) {
                           return std::string(get_mechanism_name(info.param));
                         });

}  // namespace
}  // namespace gpuperf
