#include "injector/cupti_clock.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmath>

#include "injector/clocks.h"

namespace {
int64_t g_step_ns = 0;  // by which the wall clock was set
}

// The wall clock of this program: the machine's, set where a test sets it.
extern "C" int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const long result = syscall(SYS_clock_gettime, clock, now);
  if (clock != CLOCK_REALTIME || result != 0) return static_cast<int>(result);
  const int64_t total_ns = now->tv_sec * 1'000'000'000 + now->tv_nsec + g_step_ns;
  now->tv_sec = total_ns / 1'000'000'000;
  now->tv_nsec = total_ns % 1'000'000'000;
  return 0;
}

namespace gpuperf::injector {
namespace {

constexpr uint64_t kBaseNs = 60'000'000;  // above the shortest that two readings must be apart
constexpr double kTicksPerNs = 2.7;
constexpr uint64_t kTickOrigin = 123'456'789;

// As ticks of a machine: they go on when the wall clock is set.
uint64_t to_ticks(uint64_t mono_ns) {
  return kTickOrigin + static_cast<uint64_t>(static_cast<double>(mono_ns) * kTicksPerNs);
}
bool read_ticks(uint64_t& cupti) {
  cupti = to_ticks(read_mono_ns());
  return true;
}
bool read_unix(uint64_t& cupti) {
  cupti = read_unix_ns();
  return true;
}
bool read_nothing(uint64_t&) { return false; }

void pass(uint64_t ns) {
  const uint64_t until = read_mono_ns() + ns;
  while (read_mono_ns() < until) {
  }
}

constexpr uint64_t kSlowNs = 50'000;
int g_slow_readings = 0;  // that many are yet to take long
bool read_unix_slowly(uint64_t& cupti) {
  if (g_slow_readings-- > 0) pass(kSlowNs);
  return read_unix(cupti);
}

class CuptiClockTest : public testing::Test {
 protected:
  ~CuptiClockTest() override { g_step_ns = 0; }

  // How far a conversion of this moment is off.
  double error_now_ns() const {
    const uint64_t mono_ns = read_mono_ns();
    const uint64_t unix_ns = read_unix_ns();
    return std::abs(
        static_cast<double>(static_cast<int64_t>(clock_.to_unix_ns(to_ticks(mono_ns)) - unix_ns)));
  }

  CuptiClock clock_;
};

TEST_F(CuptiClockTest, LeavesTimesAsTheyAreOnTheWallClock) {
  clock_.check(read_unix);

  EXPECT_FALSE(clock_.is_foreign());
  EXPECT_TRUE(clock_.can_convert());
  EXPECT_EQ(clock_.to_unix_ns(1'700'000'000'123'456'789), 1'700'000'000'123'456'789u);
  EXPECT_GT(clock_.error_ns(), 0u);
}

TEST_F(CuptiClockTest, KnowsTheWallClockExactlyThoughMostReadingsAreInterrupted) {
  g_slow_readings = 12;
  clock_.check(read_unix_slowly);

  EXPECT_LT(clock_.error_ns(), kSlowNs);
}

TEST_F(CuptiClockTest, KeepsWhatAShortReadingHasShown) {
  clock_.check(read_unix);
  const uint64_t known_ns = clock_.error_ns();
  g_slow_readings = 1'000;
  clock_.check(read_unix_slowly);

  EXPECT_EQ(clock_.error_ns(), known_ns);
  clock_.forget();
  clock_.check(read_unix_slowly);
  EXPECT_GE(clock_.error_ns(), kSlowNs);
}

TEST_F(CuptiClockTest, NeedsTwoReadingsOfAForeignClock) {
  clock_.check(read_ticks);
  EXPECT_TRUE(clock_.is_foreign());
  EXPECT_FALSE(clock_.can_convert());
  EXPECT_EQ(clock_.to_unix_ns(to_ticks(read_mono_ns())), 0u);

  clock_.check(read_ticks);
  EXPECT_FALSE(clock_.can_convert()) << "two readings at once say nothing of the slope";
  pass(kBaseNs);
  clock_.check(read_ticks);
  EXPECT_TRUE(clock_.can_convert());
}

TEST_F(CuptiClockTest, ConvertsAForeignClockWithinMicroseconds) {
  clock_.check(read_ticks);
  pass(kBaseNs);
  clock_.check(read_ticks);
  pass(kBaseNs);

  EXPECT_LT(error_now_ns(), 20'000);  // on a machine that may take the CPU away in between
  EXPECT_EQ(clock_.to_unix_ns(0), 0u);
}

TEST_F(CuptiClockTest, KeepsOrderAndLengthsOfTimesFarFromItsReadings) {
  clock_.check(read_ticks);
  pass(kBaseNs);
  clock_.check(read_ticks);
  const uint64_t now = read_mono_ns();

  // One second earlier and one millisecond long.
  const uint64_t start = clock_.to_unix_ns(to_ticks(now - 1'000'000'000));
  const uint64_t end = clock_.to_unix_ns(to_ticks(now - 999'000'000));

  EXPECT_NEAR(static_cast<double>(end - start), 1e6, 1e3);
}

TEST_F(CuptiClockTest, NoticesThatTheClockWasExchanged) {
  clock_.check(read_unix);
  EXPECT_FALSE(clock_.is_foreign());

  clock_.check(read_ticks);
  EXPECT_TRUE(clock_.is_foreign());
  EXPECT_FALSE(clock_.can_convert());
  pass(kBaseNs);
  clock_.check(read_ticks);
  EXPECT_TRUE(clock_.can_convert());

  clock_.check(read_unix);
  EXPECT_FALSE(clock_.is_foreign());
  EXPECT_EQ(clock_.to_unix_ns(42), 42u);
}

TEST_F(CuptiClockTest, StartsAnewWhenTheWallClockWasSet) {
  for (const int64_t step_ns : {int64_t{3'600'000'000'000}, int64_t{-5'000'000'000}}) {
    SCOPED_TRACE(step_ns);
    clock_.forget();
    clock_.check(read_ticks);
    pass(kBaseNs);
    clock_.check(read_ticks);
    ASSERT_TRUE(clock_.can_convert());

    g_step_ns += step_ns;
    clock_.check(read_ticks);
    EXPECT_FALSE(clock_.can_convert());
    pass(kBaseNs);
    clock_.check(read_ticks);
    EXPECT_LT(error_now_ns(), 20'000);
  }
}

TEST_F(CuptiClockTest, KeepsWhatItKnowsWhenCuptiDoesNotAnswer) {
  clock_.check(read_ticks);
  pass(kBaseNs);
  clock_.check(read_ticks);

  clock_.check(read_nothing);

  EXPECT_TRUE(clock_.can_convert());
  EXPECT_TRUE(clock_.is_foreign());
}

TEST_F(CuptiClockTest, SurvivesAClockThatStandsStill) {
  const CuptiClock::Read read_stopped = [](uint64_t& cupti) {
    cupti = 5;
    return true;
  };
  clock_.check(read_stopped);
  pass(kBaseNs);
  clock_.check(read_stopped);

  EXPECT_FALSE(clock_.can_convert());
  EXPECT_EQ(clock_.to_unix_ns(5), 0u);
}

}  // namespace
}  // namespace gpuperf::injector
