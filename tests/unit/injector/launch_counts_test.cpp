#include "injector/launch_counts.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <thread>
#include <vector>

namespace gpuperf::injector {
namespace {

constexpr int32_t kFailure = 700;

// What notes brought, added up as the kernel side does.
struct Sum {
  uint64_t calls = 0, abandoned = 0, total_ns = 0, self_ns = 0, min_ns = 0, max_ns = 0, other = 0;
  std::map<int32_t, uint64_t> errors;
  std::map<uint32_t, uint64_t> buckets;
  uint64_t ended = 0;
  int notes = 0;
};
std::map<uint32_t, Sum> g_sums;

void add_note(const gpuperf_noted_calls& noted) {
  const auto& process = *reinterpret_cast<const gpuperf_hooked_process*>(noted.process_address);
  const auto& all = *reinterpret_cast<const gpuperf_noted_counts*>(process.counts[noted.entry]);
  const size_t place = all.sequence[0] == noted.sequence ? 0 : 1;
  ASSERT_EQ(all.sequence[place], noted.sequence);
  ASSERT_LT(all.sequence[1 - place], noted.sequence);
  const gpuperf_entry_counts& now = all.counts[place];
  const gpuperf_entry_counts& before = all.counts[1 - place];
  Sum& sum = g_sums[noted.entry];
  ++sum.notes;
  sum.calls += now.calls - before.calls;
  sum.abandoned += now.abandoned - before.abandoned;
  sum.total_ns += now.total_ns - before.total_ns;
  sum.self_ns += now.self_ns - before.self_ns;
  if (now.inverted_min_ns != 0) sum.min_ns = ~now.inverted_min_ns;
  if (now.max_ns != 0) sum.max_ns = now.max_ns;
  sum.other += now.other_errors - before.other_errors;
  for (size_t i = 0; i < GPUPERF_ERROR_SLOTS; ++i) {
    const uint64_t count = now.errors[i].count - before.errors[i].count;
    if (count != 0) sum.errors[static_cast<int32_t>(now.errors[i].status_tag)] += count;
  }
  for (uint32_t bucket = 0; bucket < GPUPERF_BUCKETS; ++bucket) {
    const uint32_t count = now.buckets[bucket] - before.buckets[bucket];
    if (count != 0) sum.buckets[bucket] += count;
    sum.ended += count;
  }
}

TEST(ThreadTableTest, FindsThreadsWithoutACall) {
  const auto threads = std::make_unique<ThreadTable>();
  ASSERT_TRUE(threads->set_up());
  ASSERT_NE(threads->slot(), 0u) << "this C library has no place for it";
  EXPECT_EQ(ThreadTable::read_slot(threads->slot()), nullptr);
  ThreadCounts* const mine = threads->find();
  EXPECT_EQ(ThreadTable::read_slot(threads->slot()), mine);
  std::thread([&] {
    EXPECT_EQ(ThreadTable::read_slot(threads->slot()), nullptr);
    ThreadCounts* const other = threads->find();
    EXPECT_EQ(ThreadTable::read_slot(threads->slot()), other);
    EXPECT_NE(other, mine);
  }).join();
}

class LaunchCountsTest : public testing::Test {
 protected:
  LaunchCountsTest() {
    g_sums.clear();
    EXPECT_TRUE(threads_->set_up());
  }
  void call(gpuperf_hook_entry entry, uint64_t duration_ns, int32_t status = 0) {
    ThreadCounts& mine = *threads_->find();
    mine.begin(entry, 0x7000);
    mine.end(duration_ns, status);
  }

