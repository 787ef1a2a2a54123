#include "daemon/base/task_loop.h"

#include <unistd.h>

#include <csignal>
#include <thread>

#include "tests/unit/matchers.h"

namespace gpuperf {
namespace {

class TaskLoopTest : public testing::Test {
 protected:
  void SetUp() override {
    auto loop = TaskLoop::make();
    ASSERT_TRUE(loop.ok()) << loop.status();
    loop_ = std::move(*loop);
  }
  std::unique_ptr<TaskLoop> loop_;
};

TEST_F(TaskLoopTest, RunsTasksInOrderOnItsThread) {
  std::vector<int> seen;
  const auto runner = std::this_thread::get_id();
  loop_->post([&] { seen.push_back(1); });
  loop_->post([&] {
    EXPECT_EQ(std::this_thread::get_id(), runner);
    seen.push_back(2);
    loop_->stop();
  });

  loop_->run();

  EXPECT_THAT(seen, ElementsAre(1, 2));
}

TEST_F(TaskLoopTest, KnowsItsThread) {
  const bool maker_is_on_loop = loop_->on_loop();
  bool runner_is_on_loop = false;
  loop_->post([&] {
    runner_is_on_loop = loop_->on_loop();
    loop_->stop();
  });

  std::thread([&] { loop_->run(); }).join();

  EXPECT_TRUE(maker_is_on_loop);  // nobody ran it yet
  EXPECT_TRUE(runner_is_on_loop);
  EXPECT_FALSE(loop_->on_loop());
}

TEST_F(TaskLoopTest, RunsWhatWasPostedBeforeItStops) {
  std::vector<int> seen;
  loop_->stop();
  loop_->post([&] {
    seen.push_back(1);
    loop_->post([&] { seen.push_back(2); });
  });

  loop_->run();

  EXPECT_THAT(seen, ElementsAre(1, 2));
}

TEST_F(TaskLoopTest, TakesTasksFromOtherThreads) {
  int sum = 0;  // changed on the loop only
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        loop_->post([&] {
          if (++sum == 4000) loop_->stop();
        });
      }
    });
  }

  loop_->run();

  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sum, 4000);
}

TEST_F(TaskLoopTest, TicksUntilStopped) {
  int ticks = 0;
  ASSERT_TRUE(loop_
                  ->add_timer(std::chrono::milliseconds(1),
                              [&] {
                                if (++ticks == 5) loop_->stop();
                              })
                  .ok());

  loop_->run();

  EXPECT_EQ(ticks, 5);
}

TEST_F(TaskLoopTest, TellsHowLateTimersRan) {
  int ticks = 0;
  ASSERT_TRUE(loop_
                  ->add_timer(std::chrono::milliseconds(5),
                              [&] {
                                if (++ticks == 4) loop_->stop();
                                // The first but one is the first that counts.
                                if (ticks == 2) {
                                  std::this_thread::sleep_for(std::chrono::milliseconds(50));
                                }
                              })
                  .ok());

  loop_->run();

  const DurationCounts::Totals delays = loop_->timer_delays();
  EXPECT_EQ(delays.count(), 3u);
  EXPECT_GE(delays.longest_ns, 44'000'000u);  // due after 5 of the 50 ms
}

TEST_F(TaskLoopTest, TicksAndStopsThoughEveryTaskPostsAnother) {
  int ticks = 0;
  const std::function<void()> post_again = [&] { loop_->post(post_again); };
  ASSERT_TRUE(loop_
                  ->add_timer(std::chrono::milliseconds(1),
                              [&] {
                                if (++ticks == 3) loop_->stop();
                              })
                  .ok());
  loop_->post(post_again);

  loop_->run();

  EXPECT_EQ(ticks, 3);
}

TEST_F(TaskLoopTest, CallsBackWhenADescriptorIsReadable) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const Fd read_end(ends[0]), write_end(ends[1]);
  char byte = 0;
  ASSERT_TRUE(loop_
                  ->add_reader(read_end.get(),
                               [&] {
                                 EXPECT_EQ(read(read_end.get(), &byte, 1), 1);
                                 loop_->stop();
                               })
                  .ok());

  ASSERT_EQ(write(write_end.get(), "x", 1), 1);
  loop_->run();

  EXPECT_EQ(byte, 'x');
}

TEST_F(TaskLoopTest, DeliversSignals) {
  int seen = 0;
  ASSERT_TRUE(loop_
                  ->add_signals({SIGUSR1},
                                [&](int signal) {
                                  seen = signal;
                                  loop_->stop();
                                })
                  .ok());

  ASSERT_EQ(raise(SIGUSR1), 0);  // to this thread: others of the program do not block it
  loop_->run();

  EXPECT_EQ(seen, SIGUSR1);
}

TEST_F(TaskLoopTest, RefusesADescriptorThatIsNone) {
  EXPECT_FALSE(loop_->add_reader(-1, [] {}).ok());
}

}  // namespace
}  // namespace gpuperf
