#include "injector/yield.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "injector/batch.h"
#include "injector/buffers.h"
#include "injector/collector.h"
#include "injector/daemon_link.h"
#include "tests/fakes/cupti/fake_profiler.h"

namespace gpuperf::injector {
namespace {

const char* const kTurned[] = {"cuptiActivityRegisterCallbacks", "cuptiActivityEnable",
                               "cuptiActivityDisable", "cuptiActivityRegisterTimestampCallback",
                               "cuptiFinalize"};
const char* const kUntouched[] = {"cuptiGetVersion", "cuptiActivityFlushAll",
                                  "cuptiActivityGetNextRecord", "cuptiGetTimestamp",
                                  "fake_cupti_read_state"};

// The mappings of the libraries here: addresses, protection, file.
std::vector<std::string> read_mappings() {
  std::vector<std::string> rows;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("libcupti") != std::string::npos ||
        line.find("fake_kineto") != std::string::npos) {
      rows.push_back(line);
    }
  }
  return rows;
}

// Where a mapping lies and what may be done there; neighbours that are alike are one.
struct Range {
  unsigned long long start = 0;
  unsigned long long end = 0;
  std::string protection;
  bool operator==(const Range&) const = default;
};
std::vector<Range> read_protections() {
  std::vector<Range> ranges;
  for (const std::string& row : read_mappings()) {
    Range range;
    char protection[8] = "";
    if (std::sscanf(row.c_str(), "%llx-%llx %7s", &range.start, &range.end, protection) != 3)
      continue;
    range.protection = protection;
    if (!ranges.empty() && ranges.back().end == range.start &&
        ranges.back().protection == range.protection) {
      ranges.back().end = range.end;
    } else {
      ranges.push_back(range);
    }
  }
  return ranges;
}

// One after another in one process: what is turned stays so.
class YieldTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    s_cupti = dlopen(FAKE_CUPTI, RTLD_NOW | RTLD_LOCAL);
    s_now = dlopen(FAKE_KINETO_NOW, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(s_cupti, nullptr) << dlerror();
    ASSERT_NE(s_now, nullptr) << dlerror();
    for (const char* name : kTurned) s_real.push_back(dlsym(s_cupti, name));
    for (const char* name : kUntouched) s_untouched.push_back(dlsym(s_cupti, name));
    s_before = read_protections();
    g_buffers = new Buffers;
    g_collector = new Collector(*g_buffers, *new Batch(*new DaemonLink));
    g_collector->watch_clients();
  }

  static uint64_t count_yields() {
    gpuperf_status status = {};
    g_collector->fill_status(status);
    s_detail = status.detail;
    return status.yields;
  }

  static void* s_cupti;
  static void* s_now;
  static std::vector<void*> s_real;
  static std::vector<void*> s_untouched;
  static std::vector<Range> s_before;
  static std::string s_detail;
};

void* YieldTest::s_cupti = nullptr;
void* YieldTest::s_now = nullptr;
std::vector<void*> YieldTest::s_real;
std::vector<void*> YieldTest::s_untouched;
std::vector<Range> YieldTest::s_before;
std::string YieldTest::s_detail;

TEST_F(YieldTest, TurnsTheEntriesThatMatterAndNoOthers) {
  for (size_t i = 0; i < s_real.size(); ++i) {
    void* now = dlsym(s_cupti, kTurned[i]);
    EXPECT_NE(now, s_real[i]) << kTurned[i];
    Dl_info info = {};
    ASSERT_NE(dladdr(now, &info), 0);
    EXPECT_NE(std::strstr(info.dli_fname, "injector_yield_test"), nullptr) << kTurned[i];
  }
  for (size_t i = 0; i < s_untouched.size(); ++i) {
    EXPECT_EQ(dlsym(s_cupti, kUntouched[i]), s_untouched[i]) << kUntouched[i];
  }
}

TEST_F(YieldTest, LeavesEveryPageAsProtectedAsItWas) { EXPECT_EQ(read_protections(), s_before); }

TEST_F(YieldTest, DoesNothingTheSecondTime) {
  std::vector<void*> before;
  for (const char* name : kTurned) before.push_back(dlsym(s_cupti, name));

  g_collector->watch_clients();

  for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(dlsym(s_cupti, kTurned[i]), before[i]);
  EXPECT_EQ(read_protections(), s_before);
}

// Bound before we came, and bound lazily after.
TEST_F(YieldTest, NoticesClientsHoweverTheyAreBoundAndLetsTheirCallsThrough) {
  EXPECT_EQ(count_yields(), 0u);
  FakeProfilerCounts counts;
  const auto start =
      reinterpret_cast<decltype(&fake_profiler_start)>(dlsym(s_now, "fake_profiler_start"));
  const auto stop =
      reinterpret_cast<decltype(&fake_profiler_stop)>(dlsym(s_now, "fake_profiler_stop"));

  start("");
  EXPECT_EQ(count_yields(), 1u);
  EXPECT_EQ(s_detail, "libfake_kineto_now.so");
  stop(&counts);

  EXPECT_EQ(counts.first_error, 0u);
}

TEST_F(YieldTest, TurnsTheSlotsOfALibraryThatIsLoadedLater) {
  void* lazy = dlopen(FAKE_KINETO_LAZY, RTLD_LAZY | RTLD_LOCAL);
  ASSERT_NE(lazy, nullptr) << dlerror();
  const auto before = read_protections();
  g_collector->watch_clients();
  EXPECT_EQ(read_protections(), before);
  // Its first call finds the entry in the symbol table; the real one is still reached.
  const auto start =
      reinterpret_cast<decltype(&fake_profiler_start)>(dlsym(lazy, "fake_profiler_start"));
  const auto stop =
      reinterpret_cast<decltype(&fake_profiler_stop)>(dlsym(lazy, "fake_profiler_stop"));
  FakeProfilerCounts counts;

  start("");
  stop(&counts);

  // The subscriber is the first client's for ever; all else works.
  EXPECT_EQ(counts.first_error, 39u);
}

}  // namespace
}  // namespace gpuperf::injector