  std::unique_ptr<ThreadTable> threads_ = std::make_unique<ThreadTable>();
  CallNotes notes_{*threads_};
};

TEST_F(LaunchCountsTest, SendsWhatWasCountedSinceTheLastTime) {
  call(GPUPERF_HOOK_cuLaunchKernel, 3'000);
  call(GPUPERF_HOOK_cuLaunchKernel, 5'000, kFailure);
  call(GPUPERF_HOOK_cuGraphLaunch, 9'000);
  notes_.send(add_note);
  call(GPUPERF_HOOK_cuLaunchKernel, 1'000);
  notes_.send(add_note);
  notes_.send(add_note);

  Sum& launches = g_sums[GPUPERF_HOOK_cuLaunchKernel];
  EXPECT_EQ(launches.notes, 2);
  EXPECT_EQ(launches.calls, 3u);
  EXPECT_EQ(launches.ended, 3u);
  EXPECT_EQ(launches.total_ns, 9'000u);
  EXPECT_EQ(launches.self_ns, 9'000u);
  EXPECT_EQ(launches.min_ns, 1'000u);
  EXPECT_EQ(launches.max_ns, 5'000u);
  EXPECT_EQ(launches.errors, (std::map<int32_t, uint64_t>{{kFailure, 1}}));
  EXPECT_EQ(launches.buckets[find_bucket(3'000)], 1u);
  EXPECT_EQ(g_sums[GPUPERF_HOOK_cuGraphLaunch].total_ns, 9'000u);
}

TEST_F(LaunchCountsTest, NotesEveryBucket) {
  std::map<uint32_t, uint64_t> truth;
  uint64_t duration_ns = 20;
  for (int i = 0; i < 200; ++i, duration_ns += 1 + duration_ns / 14) {
    call(GPUPERF_HOOK_cuLaunchKernel, duration_ns);
    ++truth[find_bucket(duration_ns)];
  }
  ASSERT_GT(truth.size(), 100u);
  notes_.send(add_note);

  const Sum& sum = g_sums[GPUPERF_HOOK_cuLaunchKernel];
  EXPECT_EQ(sum.calls, 200u);
  EXPECT_EQ(sum.buckets, truth);
}

TEST_F(LaunchCountsTest, TakesTheTimeOfCallsInsideFromTheSelfTime) {
  ThreadCounts& mine = *threads_->find();
  mine.begin(GPUPERF_HOOK_cuGraphLaunch, 0x7000);
  mine.begin(GPUPERF_HOOK_cuLaunchKernel, 0x6000);
  mine.end(4'000, 0);
  mine.end(10'000, 0);
  notes_.send(add_note);

  EXPECT_EQ(g_sums[GPUPERF_HOOK_cuGraphLaunch].self_ns, 6'000u);
  EXPECT_EQ(g_sums[GPUPERF_HOOK_cuLaunchKernel].self_ns, 4'000u);
}

TEST_F(LaunchCountsTest, AbandonsCallsThatWereLeftWithoutAReturn) {
  ThreadCounts& mine = *threads_->find();
  mine.begin(GPUPERF_HOOK_cuGraphLaunch, 0x7000);
  mine.begin(GPUPERF_HOOK_cuLaunchKernel, 0x6000);
  // longjmp to a caller of both, which launches again.
  mine.begin(GPUPERF_HOOK_cuLaunchKernel, 0x7000);
  mine.end(1'000, 0);
  EXPECT_EQ(mine.depth(), 0u);
  notes_.send(add_note);

  EXPECT_EQ(g_sums[GPUPERF_HOOK_cuGraphLaunch].abandoned, 1u);
  EXPECT_EQ(g_sums[GPUPERF_HOOK_cuLaunchKernel].calls, 2u);
  EXPECT_EQ(g_sums[GPUPERF_HOOK_cuLaunchKernel].abandoned, 1u);
  EXPECT_EQ(g_sums[GPUPERF_HOOK_cuLaunchKernel].ended, 1u);
}

TEST_F(LaunchCountsTest, CountsCallsDeeperThanItFollows) {
  ThreadCounts& mine = *threads_->find();
  for (uint64_t i = 0; i < 12; ++i) mine.begin(GPUPERF_HOOK_cuLaunchKernel, 0x7000 - 0x100 * i);
  for (int i = 0; i < 12; ++i) mine.end(1'000, 0);
  EXPECT_EQ(mine.depth(), 0u);
  notes_.send(add_note);

  EXPECT_EQ(g_sums[GPUPERF_HOOK_cuLaunchKernel].calls, 12u);
  EXPECT_EQ(g_sums[GPUPERF_HOOK_cuLaunchKernel].abandoned, 0u);
}

TEST_F(LaunchCountsTest, KeepsErrorsApartThatComeFromManyThreads) {
  for (int32_t status = 1; status <= 9; ++status) {
    std::thread([&] { call(GPUPERF_HOOK_cuLaunchKernel, 100, status); }).join();
    notes_.send(add_note);
  }
  const Sum& sum = g_sums[GPUPERF_HOOK_cuLaunchKernel];
  uint64_t told_apart = 0;
  for (const auto& [status, count] : sum.errors) told_apart += count;
  EXPECT_EQ(sum.errors.size(), size_t{GPUPERF_ERROR_SLOTS});
  EXPECT_EQ(told_apart + sum.other, 9u);
}

TEST_F(LaunchCountsTest, CountsExactlyWhileThreadsComeAndGo) {
  constexpr uint64_t kThreads = 8, kRounds = 4, kCalls = 20'000;
  for (uint64_t round = 0; round < kRounds; ++round) {
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        for (uint64_t k = 0; k < kCalls; ++k) call(GPUPERF_HOOK_cuLaunchKernel, 1'000 + k % 64);
      });
    }
    notes_.send(add_note);
    for (std::thread& thread : threads) thread.join();
  }
  notes_.send(add_note);

  const Sum& sum = g_sums[GPUPERF_HOOK_cuLaunchKernel];
  EXPECT_EQ(sum.calls, kThreads * kRounds * kCalls);
  EXPECT_EQ(sum.ended, kThreads * kRounds * kCalls);
  EXPECT_LE(threads_->count(), kThreads) << "a thread takes the place of one that has ended";
}

TEST_F(LaunchCountsTest, HasMemoryForAnEntryOnlyOnceItIsCalled) {
  ThreadCounts& mine = *threads_->find();
  EXPECT_EQ(mine.find(GPUPERF_HOOK_cuLaunchKernel), nullptr);
  for (uint32_t entry = 0; entry < GPUPERF_HOOK_COUNT; ++entry) {
    for (uint32_t i = 0; i <= entry; ++i) call(static_cast<gpuperf_hook_entry>(entry), 1'000);
  }
  notes_.send(add_note);

  for (uint32_t entry = 0; entry < GPUPERF_HOOK_COUNT; ++entry) {
    EXPECT_EQ(g_sums[entry].calls, entry + 1) << entry;
    EXPECT_EQ(mine.find(entry)->calls, entry + 1) << entry;
  }
  std::thread([&] {
    call(GPUPERF_HOOK_cuGraphLaunch, 1'000);
    EXPECT_EQ(threads_->find()->find(GPUPERF_HOOK_cuLaunchKernel), nullptr);
  }).join();
}

// What the kernel side finds wherever the process is stopped: as it does at its end, and within a
// note.
uint64_t count_all(const gpuperf_hooked_process& process, uint32_t entry) {
  const auto* const threads = reinterpret_cast<const uint64_t*>(process.threads);
  uint64_t calls = 0;
  for (uint32_t i = 0; i < process.thread_count; ++i) {
    const auto& said = *reinterpret_cast<const gpuperf_hooked_thread*>(threads[i]);
    const auto& thread = *reinterpret_cast<const gpuperf_thread_counts*>(said.counts_address);
    const auto* counts = reinterpret_cast<const gpuperf_entry_counts*>(thread.entries[entry]);
    if (counts != nullptr) calls += counts->calls;
  }
  return calls;
}

TEST_F(LaunchCountsTest, WhatIsNotNotedCanBeFoundFromOutside) {
  call(GPUPERF_HOOK_cuLaunchKernel, 1'000);
  std::thread([&] { call(GPUPERF_HOOK_cuLaunchKernel, 1'000); }).join();
  const gpuperf_hooked_process& process = threads_->process();
  EXPECT_EQ(count_all(process, GPUPERF_HOOK_cuLaunchKernel), 2u);
  EXPECT_EQ(process.is_called[0], uint64_t{1} << GPUPERF_HOOK_cuLaunchKernel);
  EXPECT_EQ(process.noted, 0u);

  notes_.send([](const gpuperf_noted_calls& noted) {
    const auto& said = *reinterpret_cast<const gpuperf_hooked_process*>(noted.process_address);
    EXPECT_EQ(said.noted + 1, noted.sequence) << "until it has returned";
    add_note(noted);
  });
  EXPECT_EQ(process.noted, 1u);
  call(GPUPERF_HOOK_cuLaunchKernel, 1'000);
  notes_.send(add_note);
  EXPECT_EQ(process.noted, 2u);
  EXPECT_EQ(g_sums[GPUPERF_HOOK_cuLaunchKernel].calls, 3u);
}

// What the kernel side reads of kept launches.
const gpuperf_kept_launches& read_kept(const ThreadTable& threads) {
  const auto* const all = reinterpret_cast<const uint64_t*>(threads.process().threads);
  const auto& said = *reinterpret_cast<const gpuperf_hooked_thread*>(all[0]);
  const auto& counts = *reinterpret_cast<const gpuperf_thread_counts*>(said.counts_address);
  return *reinterpret_cast<const gpuperf_kept_launches*>(counts.launches);
}

class KeptLaunchesTest : public LaunchCountsTest {
 protected:
  // `count` launches, a microsecond apart; how often the injector's thread was to be woken.
  int keep(uint32_t count) {
    ThreadCounts& mine = *threads_->find();
    int woken = 0;
    for (uint32_t i = 0; i < count; ++i, now_ns_ += 1'000) {
      if (!mine.keep_plain_launch(GPUPERF_HOOK_cuLaunchKernel, now_ns_)) {
        EXPECT_TRUE(mine.keep_launch(GPUPERF_HOOK_cuLaunchKernel, now_ns_, nullptr, false));
      }
      woken += mine.must_send_launches() ? 1 : 0;
    }
    return woken;
  }
  const gpuperf_noted_launches& note(uint64_t number) const {
    return read_kept(*threads_).notes[number % GPUPERF_KEPT_NOTES];
  }

  uint64_t now_ns_ = 1'000'000'000;
};

TEST_F(KeptLaunchesTest, AreFoundInTheirNotesUntilTheyAreSent) {
  ThreadCounts& mine = *threads_->find();
  EXPECT_EQ(keep(GPUPERF_LAUNCHES + 3), 0);

  EXPECT_EQ(read_kept(*threads_).number, 2u);
  EXPECT_EQ(note(1).number, 1u);
  EXPECT_EQ(note(1).count, uint32_t{GPUPERF_LAUNCHES});
  EXPECT_EQ(note(1).base_mono_ns, 1'000'000'000u);
  EXPECT_EQ(note(1).launches[5].offset_ns, 5'000u);
  EXPECT_EQ(note(2).count, 3u);
  EXPECT_EQ(note(2).base_mono_ns, 1'000'000'000u + GPUPERF_LAUNCHES * 1'000);

  EXPECT_TRUE(mine.send_launches());
  EXPECT_EQ(note(1).count, 0u);
  EXPECT_EQ(note(2).count, 3u) << "goes on being filled";
  keep(1);
  EXPECT_EQ(note(2).count, 4u);
}

TEST_F(KeptLaunchesTest, HaveThemselvesSentWhenHalfOfThePlacesAreTaken) {
  EXPECT_EQ(keep(GPUPERF_LAUNCHES * (GPUPERF_KEPT_NOTES / 2 - 1)), 0);
  EXPECT_EQ(keep(GPUPERF_LAUNCHES + 1), 1);
}

TEST_F(KeptLaunchesTest, AreSentByTheirThreadWhereNobodyElseDoes) {
  keep(GPUPERF_LAUNCHES * GPUPERF_KEPT_NOTES);
  EXPECT_EQ(note(1).count, uint32_t{GPUPERF_LAUNCHES});
  keep(1);
  EXPECT_EQ(read_kept(*threads_).number, GPUPERF_KEPT_NOTES + 1u);
  EXPECT_EQ(note(2).count, 0u) << "sent";
  EXPECT_EQ(note(GPUPERF_KEPT_NOTES + 1).count, 1u);
}

TEST_F(KeptLaunchesTest, DoNotWaitLongForMore) {
  keep(2);
  now_ns_ += 20'000'000;
  EXPECT_EQ(keep(1), 1);
  EXPECT_EQ(note(1).count, 2u);
  EXPECT_EQ(note(2).count, 1u);
}

TEST_F(KeptLaunchesTest, AllAreKeptWhileAnotherThreadSends) {
  constexpr uint32_t kCount = 200'000;
  ThreadCounts& mine = *threads_->find();
  std::atomic<bool> is_over = false;
  std::thread sender([&] {
    while (!is_over.load()) (void)mine.send_launches();
  });
  const uint64_t first_ns = now_ns_;
  for (uint32_t i = 0; i < kCount; ++i, now_ns_ += 100) {
    // Only that the sender is at it just now is a reason not to.
    while (!mine.keep_plain_launch(GPUPERF_HOOK_cuLaunchKernel, now_ns_) &&
           !mine.keep_launch(GPUPERF_HOOK_cuLaunchKernel, now_ns_, nullptr, false)) {
    }
  }
  is_over.store(true);
  sender.join();
  const uint64_t number = read_kept(*threads_).number;
  constexpr uint32_t kNotes = (kCount - 1) / GPUPERF_LAUNCHES;  // before the last
  EXPECT_EQ(number, 1u + kNotes);
  EXPECT_EQ(note(number).base_mono_ns, first_ns + uint64_t{kNotes} * GPUPERF_LAUNCHES * 100);
  EXPECT_EQ(note(number).count, kCount - kNotes * GPUPERF_LAUNCHES);
}

TEST(FindBucketTest, PutsEachDurationIntoItsBucket) {
  EXPECT_EQ(find_bucket(0), 0u);
  EXPECT_EQ(find_bucket(15), 0u);
  EXPECT_EQ(find_bucket(255), 15u);
  EXPECT_EQ(find_bucket(256), 16u);
  EXPECT_EQ(find_bucket(511), 31u);
  EXPECT_EQ(find_bucket(512), 32u);
  EXPECT_EQ(find_bucket((uint64_t{1} << 42) - 1), uint32_t{GPUPERF_BUCKETS - 1});
  EXPECT_EQ(find_bucket(UINT64_MAX), uint32_t{GPUPERF_BUCKETS - 1});
}

}  // namespace
}  // namespace gpuperf::injector
