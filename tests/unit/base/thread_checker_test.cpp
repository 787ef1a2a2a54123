#include "daemon/base/thread_checker.h"

#include <gtest/gtest.h>

#include <thread>

namespace gpuperf {
namespace {

TEST(ThreadCheckerTest, TellsTheThreadThatAskedFirstFromOthers) {
  const ThreadChecker checker;
  bool other_is_on_thread = true;

  const bool first_is_on_thread = checker.is_on_thread();
  std::thread([&] { other_is_on_thread = checker.is_on_thread(); }).join();

  EXPECT_TRUE(first_is_on_thread);
  EXPECT_FALSE(other_is_on_thread);
  EXPECT_TRUE(checker.is_on_thread());
}

TEST(ThreadCheckerTest, EndsADebugBuildOnAnotherThread) {
  const ThreadChecker checker;
  std::thread([&] { checker.check(); }).join();

  EXPECT_DEBUG_DEATH(checker.check(), "is_on_thread");
}

}  // namespace
}  // namespace gpuperf
